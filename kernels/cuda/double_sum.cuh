// Sums in float64 in an order that depends on the shapes alone: each block adds one run of fixed length, and one block
// adds what those found.
#pragma once

#include "cuda/types.cuh"

namespace lk::cuda {

// By every thread of a block of block_threads; `shared` has one element for each warp. Every thread gets the sum.
__device__ inline double block_sum(double v, double* shared) {
  constexpr int warps = block_threads / 32;
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) v += __shfl_xor_sync(0xffffffffu, v, offset);
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = v;
  __syncthreads();
  double sum = 0;
#pragma unroll
  for (int i = 0; i < warps; ++i) sum += shared[i];
  return sum;
}

__device__ inline double block_sum_of(const double* values, int64_t count, double* shared) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += block_threads) sum += values[i];
  return block_sum(sum, shared);
}

}  // namespace lk::cuda
