// A block walks down a slab of columns tile by tile: one side is summed in registers, the other over its warps.
#include <algorithm>
#include <utility>

#include "cuda/partial_sum.h"
#include "cuda/skinny.h"

namespace lk::cuda {

namespace {

// A block takes a slab of 256 columns and walks down its part of the rows, a tile at a time; each of its 8 warps has 32
// of the columns. Sums along the rows (gathered) stay in the warp's registers until the end. Sums along the columns
// (projected) are added over the warps after each tile. Both leave a partial sum for each block, added by sum_partials.
constexpr int warps = 8, threads = warps * 32, warp_cols = 32, slab = warps * warp_cols;

template <int Rank>
constexpr int tile_rows = Rank == 16 ? 32 : 16;  // as much as fits into 48 KiB

struct Pass {
  Skinny p;
  int64_t span;      // rows of a block
  float* projected;  // [slabs, rows, Rank]
  float* gathered;   // [row blocks, cols, Rank]
  bool vector_a, vector_spread;
};

template <bool Bf16>
__device__ inline uint16_t to_16_bit(float v) {
  if constexpr (Bf16) return __bfloat16_as_ushort(__float2bfloat16_rn(v));
  return __half_as_ushort(__float2half_rn(v));
}

template <bool Bf16>
__device__ inline uint32_t pack(float low, float high) {
  return to_16_bit<Bf16>(low) | static_cast<uint32_t>(to_16_bit<Bf16>(high)) << 16;
}

// In all fragments g = lane / 4 and t = lane % 4. a (16 x 16): word 0 has row g, columns 2t and 2t + 1; word 1 row g +
// 8; words 2 and 3 the same 8 columns on. b (16 x 8): word 0 has rows 2t and 2t + 1 of column g, word 1 the rows 8 on.
// sum (16 x 8): elements 0 and 1 are row g, columns 2t and 2t + 1; 2 and 3 row g + 8.
template <bool Bf16>
__device__ inline void multiply_add(float (&sum)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#if __CUDA_ARCH__ >= 800
  if constexpr (Bf16) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
#endif
}

// Four 8 x 8 matrices out of shared memory, whose rows the lanes 8i .. 8i + 7 point to for matrix i: word i has
// elements (g, 2t) and (g, 2t + 1) of it, or of its transpose.
template <bool Transposed>
__device__ inline void load_matrices(uint32_t (&words)[4], const uint16_t* row) {
#if __CUDA_ARCH__ >= 750
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  if constexpr (Transposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address)
                 : "memory");
  }
#endif
}

// w as the b fragments of one warp. Columns and ranks beyond the end count as zero.
template <bool Bf16, int Rank, bool Project>
struct WeightFragments {
  // Project: [step of 16 columns][8 ranks]. Else: [step of 16 ranks][8 columns].
  static constexpr int steps = Project ? warp_cols / 16 : Rank / 16, tiles = Project ? Rank / 8 : warp_cols / 8;
  uint32_t words[steps][tiles][2];

  __device__ void load(const Skinny& p, int64_t first_col) {
    const int g = static_cast<int>(threadIdx.x) % 32 / 4, t = static_cast<int>(threadIdx.x) % 4;
    const auto value = [&](int64_t col, int j) {
      return col < p.cols && j < p.rank ? p.w[col * p.w_col + j * p.w_rank] : 0.0f;
    };
#pragma unroll
    for (int step = 0; step < steps; ++step) {
#pragma unroll
      for (int tile = 0; tile < tiles; ++tile) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int k = step * 16 + half * 8 + 2 * t;
          if constexpr (Project) {
            words[step][tile][half] =
                pack<Bf16>(value(first_col + k, tile * 8 + g), value(first_col + k + 1, tile * 8 + g));
          } else {
            // Column g of the tile stands for column 8 (g / 2) + 2 tile + g % 2 of the warp's 32, so that a lane's
            // sums over the four tiles are 8 neighbours of one row.
            const int64_t col = first_col + 8 * (g / 2) + 2 * tile + g % 2;
            words[step][tile][half] = pack<Bf16>(value(col, k), value(col, k + 1));
          }
        }
      }
    }
  }
};

template <int Rank, bool Bf16, bool Project, bool Gather, bool Spread>
__global__ void __launch_bounds__(threads) skinny_kernel(Pass pass) {
  constexpr int rows = tile_rows<Rank>;
  constexpr bool uses_a = Project || Gather, uses_z = Gather || Spread;
  constexpr int a_pitch = slab + 8, z_pitch = Rank + 8, sum_pitch = Rank + 8;  // + 8: no bank conflicts
  constexpr int a_loads = rows * slab / vector_width / threads, z_loads = rows * Rank / threads;
  constexpr int rank_tiles = Rank / 8;
  __shared__ alignas(16) uint16_t a_tile[uses_a ? rows : 1][a_pitch];
  __shared__ alignas(16) uint16_t z_tile[uses_z ? rows : 1][z_pitch];
  __shared__ alignas(16) float sums[Project ? warps : 1][Project ? rows : 1][sum_pitch];

  const Skinny& p = pass.p;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32, g = lane / 4, t = lane % 4;
  const int64_t slab_col = int64_t{blockIdx.x} * slab, warp_col = slab_col + warp * warp_cols;
  const int64_t begin = int64_t{blockIdx.y} * pass.span, end = min(begin + pass.span, p.rows);
  const bool spreads = Spread && p.spread.data != nullptr;

  // The next tile, on its way into shared memory.
  uint4 a_next[a_loads];
  uint16_t z_next[z_loads];
  const auto fetch_tile = [&](int64_t first_row) {
    if constexpr (uses_a) {
      const uint16_t* const a = static_cast<const uint16_t*>(p.a.data);
#pragma unroll
      for (int i = 0; i < a_loads; ++i) {
        const int chunk = i * threads + thread;
        const int64_t row = first_row + chunk / (slab / vector_width);
        const int64_t col = slab_col + chunk % (slab / vector_width) * vector_width;
        uint4 v = make_uint4(0, 0, 0, 0);
        if (pass.vector_a) {
          if (row < end && col < p.cols) v = *reinterpret_cast<const uint4*>(a + row * p.cols + col);
        } else {
          uint32_t words[4] = {};
#pragma unroll
          for (int k = 0; k < vector_width; ++k) {
            if (row < end && col + k < p.cols)
              words[k / 2] |= static_cast<uint32_t>(a[row * p.cols + col + k]) << (16 * (k % 2));
          }
          v = make_uint4(words[0], words[1], words[2], words[3]);
        }
        a_next[i] = v;
      }
    }
    if constexpr (uses_z) {
#pragma unroll
      for (int i = 0; i < z_loads; ++i) {
        const int element = i * threads + thread, j = element % Rank;
        const int64_t row = first_row + element / Rank, at = row * p.rank + j;
        const bool inside = row < end && j < p.rank;
        if (p.z.dtype == p.type)
          z_next[i] = inside ? static_cast<const uint16_t*>(p.z.data)[at] : uint16_t{0};
        else
          z_next[i] = inside ? to_16_bit<Bf16>(load(p.z, at)) : uint16_t{0};
      }
    }
  };
  const auto place_tile = [&] {
    if constexpr (uses_a) {
#pragma unroll
      for (int i = 0; i < a_loads; ++i) {
        const int chunk = i * threads + thread;
        *reinterpret_cast<uint4*>(
            &a_tile[chunk / (slab / vector_width)][chunk % (slab / vector_width) * vector_width]) = a_next[i];
      }
    }
    if constexpr (uses_z) {
#pragma unroll
      for (int i = 0; i < z_loads; ++i) {
        const int element = i * threads + thread;
        z_tile[element / Rank][element % Rank] = z_next[i];
      }
    }
  };

  fetch_tile(begin);
  WeightFragments<Bf16, Rank, Project> w;
  if (Project || spreads) w.load(p, warp_col);
  float gathered[Gather ? 2 : 1][rank_tiles][4] = {};

  for (int64_t first_row = begin; first_row < end; first_row += rows) {
    place_tile();
    __syncthreads();
    if (first_row + rows < end) fetch_tile(first_row + rows);
#pragma unroll
    for (int top = 0; top < rows; top += 16) {
      if constexpr (Project) {
        float sum[rank_tiles][4] = {};
#pragma unroll
        for (int step = 0; step < warp_cols / 16; ++step) {
          uint32_t a[4];
          load_matrices<false>(a, &a_tile[top + lane % 16][warp * warp_cols + step * 16 + lane / 16 * 8]);
#pragma unroll
          for (int n = 0; n < rank_tiles; ++n) multiply_add<Bf16>(sum[n], a, w.words[step][n]);
        }
#pragma unroll
        for (int n = 0; n < rank_tiles; ++n) {
          *reinterpret_cast<float2*>(&sums[warp][top + g][n * 8 + 2 * t]) = make_float2(sum[n][0], sum[n][1]);
          *reinterpret_cast<float2*>(&sums[warp][top + g + 8][n * 8 + 2 * t]) = make_float2(sum[n][2], sum[n][3]);
        }
      }
      if constexpr (Gather) {
        uint32_t a[2]
                  [4];  // transposed: matrices 0 and 1 are the columns 0-7 and 8-15 of rows 0-7, 2 and 3 of rows 8-15
#pragma unroll
        for (int m = 0; m < 2; ++m)
          load_matrices<true>(a[m],
                              &a_tile[top + lane / 16 * 8 + lane % 8][warp * warp_cols + m * 16 + lane / 8 % 2 * 8]);
#pragma unroll
        for (int n = 0; n < rank_tiles; n += 2) {
          uint32_t z[4];  // rows 0-7 and 8-15 of ranks 0-7, then of ranks 8-15
          load_matrices<true>(z, &z_tile[top + lane % 16][n * 8 + lane / 16 * 8]);
          const uint32_t b[2][2] = {{z[0], z[1]}, {z[2], z[3]}};
#pragma unroll
          for (int m = 0; m < 2; ++m) {
            multiply_add<Bf16>(gathered[m][n], a[m], b[0]);
            multiply_add<Bf16>(gathered[m][n + 1], a[m], b[1]);
          }
        }
      }
      if (spreads) {
        if constexpr (Spread) {
          float sum[warp_cols / 8][4] = {};
#pragma unroll
          for (int step = 0; step < Rank / 16; ++step) {
            uint32_t z[4];
            load_matrices<false>(z, &z_tile[top + lane % 16][step * 16 + lane / 16 * 8]);
#pragma unroll
            for (int n = 0; n < warp_cols / 8; ++n) multiply_add<Bf16>(sum[n], z, w.words[step][n]);
          }
          const int64_t col = warp_col + 8 * t;
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const int64_t row = first_row + top + g + 8 * half;
            float v[8];
#pragma unroll
            for (int k = 0; k < 8; ++k) v[k] = p.alpha * sum[k / 2][2 * half + k % 2];
            if (row >= end || col >= p.cols) continue;
            if (pass.vector_spread) {
              store8(p.spread, row * p.cols + col, v);
            } else {
#pragma unroll
              for (int k = 0; k < 8; ++k) {
                if (col + k < p.cols) store(p.spread, row * p.cols + col + k, v[k]);
              }
            }
          }
        }
      }
    }
    __syncthreads();
    if constexpr (Project) {
      float* const to = pass.projected + (blockIdx.x * p.rows + first_row) * Rank;
      for (int i = thread; i < rows * Rank; i += threads) {
        if (first_row + i / Rank >= end) break;
        float sum = 0;
#pragma unroll
        for (int part = 0; part < warps; ++part) sum += sums[part][i / Rank][i % Rank];
        to[i] = sum;
      }
    }
  }
  if constexpr (Gather) {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int64_t col = warp_col + m * 16 + half * 8 + g;
        if (col >= p.cols) continue;
        float* const to = pass.gathered + (blockIdx.y * p.cols + col) * Rank;
#pragma unroll
        for (int n = 0; n < rank_tiles; ++n) {
          *reinterpret_cast<float2*>(to + n * 8 + 2 * t) =
              make_float2(gathered[m][n][2 * half], gathered[m][n][2 * half + 1]);
        }
      }
    }
  }
}

using Kernel = void (*)(Pass);

template <int Rank, bool Bf16>
Kernel kernel_for(const Skinny& p) {
  const bool gathers = p.gathered.data != nullptr;
  if (p.projected.data != nullptr)
    return gathers ? skinny_kernel<Rank, Bf16, true, true, false> : skinny_kernel<Rank, Bf16, true, false, false>;
  return gathers ? skinny_kernel<Rank, Bf16, false, true, true> : skinny_kernel<Rank, Bf16, false, false, true>;
}

template <int Rank>
std::pair<Kernel, int> variant(const Skinny& p) {
  return {p.type == LK_BF16 ? kernel_for<Rank, true>(p) : kernel_for<Rank, false>(p), tile_rows<Rank>};
}

}  // namespace

bool skinny_fits(const Cuda& cuda, lk_dtype type, int64_t rank) {
  return cuda.capability() >= 80 && type != LK_F32 && rank <= skinny_rank;
}

void skinny(Cuda& cuda, const Skinny& p) {
  const int64_t rank = p.rank <= 16 ? 16 : 32;
  const auto [kernel, tile] = rank == 16 ? variant<16>(p) : variant<32>(p);
  // Two blocks for each multiprocessor, all at once; with two tiles at least, so that the next one loads meanwhile.
  const int64_t slabs = ceil_div(p.cols, slab);
  const int64_t wanted = std::max<int64_t>(int64_t{cuda.device().multiProcessorCount} * 2 / slabs, 1);
  Pass pass{};
  pass.p = p;
  pass.span = ceil_div(ceil_div(p.rows, std::min(wanted, ceil_div(p.rows, int64_t{tile} * 2))), tile) * tile;
  const int64_t row_blocks = ceil_div(p.rows, pass.span);
  const auto whole = [&](const void* data) {
    return p.cols % vector_width == 0 && reinterpret_cast<uintptr_t>(data) % 16 == 0;
  };
  pass.vector_a = whole(p.a.data);
  pass.vector_spread = whole(p.spread.data);
  PartialSum sums[2];
  int count = 0;
  if (p.projected.data != nullptr) {
    pass.projected = cuda.scratch<float>(slabs * p.rows * rank);
    PartialSum& sum = sums[count++];
    sum.partial = pass.projected;
    sum.count = slabs;
    sum.stride = p.rows * rank;
    sum.rows = p.rows;
    sum.mask = p.mask;
    sum.out = p.projected;
  }
  if (p.gathered.data != nullptr) {
    pass.gathered = cuda.scratch<float>(row_blocks * p.cols * rank);
    PartialSum& sum = sums[count++];
    sum.partial = pass.gathered;
    sum.count = row_blocks;
    sum.stride = p.cols * rank;
    sum.rows = p.cols;
    sum.out = p.gathered;
    sum.transposed = p.gathered_transposed;
    sum.add = p.add;
  }
  cuda.launch(kernel, dim3(static_cast<unsigned>(slabs), static_cast<unsigned>(row_blocks)), dim3(threads), 0, pass);
  for (PartialSum& sum : sums) {
    sum.pitch = rank;
    sum.cols = p.rank;
    sum.alpha = p.alpha;
  }
  if (count > 0) sum_partials(cuda, sums[0], sums[1]);
}

}  // namespace lk::cuda
