// Sums over lanes, a warp and a block of threads; every thread gets the result. The order is fixed.
#pragma once

namespace lk::cuda {

// Over so many neighbours, a power of two.
template <int lanes>
__device__ inline float lanes_sum(float v) {
#pragma unroll
  for (int offset = lanes / 2; offset > 0; offset /= 2) v += __shfl_xor_sync(0xffffffffu, v, offset);
  return v;
}

__device__ inline float warp_sum(float v) { return lanes_sum<32>(v); }

__device__ inline float warp_max(float v) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, offset));
  return v;
}

// blockDim.x is a multiple of 32, at most 1024. `shared` has 32 floats and may be used again at once.
__device__ inline float block_sum(float v, float* shared) {
  v = warp_sum(v);
  const int warps = static_cast<int>(blockDim.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  __syncthreads();
  if (lane == 0) shared[threadIdx.x / 32] = v;
  __syncthreads();
  return warp_sum(lane < warps ? shared[lane] : 0.0f);
}

__device__ inline float block_max(float v, float* shared) {
  v = warp_max(v);
  const int warps = static_cast<int>(blockDim.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  __syncthreads();
  if (lane == 0) shared[threadIdx.x / 32] = v;
  __syncthreads();
  return warp_max(lane < warps ? shared[lane] : -INFINITY);
}

}  // namespace lk::cuda
