// The warps of lora_clusters.cu that make dup, dx and ddown.
#pragma once

#include "cuda/lora_clusters.cuh"

namespace lk::cuda {

#if __CUDA_ARCH__ >= 900

// sum [16 columns, Rank] for each unit: a^T z over 16 rows, of a's columns from `col` on. Where a lane's numbers lie is
// looked up once.
template <int Rank, int Units, bool Bf16>
struct TransposedProduct {
  static constexpr int z_log = log_of_box(Rank);
  int log, of_a[Units], of_z[Rank / 16];
  uint32_t left[Units][4], right[Rank / 16][4];  // right: rows 0-7 and 8-15 of 8 ranks, then of the next 8
  __device__ TransposedProduct(int rows, int log_of_a, int col) : log(log_of_a) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    // transposed: matrices 0 and 1 are the columns 0-7 and 8-15 of rows 0-7, 2 and 3 of rows 8-15
    const Tile a{nullptr, rows, log}, z{nullptr, rows, z_log};
#pragma unroll
    for (int u = 0; u < Units; ++u) of_a[u] = a.place(lane / 16 * 8 + lane % 8, col + u * 16 + lane / 8 % 2 * 8);
#pragma unroll
    for (int n = 0; n < Rank / 16; ++n) of_z[n] = z.place(lane % 16, n * 16 + lane / 16 * 8);
  }
  __device__ void load(const uint16_t* a, const uint16_t* z, int row) {
#pragma unroll
    for (int n = 0; n < Rank / 16; ++n) load_matrices<true>(right[n], z + (row << z_log) + of_z[n]);
#pragma unroll
    for (int u = 0; u < Units; ++u) load_matrices<true>(left[u], a + (row << log) + of_a[u]);
  }
  __device__ void multiply(float (&sum)[Units][Rank / 8][4]) const {
#pragma unroll
    for (int u = 0; u < Units; ++u) {
#pragma unroll
      for (int n = 0; n < Rank / 16; ++n) {
        const uint32_t b[2][2] = {{right[n][0], right[n][1]}, {right[n][2], right[n][3]}};
        multiply_add<Bf16>(sum[u][2 * n], left[u], b[0]);
        multiply_add<Bf16>(sum[u][2 * n + 1], left[u], b[1]);
      }
    }
  }
};

// Adds up what groups of warps have of the same columns: of the first, which alone goes on.
template <int id, int Rank, int Units>
__device__ inline bool join_groups(float (&sum)[Units][Rank / 8][4], float* joined, int warp, int warps, int groups) {
  if (groups == 1) return true;
  constexpr int count = Units * Rank / 8;
  const int lane = static_cast<int>(threadIdx.x) % 32, of_group = warps / groups;
  float4* const own = reinterpret_cast<float4*>(joined) + (warp % of_group * count) * 32 + lane;
  const int next = of_group * count * 32;
  if (warp >= of_group) {
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const float(&v)[4] = sum[i / (Rank / 8)][i % (Rank / 8)];
      own[(warp / of_group - 1) * next + i * 32] = make_float4(v[0], v[1], v[2], v[3]);
    }
  }
  hopper::barrier_among<id>(warps * 32);
  if (warp >= of_group) return false;
  for (int group = 1; group < groups; ++group) {
#pragma unroll
    for (int i = 0; i < count; ++i) {
      float(&v)[4] = sum[i / (Rank / 8)][i % (Rank / 8)];
      const float4 more = own[(group - 1) * next + i * 32];
      v[0] += more.x, v[1] += more.y, v[2] += more.z, v[3] += more.w;
    }
  }
  return true;
}

// The cluster's share of a gradient [cols, rank], or [rank, cols], or all of it.
template <int Rank, int Units>
__device__ inline void end_gradient(const Problem& p, const Share& share, float (&sum)[Units][Rank / 8][4], int warp,
                                    int first_col, int end_col, int cols, float scale, const Out& to, bool transposed) {
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
  if (p.row_clusters > 1) {
    constexpr int count = Units * Rank / 8;
    const int slice = (share.block * p.column_clusters + share.column_cluster) * (p.dup_warps + p.x_warps) + warp;
    float4* const all = p.partial + int64_t{slice} * p.row_clusters * count * 32 + lane;
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const float(&v)[4] = sum[i / (Rank / 8)][i % (Rank / 8)];
      __stcg(all + (share.row_cluster * count + i) * 32, make_float4(v[0], v[1], v[2], v[3]));
    }
    __threadfence();
    __syncwarp();
    uint32_t before = 0;
    if (lane == 0) before = atomicAdd(p.ended + slice, 1u);
    before = __shfl_sync(0xffffffffu, before, 0);
    if (before + 1 != static_cast<uint32_t>(p.row_clusters)) return;
    if (lane == 0) p.ended[slice] = 0;
    __threadfence();
#pragma unroll
    for (int i = 0; i < count; ++i) {
      float4 total = make_float4(0, 0, 0, 0);
#pragma unroll 8
      for (int k = 0; k < p.row_clusters; ++k) {
        const float4 v = __ldcg(all + (k * count + i) * 32);
        total.x += v.x, total.y += v.y, total.z += v.z, total.w += v.w;
      }
      float(&v)[4] = sum[i / (Rank / 8)][i % (Rank / 8)];
      v[0] = total.x, v[1] = total.y, v[2] = total.z, v[3] = total.w;
    }
  }
#pragma unroll
  for (int u = 0; u < Units; ++u) {
#pragma unroll
    for (int n = 0; n < Rank / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int col = first_col + u * 16 + e / 2 * 8 + g, j = n * 8 + 2 * t + e % 2;
        if (col >= end_col || j >= p.rank) continue;
        const int64_t at = transposed ? int64_t{j} * cols + col : int64_t{col} * p.rank + j;
        float v = scale * sum[u][n][e];
        if (p.add) v += load({to.data, to.dtype}, at);
        store(to, at, v);
      }
    }
  }
}

template <int Rank, int Units, bool Bf16>
__device__ inline void make_dup(const Problem& p, const Share& share, const Places& places, Barriers& barriers,
                                int thread) {
  const int warp = thread / 32, lane = thread % 32, log = log_of_box(p.dy_cols);
  const int own_col = (warp * p.column_clusters + share.column_cluster) * Units * 16;
  TransposedProduct<Rank, Units, Bf16> step(p.tile_rows, log, own_col);
  hopper::cluster_has_begun();
  float sum[Units][Rank / 8][4] = {};
  Turn stage(p.dy_stages);
  for (int tile = 0; tile < share.tiles; ++tile, stage.next()) {
    hopper::barrier_wait(&barriers.dy_full[stage.stage], stage.parity);
    const int rows = own_col < p.dy_cols ? share.rows_of(p, tile) : 0;
    const uint16_t* const dy = places.dy + stage.stage * p.tile_rows * p.dy_cols;
    const uint16_t* const s = places.s + stage.stage * p.tile_rows * Rank;
    for (int row = 0; row < rows; row += 16) {
      step.load(dy, s, row);
      step.multiply(sum);
    }
    __syncwarp();
    if (lane == 0) hopper::barrier_arrive(&barriers.dy_empty[stage.stage]);
  }
  __syncwarp();
  hopper::cluster_begins();
  const int first_col = share.block * p.dy_cols;
  end_gradient<Rank, Units>(p, share, sum, warp, first_col + own_col, min(first_col + p.dy_cols, p.out), p.out, p.scale,
                            p.dup, false);
}

template <int Rank, int Units, bool Bf16>
__device__ inline void take_x(const Problem& p, const Share& share, const Places& places, Barriers& barriers,
                              int thread) {
  // Column g of tile i is column tiles (g / 2) 2 + 2 i + g % 2 of a span, so a lane's sums are neighbours of a row.
  constexpr int tiles = Units % 2 == 0 ? 4 : 2, spans = Units * 2 / tiles;
  const int warp = thread / 32, lane = thread % 32, g = lane / 4, t = lane % 4;
  const int of_group = p.x_warps / p.x_groups, group = warp / of_group, log = log_of_box(p.x_cols);
  const int first_col = (share.block * p.column_clusters + share.column_cluster) * p.x_cols;
  const int in_slice = warp % of_group * Units * 16, own_col = first_col + in_slice;
  const int end_col = min(first_col + p.x_cols, p.in);
  const bool wants_dx = p.dx != nullptr;

  uint32_t down[spans][Rank / 16][tiles][2];
#pragma unroll
  for (int s = 0; s < spans; ++s) {
#pragma unroll
    for (int k = 0; k < Rank / 16; ++k) {
#pragma unroll
      for (int i = 0; i < tiles; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int col = own_col + s * tiles * 8 + g / 2 * tiles * 2 + 2 * i + g % 2, j = k * 16 + half * 8 + 2 * t;
          const auto at = [&](int r) {
            return wants_dx && col < p.in && r < p.rank ? p.down[int64_t{r} * p.in + col] : 0.0f;
          };
          down[s][k][i][half] = pack<Bf16>(at(j), at(j + 1));
        }
      }
    }
  }
  hopper::cluster_has_begun();

  TransposedProduct<Rank, Units, Bf16> step(p.tile_rows, log, in_slice);  // ds along its rows lies in the same places
  float ddown[Units][Rank / 8][4] = {};
  Turn stage(p.x_stages), turn(p.turns);
  for (int tile = 0; tile < share.tiles; ++tile, stage.next(), turn.next()) {
    hopper::barrier_wait(&barriers.x_full[stage.stage], stage.parity);
    hopper::barrier_wait(&barriers.ds[turn.stage], turn.parity);
    const uint16_t* const x = places.x + stage.stage * p.tile_rows * p.x_cols;
    const uint16_t* const ds = places.ds + turn.stage * p.tile_rows * Rank;
    const int first_row = share.begin + tile * p.tile_rows, rows = share.rows_of(p, tile);
    for (int row = group * 16; row < rows; row += p.x_groups * 16) {
      uint32_t left[Rank / 16][4];
#pragma unroll
      for (int k = 0; k < Rank / 16; ++k) load_matrices<false>(left[k], ds + row * Rank + step.of_z[k]);
      step.load(x, ds, row);
      step.multiply(ddown);
      if (wants_dx) {
#pragma unroll
        for (int s = 0; s < spans; ++s) {
          float v[tiles][4] = {};
#pragma unroll
          for (int k = 0; k < Rank / 16; ++k) {
#pragma unroll
            for (int i = 0; i < tiles; ++i) multiply_add<Bf16>(v[i], left[k], down[s][k][i]);
          }
          const int col = own_col + s * tiles * 8 + t * tiles * 2;
          if (col >= end_col) continue;
          const int64_t at = int64_t{first_row + row + g} * p.in + col;
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            if (first_row + row + half * 8 + g >= share.end) continue;
            using Line = std::conditional_t<tiles == 4, uint4, uint2>;
            union {
              Line line;
              uint32_t words[tiles];
            } to;
            if (p.added != nullptr) {
              to.line = *reinterpret_cast<const Line*>(p.added + at + half * 8 * int64_t{p.in});
#pragma unroll
              for (int i = 0; i < tiles; ++i) {
                const float2 more = unpack<Bf16>(to.words[i]);
                v[i][2 * half] += more.x, v[i][2 * half + 1] += more.y;
              }
            }
#pragma unroll
            for (int i = 0; i < tiles; ++i) to.words[i] = pack<Bf16>(v[i][2 * half], v[i][2 * half + 1]);
            *reinterpret_cast<Line*>(p.dx + at + half * 8 * int64_t{p.in}) = to.line;
          }
        }
      }
    }
    __syncwarp();
    if (lane == 0) {
      hopper::barrier_arrive(&barriers.used[turn.stage]);
      hopper::barrier_arrive(&barriers.x_empty[stage.stage]);
    }
  }
  __syncwarp();
  hopper::cluster_begins();
  if (!join_groups<3, Rank, Units>(ddown, places.joined, warp, p.x_warps, p.x_groups)) return;
  end_gradient<Rank, Units>(p, share, ddown, p.dup_warps + warp, own_col, end_col, p.in, 1.0f, p.ddown, true);
}

#endif

}  // namespace lk::cuda
