// What the backward passes of attention with the matrix instructions of capability 9.0 share.
#pragma once

#include "cuda/attention.cuh"
#include "cuda/hopper.cuh"
#include "cuda/matrix_instructions.cuh"
#include "cuda/tensor_map.h"

namespace lk::cuda {

// sum_d(do o) of a row of a head, by width / 8 neighbouring lanes. `at`: of the row in o and do.
template <class T, int width>
__device__ inline float delta_of_row(const void* o, int64_t o_at, const void* d_o, int64_t d_o_at, bool there) {
  const int part = static_cast<int>(threadIdx.x) % (width / 8);
  float sum = 0;
  if (there) {
    const uint4 a = *reinterpret_cast<const uint4*>(static_cast<const T*>(o) + o_at + part * 8);
    const uint4 b = *reinterpret_cast<const uint4*>(static_cast<const T*>(d_o) + d_o_at + part * 8);
    const auto* const x = reinterpret_cast<const T*>(&a);
    const auto* const y = reinterpret_cast<const T*>(&b);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum = fmaf(static_cast<float>(x[i]), static_cast<float>(y[i]), sum);
  }
#pragma unroll
  for (int offset = 1; offset < width / 8; offset *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  return sum;
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// A row of a warpgroup's result [64, 2 * count], times scale: the upper (half 0) or lower one of the lane's two.
template <class T, int count>
__device__ inline void store_row(const float (&v)[count], int half, float scale, T* to, bool there) {
#pragma unroll
  for (int part = 0; part < count / 16; ++part) {
    uint32_t packed[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int i = (part * 4 + j) * 4 + half * 2;
      packed[j] = hopper::Multiply<T>::pack(v[i] * scale, v[i + 1] * scale);
    }
    const uint4 chunk = transposed(packed);
    if (there) *reinterpret_cast<uint4*>(to + (part * 4 + lane_now() % 4) * 8) = chunk;
  }
}

#endif

// False, and why these kernels do not take a call.
inline bool pass_over(const Cuda& cuda, const char* why) { return cuda.passes_over("own kernel of 9.0", why); }

// Whether a backward pass of heads of `width` takes the call: 16-bit numbers, heads in lines, as many heads of k as of
// q, and every key seen unless they may be unseen. While measuring, addresses mean nothing: operands count as aligned.
bool suits_hopper(const Cuda& cuda, const lk_attention_backward_params& p, int64_t width, bool keys_may_be_unseen);

}  // namespace lk::cuda
