// A 64 x 64 tile of a matrix product in float32: 256 threads of 4 x 4 elements each, operands in shared memory.
//
// Both operands lie with the summed index outside, [k][row], so that a thread reads its four rows in one access. The
// pitch keeps those reads aligned to 16 bytes and lets the threads of a warp store 32 rows without bank conflicts.
#pragma once

namespace lk::cuda {

constexpr int tile = 64, tile_pitch = tile + 4, tile_threads = 256;

using TileRow = float[tile_pitch];

// Thread t has rows 4 (t / 16) .. + 3 and columns 4 (t % 16) .. + 3 of the tile.
__device__ inline int tile_row() { return static_cast<int>(threadIdx.x) / 16 * 4; }
__device__ inline int tile_column() { return static_cast<int>(threadIdx.x) % 16 * 4; }

// The sixteen products of four floats at `a` and four at `b`, both aligned to 16 bytes, added to sum[.][first ...].
template <int Columns>
__device__ inline void add_products(const float* a, const float* b, float (&sum)[4][Columns], int first) {
  const float4 x = *reinterpret_cast<const float4*>(a), y = *reinterpret_cast<const float4*>(b);
  const float left[4] = {x.x, x.y, x.z, x.w}, right[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) sum[i][first + j] = fmaf(left[i], right[j], sum[i][first + j]);
  }
}

// sum += a^T b over `depth` staged steps.
__device__ inline void multiply_tile(const TileRow* a, const TileRow* b, int depth, float (&sum)[4][4]) {
#pragma unroll 8
  for (int k = 0; k < depth; ++k) add_products(&a[k][tile_row()], &b[k][tile_column()], sum, 0);
}

}  // namespace lk::cuda
