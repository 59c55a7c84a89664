// c [m, n] = the sum of op(a) op(b) over a batch, of any types and layouts, in float32: a block has a tile of c and a
// part of the steps of the sum, of which those of one matrix follow those of the one before.
#include <algorithm>

#include "cuda/await_previous.cuh"
#include "cuda/matmul_ways.h"
#include "cuda/tile.cuh"

namespace lk::cuda {

namespace {

constexpr int depth = 16;  // steps that are staged at once

// Step i of row r of an operand is element r * of_row + i % k * of_step of matrix i / k.
struct Steps {
  In data;
  int64_t rows, of_row, of_step, stride;
};

__device__ inline void stage(const Steps& p, int64_t k, int64_t first_row, int64_t begin, int64_t end, TileRow* to) {
  for (int i = static_cast<int>(threadIdx.x); i < depth * tile; i += tile_threads) {
    const bool along = p.of_step == 1;  // neighbouring threads read neighbouring elements
    const int step = along ? i % depth : i / tile, row = along ? i / depth : i % tile;
    const int64_t at = begin + step;
    const bool inside = at < end && first_row + row < p.rows;
    to[step][row] = inside ? load(p.data, at / k * p.stride + (first_row + row) * p.of_row + at % k * p.of_step) : 0.0f;
  }
}

__global__ void __launch_bounds__(tile_threads)
    summed_wide_kernel(Steps a, Steps b, int64_t k, int64_t steps, int64_t span, int64_t across, float* partial) {
  await_previous();
  __shared__ __align__(16) TileRow left[depth];
  __shared__ __align__(16) TileRow right[depth];
  const int64_t first_row = blockIdx.x / across * tile, first_col = blockIdx.x % across * tile;
  const int64_t first = int64_t{blockIdx.y} * span, end = min(first + span, steps);
  float sum[4][4] = {};
  for (int64_t begin = first; begin < end; begin += depth) {
    stage(a, k, first_row, begin, end, left);
    stage(b, k, first_col, begin, end, right);
    __syncthreads();
    multiply_tile(left, right, depth, sum);
    __syncthreads();
  }
  float* const to = partial + int64_t{blockIdx.y} * a.rows * b.rows;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int64_t row = first_row + tile_row() + i, col = first_col + tile_column() + j;
      if (row < a.rows && col < b.rows) to[row * b.rows + col] = sum[i][j];
    }
  }
}

}  // namespace

void matmul_summed_wide(Cuda& cuda, const BatchedProduct& p) {
  const Steps a = {p.a, p.m, p.transpose_a ? 1 : p.k, p.transpose_a ? p.m : 1, p.stride_a};
  const Steps b = {p.b, p.n, p.transpose_b ? p.k : 1, p.transpose_b ? 1 : p.n, p.stride_b};
  const int64_t steps = p.batch * p.k, across = ceil_div(p.n, tile), of_c = ceil_div(p.m, tile) * across;
  const int64_t wanted = std::max<int64_t>(int64_t{cuda.device().multiProcessorCount} * 2 / of_c, 1);
  const int64_t span = ceil_div(steps, std::min(wanted, ceil_div(steps, 4 * depth)));
  const int64_t parts = ceil_div(steps, span);
  float* const partial = cuda.scratch<float>(parts * p.m * p.n);
  cuda.launch(summed_wide_kernel, dim3(static_cast<unsigned>(of_c), static_cast<unsigned>(parts)), dim3(tile_threads),
              0, a, b, p.k, steps, span, across, partial);
  sum_matrices(cuda, partial, parts, p);
}

}  // namespace lk::cuda
