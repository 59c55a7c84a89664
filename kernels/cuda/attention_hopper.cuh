// What the passes of attention with the matrix instructions of capability 9.0 share.
#pragma once

#include <initializer_list>

#include "cuda/attention.cuh"
#include "cuda/attention_order.cuh"
#include "cuda/hopper.cuh"
#include "cuda/matrix_instructions.cuh"
#include "cuda/pointwise_arguments.h"
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

// Of an item that begins in one block and ends in another: all of the `count` threads that multiply, which are those
// from number 128 on, tell in the block's counter that what they made is in memory, wait for another's, and forget it.
template <int count>
__device__ inline void tell_end(uint32_t* ended) {
  __threadfence();
  hopper::barrier_among<1, count>();
  if (threadIdx.x == 128) hopper::add_release(ended);
}
__device__ inline void await_end(const uint32_t* ended) {
  while (hopper::load_acquire(ended) == 0) __nanosleep(20);
}
template <int count>
__device__ inline void forget_end(uint32_t* ended) {
  hopper::barrier_among<1, count>();  // all have seen it
  if (threadIdx.x == 128) *ended = 0;
}

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

// Whether kernels for heads of `width` take the call: 16-bit numbers, heads in lines, as many heads of k as of q, and
// every key seen unless they may be unseen.
template <class Params>
bool suits_hopper(const Cuda& cuda, const Params& p, int64_t width, bool keys_may_be_unseen,
                  std::initializer_list<const lk_tensor*> tensors) {
  if (p.q.dims[3] != width) return false;  // the other one's
  if (cuda.capability() != 90) return pass_over(cuda, "capability is not 9.0");
  if (!keys_may_be_unseen && (present(p.key_lengths) || present(p.key_mask)))
    return pass_over(cuda, "keys that are not seen");
  const char* const why = not_plain(cuda, p, tensors);
  return why == nullptr || pass_over(cuda, why);
}

// Whether blocks can share out so many tiles and tell each other, by a counter each, of the items that they cut.
inline bool can_share_out(const Cuda& cuda, int64_t tiles) {
  if (tiles == 0) return pass_over(cuda, "nothing to attend to");
  if (tiles > most_tiles || cuda.device().multiProcessorCount > pointwise_arrivals)
    return pass_over(cuda, "too many tiles");
  return true;
}

// x as boxes of so many rows of a head.
template <int width>
CUtensorMap head_rows(const lk_tensor& x, int rows) {
  const Spacing spacing = spacing_of(x);
  return tensor_map<4>(
      x.data, x.dtype,
      {.dims = {width, static_cast<cuuint64_t>(x.dims[2]), static_cast<cuuint64_t>(x.dims[1]),
                static_cast<cuuint64_t>(x.dims[0])},
       .pitches = {width * 2, static_cast<cuuint64_t>(spacing.row) * 2, static_cast<cuuint64_t>(spacing.item) * 2},
       .box = {width, 1, static_cast<cuuint32_t>(rows), 1}});
}

}  // namespace lk::cuda
