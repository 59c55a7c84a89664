// A block takes a slab of columns and a part of the rows, 16 of which a team of one warp, or with high ranks of some,
// has at a time: it loads them for itself, a few tiles ahead, and keeps its sums in registers until its rows are done.
// Then the block adds its teams' sums, and those of the blocks that share a slab are added in order: by these, where
// they are a cluster, else by sum_partials.
#include <algorithm>

#include "cuda/await_previous.cuh"
#include "cuda/fragments.cuh"
#include "cuda/hopper.cuh"
#include "cuda/partial_sum.h"
#include "cuda/skinny.h"

namespace lk::cuda {

namespace {

constexpr int warps = 8, threads = warps * 32, tile_rows = 16;
constexpr int most_of_cluster = 8;

// Who makes what: a team's warps share a tile, each for some of its columns and ranks.
template <int Rank>
struct Shape {
  static constexpr int cols = Rank == 32 ? 64 : 128;                                     // of a slab
  static constexpr int ranks = std::min(Rank, 64), rank_ways = Rank / ranks;             // of a warp
  static constexpr int own_cols = Rank > 32 ? 64 : cols, column_ways = cols / own_cols;  // 64 or 128 sums for a lane
  static constexpr int of_team = rank_ways * column_ways, teams = warps / of_team;
  static constexpr int blocks = Rank > 32 ? 1 : 2;                 // of a multiprocessor, by registers
  static constexpr int deep = Rank > 64 ? 10 : Rank > 32 ? 6 : 3;  // tiles on their way, where there is memory
};
// Of the teams, which are added so many columns at a time: all where there is memory. + 8: no bank conflicts.
template <int Rank, int Stages>
struct TeamSums {
  static constexpr int cols = Stages == Shape<Rank>::deep ? Shape<Rank>::cols : Shape<Rank>::own_cols;
  static constexpr int pitch = Rank + 8;
  using Type = float[Shape<Rank>::teams][cols][pitch];
};

struct Job {
  Gather p;
  bool whole_a, whole_z;  // read in pieces of 16 bytes: width and address allow it
  bool halves_of_z;       // else in pieces of 8 bytes
  unsigned first_slab;
  int64_t span;    // rows of a part
  float* partial;  // [parts, cols, Rank] where there are several parts
};
// The kernels of one layer's jobs are apart from those of several, which take longer to find theirs.
constexpr int most_jobs = 2 * LK_LORA_GRADIENTS_MAX;
template <int Jobs>
struct Pass {
  bool joined;  // the parts of a slab are a cluster
  int count;
  Job jobs[Jobs];
};

// What a team has on its way. Of a's rows chunk c of 8 columns lies in place c ^ (row % 8), of z's, too, where a row
// has as many.
template <int Rank>
struct Stage {
  alignas(16) uint16_t a[tile_rows][Shape<Rank>::cols];
  alignas(16) uint16_t z[tile_rows][Rank];
};
template <int Rank>
__device__ inline int place_of_z(int row, int chunk) {
  return (Rank >= 64 ? chunk ^ row % 8 : chunk) * 8;
}

template <int Rank, int Stages>
constexpr size_t shared_bytes = std::max(sizeof(Stage<Rank>) * Stages * Shape<Rank>::teams,
                                         sizeof(typename TeamSums<Rank, Stages>::Type));

template <int Rank, bool Bf16, int Stages, int Jobs>
__global__ void __launch_bounds__(threads, Shape<Rank>::blocks) gather_kernel(Pass<Jobs> pass) {
  await_previous();
  using S = Shape<Rank>;
  constexpr int cols = S::cols, chunks = cols / 8, ranks = S::ranks, lanes = 32 * S::of_team;
  extern __shared__ __align__(16) unsigned char memory[];
  int index = 0;
#pragma unroll
  for (int step = Jobs / 2; step > 0; step /= 2)
    if (index + step < pass.count && blockIdx.x >= pass.jobs[index + step].first_slab) index += step;
  const Job& job = pass.jobs[index];
  const Gather& p = job.p;
  const int64_t first_col = int64_t{blockIdx.x - job.first_slab} * cols;
  const int64_t begin = int64_t{blockIdx.y} * job.span, end = min(begin + job.span, p.rows);
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32, g = lane / 4, t = lane % 4;
  const int team = warp / S::of_team, of_team = thread % lanes;
  const int own_col = warp % S::column_ways * S::own_cols, own_rank = warp / S::column_ways % S::rank_ways * ranks;
  Stage<Rank>* const stages = reinterpret_cast<Stage<Rank>*>(memory) + team * Stages;
  const auto meet = [&] {
    if constexpr (S::of_team == 1)
      __syncwarp();
    else
      asm volatile("bar.sync %0, %1;" ::"r"(1 + team), "n"(lanes) : "memory");
  };

  // A lane's places in the tiles that its warp fetches, one after the other: what is looked up or multiplied for each
  // piece of 16 bytes would take longer than the memory does.
  constexpr int a_step = lanes / chunks, z_chunks = Rank / 8,
                z_step = lanes / z_chunks;  // rows between a lane's pieces
  const bool whole_a = job.whole_a, whole_z = job.whole_z;
  const int rows = static_cast<int>(end - begin), a_chunk = of_team % chunks, a_row = of_team / chunks,
            z_row = of_team / z_chunks, z_chunk = of_team % z_chunks, z_col = z_chunk * 8;
  const int64_t col = first_col + a_chunk * 8;
  const bool a_inside = col < p.cols, z_inside = z_col < p.pitch;
  const auto *const a = static_cast<const uint16_t*>(p.a), *const z = static_cast<const uint16_t*>(p.z.data);
  const int64_t a_pitch = p.cols * a_step, z_pitch = p.pitch * z_step;
  int first_row = team * tile_rows;  // in the part, of the tile that is fetched next
  const uint16_t* a_from = a + (begin + first_row + a_row) * p.cols + col;
  const uint16_t* z_from = z + (begin + first_row + z_row) * p.pitch + z_col;
  const int64_t a_tile = p.cols * (S::teams * tile_rows), z_tile = p.pitch * (S::teams * tile_rows);
  const auto fetch = [&](Stage<Rank>& to) {
    if (first_row < rows) {
      if (whole_a) {
        const uint16_t* from = a_from;
#pragma unroll
        for (int i = 0; i < tile_rows; i += a_step, from += a_pitch) {
          const bool inside = a_inside && first_row + a_row + i < rows;
          copy_16_async(&to.a[a_row + i][(a_chunk ^ (a_row + i) % 8) * 8], inside ? from : a, inside);
        }
      } else {
#pragma unroll 1
        for (int row = a_row; row < tile_rows; row += a_step) {
          const bool inside = a_inside && first_row + row < rows;
          *reinterpret_cast<uint4*>(&to.a[row][(a_chunk ^ row % 8) * 8]) =
              load_eight_16(a + (begin + first_row + row) * p.cols, col, inside ? p.cols : 0, false);
        }
      }
      if (whole_z) {
        const uint16_t* from = z_from;
#pragma unroll
        for (int i = 0; i < tile_rows; i += z_step, from += z_pitch) {
          const bool inside = z_inside && first_row + z_row + i < rows;
          copy_16_async(&to.z[z_row + i][place_of_z<Rank>(z_row + i, z_chunk)], inside ? from : z, inside);
        }
      } else if (job.halves_of_z) {
#pragma unroll 1
        for (int i = of_team; i < tile_rows * Rank / 4; i += lanes) {
          const int row = i / (Rank / 4), j = i % (Rank / 4) * 4;
          const bool inside = first_row + row < rows && j < p.rank;
          copy_8_async(&to.z[row][place_of_z<Rank>(row, j / 8) + j % 8],
                       inside ? z + (begin + first_row + row) * p.pitch + j : z, inside);
        }
      } else {
#pragma unroll 1
        for (int i = of_team; i < tile_rows * Rank; i += lanes) {
          const int row = i / Rank, j = i % Rank;
          const bool inside = first_row + row < rows && j < p.rank;
          to.z[row][place_of_z<Rank>(row, j / 8) + j % 8] =
              inside ? to_16_bit<Bf16>(load(p.z, (begin + first_row + row) * p.pitch + j)) : uint16_t{0};
        }
      }
    }
    first_row += S::teams * tile_rows;
    a_from += a_tile;
    z_from += z_tile;
    commit_copies();
  };

  float sum[S::own_cols / 16][ranks / 8][4] = {};
#pragma unroll
  for (int stage = 0; stage < Stages - 1; ++stage) fetch(stages[stage]);
  int at = 0;
  for (int row = team * tile_rows; row < rows; row += S::teams * tile_rows) {
    wait_copies<Stages - 2>();
    meet();
    fetch(stages[at == 0 ? Stages - 1 : at - 1]);
    const Stage<Rank>& now = stages[at];
    at = at == Stages - 1 ? 0 : at + 1;
    uint32_t right[ranks / 16][4];  // rows 0-7 and 8-15 of 8 ranks, then of the next 8
#pragma unroll
    for (int n = 0; n < ranks / 16; ++n)
      load_matrices<true>(right[n], &now.z[lane % 16][place_of_z<Rank>(lane % 16, own_rank / 8 + n * 2 + lane / 16)]);
#pragma unroll
    for (int m = 0; m < S::own_cols / 16; ++m) {
      // transposed: matrices 0 and 1 are the columns 0-7 and 8-15 of rows 0-7, 2 and 3 of rows 8-15
      const int row = lane / 16 * 8 + lane % 8, chunk = own_col / 8 + m * 2 + lane / 8 % 2;
      uint32_t left[4];
      load_matrices<true>(left, &now.a[row][(chunk ^ row % 8) * 8]);
#pragma unroll
      for (int n = 0; n < ranks / 16; ++n) {
        const uint32_t b[2][2] = {{right[n][0], right[n][1]}, {right[n][2], right[n][3]}};
        multiply_add<Bf16>(sum[m][2 * n], left, b[0]);
        multiply_add<Bf16>(sum[m][2 * n + 1], left, b[1]);
      }
    }
  }

  wait_copies<0>();
  using Sums = TeamSums<Rank, Stages>;
  constexpr int quads = Sums::cols * Rank / 4;  // of neighbours in rank
  auto& sums = *reinterpret_cast<typename Sums::Type*>(memory);
  float* const partial = job.partial;
  // Neighbours among threads have a result's neighbours: columns where it is transposed, else ranks.
  struct Place {
    int col, rank;
    __device__ Place(int quad, bool by_column)
        : col(by_column ? quad % Sums::cols : quad / (Rank / 4)),
          rank((by_column ? quad / Sums::cols : quad % (Rank / 4)) * 4) {}
  };
  const auto finish = [&](int64_t col, int first, const float4& sum) {
    if (col >= p.cols) return;
    const float values[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int j = first + k;
      if (j >= p.rank) return;
      const int64_t to = p.transposed ? j * p.cols + col : col * p.rank + j;
      float value = p.alpha * values[k];
      if (p.add) value += load({p.out.data, p.out.dtype}, to);
      store(p.out, to, value);
    }
  };
#pragma unroll 1
  for (int first = 0; first < cols; first += Sums::cols) {
    __syncthreads();
    if (Sums::cols == cols || own_col == first) {
#pragma unroll
      for (int m = 0; m < S::own_cols / 16; ++m) {
#pragma unroll
        for (int n = 0; n < ranks / 8; ++n) {
#pragma unroll
          for (int half = 0; half < 2; ++half)
            *reinterpret_cast<float2*>(&sums[team][own_col - first + m * 16 + half * 8 + g][own_rank + n * 8 + 2 * t]) =
                make_float2(sum[m][n][2 * half], sum[m][n][2 * half + 1]);
        }
      }
    }
    __syncthreads();
    const bool ends = !pass.joined && partial == nullptr;
    for (int i = thread; i < quads; i += threads) {
      const Place at(i, ends && p.transposed);
      const int64_t col = first_col + first + at.col;
      float4 value = make_float4(0, 0, 0, 0);
#pragma unroll
      for (int of = 0; of < S::teams; ++of) {
        const float4 more = *reinterpret_cast<const float4*>(&sums[of][at.col][at.rank]);
        value.x += more.x, value.y += more.y, value.z += more.z, value.w += more.w;
      }
      if (ends)
        finish(col, at.rank, value);
      else if (pass.joined)
        *reinterpret_cast<float4*>(&sums[0][at.col][at.rank]) = value;  // which this thread alone has read
      else if (col < p.cols)
        *reinterpret_cast<float4*>(partial + (int64_t{blockIdx.y} * p.cols + col) * Rank + at.rank) = value;
    }
#if __CUDA_ARCH__ >= 900
    if (!pass.joined) continue;
    __syncwarp();
    hopper::cluster_barrier();
    const int blocks = static_cast<int>(gridDim.y), own = static_cast<int>(blockIdx.y) * threads + thread;
    for (int i = own; i < quads; i += blocks * threads) {
      const Place at(i, p.transposed);
      float4 total = make_float4(0, 0, 0, 0);
      for (int part = 0; part < blocks; ++part) {
        const float4 v = hopper::load_from_block(&sums[0][at.col][at.rank], part);
        total.x += v.x, total.y += v.y, total.z += v.z, total.w += v.w;
      }
      finish(first_col + first + at.col, at.rank, total);
    }
    __syncwarp();
    hopper::cluster_barrier();  // others read these sums
#endif
  }
}

template <int Jobs>
using Variant = std::pair<void (*)(Pass<Jobs>), size_t>;

template <int Jobs, int Rank, int Stages>
Variant<Jobs> variant(bool bf16) {
  return {bf16 ? gather_kernel<Rank, true, Stages, Jobs> : gather_kernel<Rank, false, Stages, Jobs>,
          shared_bytes<Rank, Stages>};
}

template <int Jobs, int Rank>
Variant<Jobs> variant(const Cuda& cuda, bool bf16) {
  using S = Shape<Rank>;
  const bool deep = cuda.device().sharedMemPerMultiprocessor >= S::blocks * (shared_bytes<Rank, S::deep> + 1024);
  return deep ? variant<Jobs, Rank, S::deep>(bf16) : variant<Jobs, Rank, 2>(bf16);
}

// Of the rows. As many as find room at once with their slab's others, which then are a cluster. Otherwise, with many
// rows, the fewest with which at least nine in ten of the places for blocks are taken, of up to 8 rounds; with few
// rows, or where one part takes most of the places, the second kernel would take longer than what places stay empty.
template <int Rank>
int64_t parts_of(const Cuda& cuda, int64_t slabs, int64_t rows) {
  using S = Shape<Rank>;
  const int64_t places = int64_t{cuda.device().multiProcessorCount} * S::blocks,
                most = ceil_div(rows, tile_rows * S::teams);
  constexpr int64_t few_rows = 2048;
  const bool as_cluster = places / slabs > 1 && places / slabs <= most_of_cluster;
  const bool fills = slabs * 16 >= places * 9 && slabs <= places;
  if (as_cluster || fills || (slabs * 2 > places && rows <= few_rows))
    return std::clamp<int64_t>(places / slabs, 1, most);
  int64_t best = 1, best_taken = 0;  // in thousandths
  for (int64_t parts = 1; parts <= most && slabs * parts <= 8 * places; ++parts) {
    const int64_t taken = slabs * parts * 1000 / (ceil_div(slabs * parts, places) * places);
    if (taken > best_taken) best = parts, best_taken = taken;
    if (best_taken >= 900) break;
  }
  return best;
}

template <int Jobs, int Rank>
void run(Cuda& cuda, std::span<const Gather> jobs) {
  static_assert(sizeof(Pass<Jobs>) <= 4096);  // what a kernel's parameters may take
  Pass<Jobs> pass{};
  pass.count = static_cast<int>(jobs.size());
  int64_t slabs = 0, most_rows = 0;
  for (int i = 0; i < pass.count; ++i) {
    const Gather& p = jobs[static_cast<size_t>(i)];
    pass.jobs[i] = {.p = p,
                    .whole_a = in_pieces(p.a, p.cols, 8),
                    .whole_z = p.z.dtype == p.type && in_pieces(p.z.data, p.pitch, 8),
                    .halves_of_z = p.z.dtype == p.type && in_pieces(p.z.data, p.pitch, 4),
                    .first_slab = static_cast<unsigned>(slabs)};
    slabs += ceil_div(p.cols, Shape<Rank>::cols);
    most_rows = std::max(most_rows, p.rows);
  }
  const auto [kernel, shared] = variant<Jobs, Rank>(cuda, jobs.front().type == LK_BF16);
  const auto span_of = [](int64_t rows, int64_t parts) {
    return ceil_div(ceil_div(rows, parts), int64_t{tile_rows}) * tile_rows;
  };
  const int64_t parts = ceil_div(most_rows, span_of(most_rows, parts_of<Rank>(cuda, slabs, most_rows)));
  for (int i = 0; i < pass.count; ++i) pass.jobs[i].span = span_of(pass.jobs[i].p.rows, parts);
  const dim3 grid(static_cast<unsigned>(slabs), static_cast<unsigned>(parts));
  // All at once: clusters that wait for a second round would take longer than a second kernel.
  pass.joined = parts > 1 && parts <= most_of_cluster &&
                cuda.clusters_at_once(reinterpret_cast<const void*>(kernel), dim3(1, grid.y), threads, shared) >= slabs;
  if (pass.joined) return cuda.launch_columns(kernel, grid, dim3(threads), shared, pass);
  PartialSum sums[Jobs];
  for (int i = 0; i < pass.count && parts > 1; ++i) {
    const Gather& p = pass.jobs[i].p;
    PartialSum& sum = sums[i];
    sum.partial = pass.jobs[i].partial = cuda.scratch<float>(parts * p.cols * Rank);
    sum.count = parts;
    sum.stride = p.cols * Rank;
    sum.pitch = Rank;
    sum.rows = p.cols;
    sum.cols = p.rank;
    sum.alpha = p.alpha;
    sum.out = p.out;
    sum.transposed = p.transposed;
    sum.add = p.add;
  }
  cuda.launch(kernel, grid, dim3(threads), shared, pass);
  for (int i = 0; i < pass.count && parts > 1; i += 2)
    sum_partials(cuda, sums[i], i + 1 < pass.count ? sums[i + 1] : PartialSum{});
}

}  // namespace

void skinny_gather(Cuda& cuda, std::span<const Gather> jobs) {
  with_padded_rank(padded_rank(jobs.front().rank), [&](auto rank) {
    jobs.size() <= 2 ? run<2, rank()>(cuda, jobs) : run<most_jobs, rank()>(cuda, jobs);
  });
}

}  // namespace lk::cuda
