// a w of some rows and a part of the columns, by a block of skinny_through.cu. Its warps share out the rows, 16 each,
// and where there are few of them the columns too. w comes a slice at a time, the next one while a slice is multiplied.
#pragma once

#include "cuda/hopper.cuh"
#include "cuda/skinny.h"
#include "cuda/skinny_slice.cuh"

namespace lk::cuda::skinny {

constexpr int tile_rows = 16;
constexpr int step_cols = 64;           // a warp reads 128 bytes of each of its rows at a time
constexpr int slice_bytes = 16 * 1024;  // of w or v, in shared memory
constexpr int most_parts = 8;

// Which operands are read and written in pieces of 16 bytes: width and address allow it.
struct Whole {
  bool a, w, v, spread;
};

struct Pass {
  Through p;
  Whole whole;
  int row_groups;  // of 16 rows; warps / row_groups warps share a group's columns
  int row_blocks;  // of row_groups
  int parts;       // of a's columns
  int pieces;      // of what is spread
  int adders;      // blocks that share the sums of a row block's parts
  int64_t part_cols, spread_cols;
  float* partial;  // [parts, rows, Rank]
};

// What a warp has on its way: chunk c of 8 columns lies in place c ^ (row % 8).
using Stage = uint16_t[tile_rows][step_cols];

// In shared memory. The sums of warps follow on the stages; of w there are two slices, each half as large where memory
// is short and what is left is as wide as a step.
template <int Rank, int Stages>
struct Projecting {
  static constexpr int slice = (Stages > 2 || Rank > 32 ? slice_bytes : slice_bytes / 2) / 2;
  union {
    alignas(128) Stage stages[warps][Stages];
    alignas(128) float sums[warps * tile_rows * Rank];
  };
  alignas(128) uint16_t w[2][slice];
};

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

// Into pass.partial, by all threads.
template <int Rank, bool Bf16, bool ByRank, int Stages>
__device__ inline void project(const Pass& pass, Projecting<Rank, Stages>& memory) {
  constexpr int slice = Projecting<Rank, Stages>::slice / Rank;
  const Through& p = pass.p;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32, g = lane / 4, t = lane % 4;
  const int group = warp % pass.row_groups, share = warp / pass.row_groups, shares = warps / pass.row_groups;
  const int64_t block_row = int64_t{blockIdx.x} * pass.row_groups * tile_rows,
                first_row = block_row + group * tile_rows;
  Stage(&stages)[Stages] = memory.stages[warp];

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
  coming.store(memory.w[0]);
  __syncthreads();
  float sum[Rank / 8][4] = {};
  unsigned turn = 0, buffer = 0;
  for (int first = 0; first < cols; first += slice, buffer ^= 1) {
    const bool more = first + slice < cols;
    if (more) load(first + slice);
    const uint16_t* const w = memory.w[buffer];
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
    coming.store(memory.w[buffer ^ 1]);
    __syncthreads();
  }

  // Over the warps that share a group's columns, in order.
  wait_copies<0>();
  __syncthreads();
  auto* const sums = reinterpret_cast<float(*)[tile_rows][Rank]>(memory.sums);
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
      const float4 more = *reinterpret_cast<const float4*>(memory.sums + j * count + i);
      v.x += more.x, v.y += more.y, v.z += more.z, v.w += more.w;
    }
    *reinterpret_cast<float4*>(to + i) = v;
  }
}

}  // namespace lk::cuda::skinny
