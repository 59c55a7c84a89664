// Two kernels: one projects, one spreads. A block takes some rows and a part of the columns, so that the weights are
// read once for many rows, and its warps share out the rows, 16 each, and where there are few of them the columns too.
// Weights come a slice at a time, the next one while a slice is multiplied. The parts' sums are added up, in order, by
// every block that spreads them.
#include <algorithm>

#include "cuda/await_previous.cuh"
#include "cuda/fragments.cuh"
#include "cuda/hopper.cuh"
#include "cuda/skinny.h"

namespace lk::cuda {

namespace {

constexpr int warps = 8, threads = warps * 32, tile_rows = 16;
constexpr int step_cols = 64;           // a warp reads 128 bytes of each of its rows at a time
constexpr int slice_bytes = 16 * 1024;  // of w or v, in shared memory
constexpr int most_parts = 8;

// Of w, of which two are there.
template <int Stages>
constexpr int project_slice = Stages > 2 ? slice_bytes : slice_bytes / 2;

// Which operands are read and written in pieces of 16 bytes: width and address allow it.
struct Whole {
  bool a, w, v, spread;
};

struct Pass {
  Through p;
  Whole whole;
  int row_groups;  // of 16 rows; warps / row_groups warps share a group's columns
  int parts;       // of a's columns
  int pieces;      // of what is spread
  int64_t part_cols, spread_cols;
  float* partial;  // [parts, rows, Rank]
};
// By blockIdx.z. The kernels of one job are apart from those of several, whose arguments have to be looked up: 0.2 us.
template <int Jobs>
struct Passes {
  Pass of[Jobs];
};

// Numbers first .. first + 7 of a line of `length`; those beyond the end count as zero.
struct Eight {
  float4 low, high;
};
__device__ inline Eight load_line(const float* line, int64_t first, int64_t length, bool whole) {
  Eight v = {};
  if (whole) {
    const auto* const from = reinterpret_cast<const float4*>(line + first);
    if (first < length) v.low = from[0];
    if (first + 4 < length) v.high = from[1];
  } else {
    const auto at = [&](int64_t i) { return i < length ? line[i] : 0.0f; };
    v.low = make_float4(at(first), at(first + 1), at(first + 2), at(first + 3));
    v.high = make_float4(at(first + 4), at(first + 5), at(first + 6), at(first + 7));
  }
  return v;
}

// `Cols` columns of a matrix [width, rank] or, `Lines`, [rank, width], which come as they are and go into a slice in
// shared memory in 16 bits.
//   [rank, width]: a row for each rank, whose chunk c of 8 columns lies in place c ^ (rank % 8)
//   [width, rank]: a row for each column, whose chunks of 8 ranks change places so that 8 rows have no bank conflict
// `Turned`: of each 32 columns, 8 q + 2 i + e comes into place 8 i + 2 q + e.
template <int Rank, int Cols, bool Bf16, bool Lines, bool Turned>
class Slice {
 public:
  __device__ static unsigned place_of_column(unsigned col, unsigned chunk) {
    return col * Rank + (chunk ^ col / (64 / Rank) % rank_chunks) * 8;
  }
  __device__ static unsigned place_of_line(unsigned rank, unsigned chunk) {
    return rank * Cols + (chunk ^ rank % 8) * 8;
  }

  // `cols` is a multiple of 32; beyond them there are zeros.
  __device__ void load(const float* weights, int64_t width, int64_t rank, int64_t first_col, int cols, bool whole) {
#pragma unroll
    for (int k = 0; k < pieces; ++k) {
      const int i = piece(k);
      const bool wanted = i < cols * rank_chunks;
      if constexpr (Lines) {
        const int q = i % 4, j = i / 4 % Rank, block = i / (4 * Rank);
        pieces_[k] =
            load_line(weights + j * width, first_col + block * 32 + q * 8, wanted && j < rank ? width : 0, whole);
      } else {
        const int col = i / rank_chunks;
        const bool inside = wanted && first_col + col < width;
        pieces_[k] = load_line(weights + (first_col + col) * rank, i % rank_chunks * 8, inside ? rank : 0, whole);
      }
    }
  }
  __device__ void store(uint16_t* slice) const {
#pragma unroll
    for (int k = 0; k < pieces; ++k) {
      const int i = piece(k);
      const float4 &low = pieces_[k].low, &high = pieces_[k].high;
      const uint32_t words[4] = {pack<Bf16>(low.x, low.y), pack<Bf16>(low.z, low.w), pack<Bf16>(high.x, high.y),
                                 pack<Bf16>(high.z, high.w)};
      const uint4 line = make_uint4(words[0], words[1], words[2], words[3]);
      if constexpr (!Lines) {
        const int col = i / rank_chunks;
        const int place = Turned ? col / 32 * 32 + col / 2 % 4 * 8 + col % 32 / 8 * 2 + col % 2 : col;
        *reinterpret_cast<uint4*>(slice + place_of_column(place, i % rank_chunks)) = line;
      } else {
        const int q = i % 4, j = i / 4 % Rank, block = i / (4 * Rank);
        if constexpr (Turned) {
#pragma unroll
          for (int n = 0; n < 4; ++n)
            *reinterpret_cast<uint32_t*>(slice + place_of_line(j, block * 4 + n) + 2 * q) = words[n];
        } else {
          *reinterpret_cast<uint4*>(slice + place_of_line(j, block * 4 + q)) = line;
        }
      }
    }
  }

 private:
  static constexpr int rank_chunks = Rank / 8, pieces = Cols * rank_chunks / threads;
  static_assert(pieces * threads == Cols * rank_chunks);
  __device__ static int piece(int k) { return k * threads + static_cast<int>(threadIdx.x); }
  Eight pieces_[pieces];
};

// What a warp has on its way: chunk c of 8 columns lies in place c ^ (row % 8).
using Stage = uint16_t[tile_rows][step_cols];

// The part's weights are wanted in the second-level cache, where any kernel in front would find them, too.
__device__ inline void expect_weights(const Pass& pass) {
#if __CUDA_ARCH__ >= 900
  const Through& p = pass.p;
  const int64_t begin = blockIdx.y * pass.part_cols, cols = min(pass.part_cols, p.in - begin);
  const int64_t lines = p.by_rank ? 1 : p.rank, count = p.by_rank ? cols * p.rank : cols;
  if (!pass.whole.w || threadIdx.x >= lines) return;
  const float* const from = p.w + (p.by_rank ? begin * p.rank : threadIdx.x * p.in + begin);
  hopper::expect_soon(from, static_cast<int>(count) * 4);
#endif
}

template <int Rank, bool Bf16, bool ByRank, int Stages, int Jobs>
__global__ void __launch_bounds__(threads, 2) project_kernel(Passes<Jobs> passes) {
  const Pass& pass = passes.of[Jobs == 1 ? 0 : blockIdx.z];
  if (Jobs > 1 && static_cast<int>(blockIdx.y) >= pass.parts) return;
  if (blockIdx.x == 0) expect_weights(pass);
  await_previous();
  constexpr int slice = project_slice<Stages> / 2 / Rank;
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ alignas(128) uint16_t weights[2][project_slice<Stages> / 2];
  const Through& p = pass.p;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32, g = lane / 4, t = lane % 4;
  const int group = warp % pass.row_groups, share = warp / pass.row_groups, shares = warps / pass.row_groups;
  const int64_t block_row = int64_t{blockIdx.x} * pass.row_groups * tile_rows,
                first_row = block_row + group * tile_rows;
  Stage* const stages = reinterpret_cast<Stage*>(memory) + warp * Stages;

  const int64_t begin = blockIdx.y * pass.part_cols;
  const int cols = static_cast<int>(min(pass.part_cols, p.in - begin));
  const uint16_t* const a = static_cast<const uint16_t*>(p.a);
  const unsigned chunk = lane % 8, own_row = lane / 8;
  const int rows = static_cast<int>(min(p.rows - first_row, int64_t{tile_rows}));
  const int stride = shares * step_cols;
  // The next to fetch, in the first of the lane's rows.
  const uint16_t* from = a + (first_row + own_row) * p.in + begin + share * step_cols + chunk * 8;
  const int64_t four_rows = 4 * p.in;
  const auto fetch = [&](int col, int stage) {
    if (col < cols) {
      Stage& to = stages[stage];
      const bool in_cols = col + chunk * 8 < cols;
      const auto place = [&](unsigned row) { return &to[row][(chunk ^ row % 8) * 8]; };
      const uint16_t* at = from;
      if (pass.whole.a) {
#pragma unroll
        for (int i = 0; i < tile_rows; i += 4, at += four_rows) {
          const bool inside = in_cols && static_cast<int>(own_row + i) < rows;
          copy_16_async(place(own_row + i), inside ? at : a, inside);
        }
      } else {
#pragma unroll 1
        for (int i = 0; i < tile_rows; i += 4, at += four_rows) {
          const int there = in_cols && static_cast<int>(own_row + i) < rows ? cols - col - chunk * 8 : 0;
          *reinterpret_cast<uint4*>(place(own_row + i)) = load_eight_16(there > 0 ? at : a, 0, there, false);
        }
      }
    }
    from += stride;
    commit_copies();
  };
  int col = share * step_cols, next = col;
#pragma unroll
  for (int stage = 0; stage < Stages - 1; ++stage, next += stride) fetch(next, stage);

  using Weights = Slice<Rank, slice, Bf16, !ByRank, false>;
  Weights coming;
  const auto load = [&](int first) {
    const int width = min(slice, (cols - first + step_cols - 1) / step_cols * step_cols);
    coming.load(p.w, p.in, p.rank, begin + first, width, pass.whole.w);
  };
  load(0);
  coming.store(weights[0]);
  __syncthreads();
  float sum[Rank / 8][4] = {};
  unsigned turn = 0, buffer = 0;
  for (int first = 0; first < cols; first += slice, buffer ^= 1) {
    const bool more = first + slice < cols;
    if (more) load(first + slice);
    const uint16_t* const w = weights[buffer];
    for (; col < min(first + slice, cols); col += stride, next += stride, ++turn) {
      wait_copies<Stages - 2>();
      __syncwarp();
      fetch(next, (turn + Stages - 1) % Stages);
      const Stage& now = stages[turn % Stages];
      const int in_slice = col - first;
#pragma unroll
      for (int k = 0; k < step_cols; k += 16) {
        uint32_t left[4];
        load_matrices<false>(left, &now[lane % 16][((k / 8 + lane / 16) ^ lane % 8) * 8]);
#pragma unroll
        for (int n = 0; n < Rank / 16; ++n) {
          uint32_t b[4];
          if constexpr (ByRank)
            load_matrices<true>(b, w + Weights::place_of_column(in_slice + k + lane % 16, n * 2 + lane / 16));
          else
            load_matrices<false>(
                b, w + Weights::place_of_line(n * 16 + lane / 16 * 8 + lane % 8, (in_slice + k) / 8 + lane / 8 % 2));
          const uint32_t right[2][2] = {{b[0], b[1]}, {b[2], b[3]}};
          multiply_add<Bf16>(sum[2 * n], left, right[0]);
          multiply_add<Bf16>(sum[2 * n + 1], left, right[1]);
        }
      }
    }
    if (!more) break;
    coming.store(weights[buffer ^ 1]);
    __syncthreads();
  }

  // Over the warps that share a group's columns, in order.
  wait_copies<0>();
  __syncthreads();
  float(*const sums)[tile_rows][Rank] = reinterpret_cast<float(*)[tile_rows][Rank]>(memory);
#pragma unroll
  for (int n = 0; n < Rank / 8; ++n) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
      *reinterpret_cast<float2*>(&sums[warp][half * 8 + g][n * 8 + 2 * t]) =
          make_float2(sum[n][2 * half], sum[n][2 * half + 1]);
  }
  __syncthreads();
  float* const to = pass.partial + (blockIdx.y * p.rows + block_row) * Rank;
  const int count = pass.row_groups * tile_rows * Rank;  // numbers of a share
  for (int i = thread * 4; i < count; i += threads * 4) {
    if (block_row + i / Rank >= p.rows) break;
    float4 v = make_float4(0, 0, 0, 0);
    for (int j = 0; j < shares; ++j) {
      const float4 more = *reinterpret_cast<const float4*>(reinterpret_cast<const float*>(memory) + j * count + i);
      v.x += more.x, v.y += more.y, v.z += more.z, v.w += more.w;
    }
    *reinterpret_cast<float4*>(to + i) = v;
  }
}

// By blocks beyond those that add up what was projected: eight numbers a thread. The kernel in front, which projects,
// has nothing to do with them.
__device__ inline void narrow(const Through& p, bool whole) {
  const int64_t block = int64_t{blockIdx.y - 1} * gridDim.x + blockIdx.x, i = (block * threads + threadIdx.x) * 8;
  if (i >= p.out * p.rank) return;
  float v[8];
  if (whole) load8({p.v, LK_F32}, i, v);
#pragma unroll
  for (int k = 0; k < 8; ++k) v[k] = p.gain * (whole ? v[k] : p.v[i + k]);
  store8({p.narrow, p.type}, i, v);
}

template <int Rank, bool Bf16, bool ByRank, int Jobs>
__global__ void __launch_bounds__(threads, 2) spread_kernel(Passes<Jobs> passes) {
  const Pass& pass = passes.of[Jobs == 1 ? 0 : blockIdx.z];
  if (Jobs > 1 && static_cast<int>(blockIdx.y) >= pass.pieces) return;
  if (pass.p.narrow != nullptr && blockIdx.y > 0) {
    narrow(pass.p, pass.whole.v);
    return await_previous();
  }
  constexpr int slice = slice_bytes / 2 / Rank;
  __shared__ alignas(128) uint16_t weights[slice_bytes / 2];
  __shared__ alignas(16) uint16_t z_tiles[warps][tile_rows][Rank + 8];  // + 8: no bank conflicts
  const Through& p = pass.p;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32, g = lane / 4, t = lane % 4;
  const int group = warp % pass.row_groups, share = warp / pass.row_groups, shares = warps / pass.row_groups;
  const int64_t block_row = int64_t{blockIdx.x} * pass.row_groups * tile_rows,
                first_row = block_row + group * tile_rows;
  const int64_t left = blockIdx.y * pass.spread_cols;
  const int cols = p.spread.data != nullptr ? static_cast<int>(min(pass.spread_cols, p.out - left)) : 0;
  using Weights = Slice<Rank, slice, Bf16, ByRank, true>;
  const auto fill = [&](int first) {
    Weights coming;
    coming.load(p.v, p.out, p.rank, left + first, min(slice, (cols - first + 31) / 32 * 32), pass.whole.v);
    coming.store(weights);
  };
  if (cols > 0) fill(0);  // which the kernel in front does not write
  await_previous();
  for (int i = thread * 4; i < pass.row_groups * tile_rows * Rank; i += threads * 4) {
    const int local = i / Rank, first = i % Rank;
    const int64_t row = block_row + local;
    const bool inside = row < p.rows;
    const float* const terms = pass.partial + (inside ? row * Rank + first : 0);
    float4 part[most_parts];
#pragma unroll
    for (int k = 0; k < most_parts; ++k)
      part[k] = inside && k < pass.parts ? *reinterpret_cast<const float4*>(terms + k * p.rows * Rank)
                                         : make_float4(0, 0, 0, 0);
    float v[4] = {};
#pragma unroll
    for (int k = 0; k < most_parts; ++k) v[0] += part[k].x, v[1] += part[k].y, v[2] += part[k].z, v[3] += part[k].w;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int j = first + k;
      v[k] *= p.alpha;
      if (p.mask.data != nullptr && inside && j < p.rank) v[k] *= load(p.mask, row * p.rank + j);
      if (blockIdx.y == 0 && inside && j < p.pitch) store(p.projected, row * p.pitch + j, v[k]);
    }
    *reinterpret_cast<uint2*>(&z_tiles[local / tile_rows][local % tile_rows][first]) =
        make_uint2(pack<Bf16>(v[0], v[1]), pack<Bf16>(v[2], v[3]));
  }
  __syncthreads();
  uint32_t z[Rank / 16][4];
#pragma unroll
  for (int step = 0; step < Rank / 16; ++step)
    load_matrices<false>(z[step], &z_tiles[group][lane % 16][step * 16 + lane / 16 * 8]);

  const bool packs = pass.whole.spread && p.spread.dtype == p.type;
  const bool has_top = first_row + g < p.rows, has_bottom = first_row + g + 8 < p.rows;
  const int64_t top = (first_row + g) * p.out + left + 8 * t, bottom = top + 8 * p.out;
  const int matrix_row = lane % 8;
  for (int start = 0; start < cols; start += slice) {
    if (start != 0) {
      __syncthreads();
      fill(start);
      __syncthreads();
    }
    const int width = min(slice, cols - start);
    // Column g of tile i is column 8 (g / 2) + 2 i + g % 2 of the 32, so a lane's sums are 8 neighbours of a row.
#pragma unroll 2
    for (int first = share * 32; first < width; first += shares * 32) {
      float out[4][4] = {};
#pragma unroll
      for (int step = 0; step < Rank / 16; ++step) {
#pragma unroll
        for (int pair = 0; pair < 2; ++pair) {
          uint32_t b[4];
          const int tile = pair * 2 + lane / 16, half = lane / 8 % 2;
          if constexpr (ByRank)
            load_matrices<true>(b,
                                weights + Weights::place_of_line(step * 16 + half * 8 + matrix_row, first / 8 + tile));
          else
            load_matrices<false>(b, weights + Weights::place_of_column(first + tile * 8 + matrix_row, step * 2 + half));
          const uint32_t words[2][2] = {{b[0], b[1]}, {b[2], b[3]}};
          multiply_add<Bf16>(out[pair * 2], z[step], words[0]);
          multiply_add<Bf16>(out[pair * 2 + 1], z[step], words[1]);
        }
      }
      const int col = start + first;
      if (packs) {
        if (col + 8 * t >= cols) continue;
        const auto put_line = [&](bool there, int64_t at, int half) {
          if (!there) return;
          uint32_t line[4] = {};
          if (p.base.data != nullptr) {
            const uint4 more = *reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(p.base.data) + at);
            line[0] = more.x, line[1] = more.y, line[2] = more.z, line[3] = more.w;
          }
#pragma unroll
          for (int k = 0; k < 4; ++k) {
            const float2 more = unpack<Bf16>(line[k]);
            line[k] = pack<Bf16>(more.x + p.gain * out[k][2 * half], more.y + p.gain * out[k][2 * half + 1]);
          }
          *reinterpret_cast<uint4*>(static_cast<uint16_t*>(p.spread.data) + at) =
              make_uint4(line[0], line[1], line[2], line[3]);
        };
        put_line(has_top, top + col, 0);
        put_line(has_bottom, bottom + col, 1);
      } else {
#pragma unroll
        for (int k = 0; k < 8; ++k) {
          if (col + 8 * t + k >= cols) break;
          if (has_top) store(p.spread, top + col + k, p.gain * out[k / 2][k % 2]);
          if (has_bottom) store(p.spread, bottom + col + k, p.gain * out[k / 2][2 + k % 2]);
        }
      }
    }
  }
}

template <int Jobs>
struct Kernels {
  void (*project)(Passes<Jobs>), (*spread)(Passes<Jobs>);
  size_t shared;  // of project
};

template <int Jobs, int Rank, bool Bf16, bool ByRank, int Stages>
Kernels<Jobs> kernels_for() {
  return {project_kernel<Rank, Bf16, ByRank, Stages, Jobs>, spread_kernel<Rank, Bf16, ByRank, Jobs>,
          sizeof(Stage) * warps * Stages};
}

template <int Jobs, int Rank, int Stages>
Kernels<Jobs> kernels_for(const Through& p) {
  if (p.type == LK_BF16)
    return p.by_rank ? kernels_for<Jobs, Rank, true, true, Stages>() : kernels_for<Jobs, Rank, true, false, Stages>();
  return p.by_rank ? kernels_for<Jobs, Rank, false, true, Stages>() : kernels_for<Jobs, Rank, false, false, Stages>();
}

// With as many stages as two blocks find room for.
template <int Jobs, int Rank>
Kernels<Jobs> kernels_for(const Cuda& cuda, const Through& p) {
  const auto fit = [&](int stages, int slice) {
    return cuda.device().sharedMemPerMultiprocessor >= 2 * (sizeof(Stage) * warps * stages + 2 * slice + 1024);
  };
  if (fit(4, project_slice<4>)) return kernels_for<Jobs, Rank, 4>(p);
  return fit(3, project_slice<3>) ? kernels_for<Jobs, Rank, 3>(p) : kernels_for<Jobs, Rank, 2>(p);
}

template <int Jobs>
void run(Cuda& cuda, std::span<const Through> jobs) {
  const Through& first = jobs.front();
  const auto count = static_cast<unsigned>(jobs.size());
  // At most two blocks for each multiprocessor. With as many rows, for each block reads the weights of its part, as
  // leave two in three of these places taken by parts that have a slice at least.
  int64_t widest = 0;
  for (const Through& p : jobs) widest = std::max(widest, p.in);
  const int64_t places = int64_t{cuda.device().multiProcessorCount} * 2 / count,
                tiles = ceil_div(first.rows, tile_rows),
                useful = std::clamp<int64_t>(widest * padded_rank(first.rank) * 2 / slice_bytes, 1, most_parts);
  int row_groups = warps;
  while (row_groups > 1 && ceil_div(tiles, row_groups) * useful * 3 < places * 2) row_groups /= 2;
  const int64_t row_blocks = ceil_div(tiles, row_groups);
  const int64_t parts = std::clamp<int64_t>(places / row_blocks, 1, most_parts);
  const int64_t rank = padded_rank(first.rank);
  Passes<Jobs> passes{};
  dim3 projects(static_cast<unsigned>(row_blocks), 1, count), spreads = projects;
  for (unsigned i = 0; i < count; ++i) {
    const Through& p = jobs[i];
    Pass& pass = passes.of[i];
    pass.p = p;
    pass.whole.a = in_pieces(p.a, p.in, 8);
    pass.whole.w = in_pieces(p.w, p.by_rank ? p.rank : p.in, 4);
    pass.whole.v = in_pieces(p.v, p.by_rank ? p.out : p.rank, 4);
    pass.whole.spread = in_pieces(p.spread.data, p.out, 8);
    pass.row_groups = row_groups;
    pass.part_cols = ceil_div(ceil_div(p.in, parts), step_cols) * step_cols;
    pass.parts = static_cast<int>(ceil_div(p.in, pass.part_cols));
    pass.partial = cuda.scratch<float>(pass.parts * p.rows * rank);
    pass.spread_cols = ceil_div(ceil_div(std::max<int64_t>(p.out, 1), parts), 32) * 32;
    int64_t pieces = 1;
    if (p.spread.data != nullptr) pieces = ceil_div(p.out, pass.spread_cols);
    if (p.narrow != nullptr) pieces = 1 + ceil_div(p.out * p.rank, row_blocks * threads * 8);
    pass.pieces = static_cast<int>(pieces);
    projects.y = std::max(projects.y, static_cast<unsigned>(pass.parts));
    spreads.y = std::max(spreads.y, static_cast<unsigned>(pass.pieces));
  }
  const Kernels<Jobs> kernels = rank == 16 ? kernels_for<Jobs, 16>(cuda, first) : kernels_for<Jobs, 32>(cuda, first);
  cuda.launch(kernels.project, projects, dim3(threads), kernels.shared, passes);
  cuda.launch(kernels.spread, spreads, dim3(threads), 0, passes);
}

}  // namespace

bool skinny_fits(const Cuda& cuda, lk_dtype type, int64_t rank) {
  return cuda.capability() >= 80 && type != LK_F32 && rank <= skinny_rank;
}

bool takes_base(const Cuda& cuda, const Through& p, const In& base) {
  const bool pieces = cuda.measuring() || (in_pieces(p.spread.data, p.out, 8) && in_pieces(base.data, p.out, 8));
  return pieces && p.spread.dtype == p.type && base.dtype == p.type;
}

void skinny_through(Cuda& cuda, std::span<const Through> jobs) {
  jobs.size() == 1 ? run<1>(cuda, jobs) : run<LK_LORA_GROUP_MAX>(cuda, jobs);
}

}  // namespace lk::cuda
