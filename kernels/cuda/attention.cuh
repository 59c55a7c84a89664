// What attention's kernels with matrix instructions share, of any capability.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "cuda/attention.h"

namespace lk::cuda {

constexpr float log2_e = 1.4426950408889634f;

// Why kernels for 16-bit numbers, ungrouped heads in lines and plain scores do not take a call, or nullptr. While
// measuring, addresses mean nothing: operands count as aligned.
template <class Params>
const char* not_plain(const Cuda& cuda, const Params& p, std::initializer_list<const lk_tensor*> tensors) {
  if (p.k.dims[2] != p.q.dims[2]) return "grouped heads";
  if (p.q.dtype != LK_BF16 && p.q.dtype != LK_F16) return "neither bf16 nor f16";
  if (present(p.bias) || p.soft_cap != 0.0f || p.causal != 0) return "bias, soft_cap or causal";
  for (const lk_tensor* t : tensors) {
    if (t->dtype != p.q.dtype) return "mixed types";
    if (!heads_in_lines(*t)) return "heads not in lines";
    if (!cuda.measuring() && reinterpret_cast<uintptr_t>(t->data) % 16 != 0) return "not aligned to 16 bytes";
  }
  return nullptr;
}

// To the first row of head number `head` of all items, of heads of `width` numbers.
template <int width>
__device__ int64_t head_at(const Spacing& at, int head, int heads) {
  return int64_t{head / heads} * at.item + int64_t{head % heads} * width;
}

__device__ inline float exp2_fast(float x) {
  float y = 0;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Over the four lanes that share rows of a result of matrix instructions.
__device__ inline float quad_sum(float v) {
  v += __shfl_xor_sync(0xffffffffu, v, 1);
  return v + __shfl_xor_sync(0xffffffffu, v, 2);
}
__device__ inline float quad_max(float v) {
  v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 1));
  return fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 2));
}

// The lane, asked anew: what follows from it is not kept in registers from before.
__device__ inline int lane_now() {
  int lane = 0;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}

// A packed pair of each of four neighbouring lanes, for each of four columns of pairs: the lane gets those of its own.
__device__ inline uint4 transposed(const uint32_t (&v)[4]) {
  const int own = lane_now() % 4;
  uint32_t out[4];
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    const int other = own ^ step;
    uint32_t sent = v[0];
#pragma unroll
    for (int i = 1; i < 4; ++i) sent = other == i ? v[i] : sent;
    const uint32_t got = __shfl_xor_sync(0xffffffffu, sent, step);
#pragma unroll
    for (int i = 0; i < 4; ++i) out[i] = other == i ? got : out[i];
  }
  return make_uint4(out[0], out[1], out[2], out[3]);
}

}  // namespace lk::cuda
