// A thread's share of a row as it lies in memory. Kernels are templates over the three kinds:
//   Eight16   8 values of a 16-bit type: one load, and half the registers
//   Eight     8 values of f32, f16 or bf16
//   One       1 value, where width or address forbid more
// Fetching is apart from unpacking so that a thread can have several loads on their way before it waits for one, and
// so that a row stays packed in registers until it is used.
#pragma once

#include <initializer_list>

#include "cuda/types.cuh"

namespace lk::cuda {

// Of 8, i is a multiple of 8 and the data aligned().
struct Eight16 {
  static constexpr int width = 8, registers = 4;
  uint4 packed;
  __device__ static Eight16 fetch(const In& x, int64_t i) {
    return {*reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(x.data) + i)};
  }
  __device__ void unpack(lk_dtype dtype, float (&v)[8]) const { unpack16(packed, dtype, v); }
};

struct Eight {
  static constexpr int width = 8, registers = 8;
  uint4 low, high;  // high: of f32 alone
  __device__ static Eight fetch(const In& x, int64_t i) {
    const bool wide = x.dtype == LK_F32;
    const uint4* const p = reinterpret_cast<const uint4*>(static_cast<const char*>(x.data) + i * (wide ? 4 : 2));
    return {p[0], wide ? p[1] : make_uint4(0, 0, 0, 0)};
  }
  __device__ void unpack(lk_dtype dtype, float (&v)[8]) const {
    if (dtype != LK_F32) {
      unpack16(low, dtype, v);
      return;
    }
    const uint32_t words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int k = 0; k < 8; ++k) v[k] = __uint_as_float(words[k]);
  }
};

struct One {
  static constexpr int width = 1, registers = 8;  // few loads in flight: this is not the fast path
  float value;
  __device__ static One fetch(const In& x, int64_t i) { return {load(x, i)}; }
  __device__ void unpack(lk_dtype, float (&v)[1]) const { v[0] = value; }
};

// Values i .. of a tensor that may be absent, which is `absent` everywhere.
template <int width>
__device__ inline void load_or(const In& x, int64_t i, float absent, float (&v)[width]) {
  if (x.data == nullptr) {
#pragma unroll
    for (int j = 0; j < width; ++j) v[j] = absent;
  } else if constexpr (width == 1) {
    v[0] = load(x, i);
  } else {
    load8(x, i, v);
  }
}

template <int width>
__device__ inline void put(const Out& y, int64_t i, const float (&v)[width]) {
  if constexpr (width == 1) {
    store(y, i, v[0]);
  } else {
    store8(y, i, v);
  }
}

// ((0 + 4) + (2 + 6)) + ..., in place of v[0]
template <int width>
__device__ inline float pairwise_sum(float (&v)[width]) {
#pragma unroll
  for (int half = width / 2; half > 0; half /= 2) {
#pragma unroll
    for (int j = 0; j < half; ++j) v[j] += v[j + half];
  }
  return v[0];
}

// Calls body with the kind of pack for `fetched` tensors, which become packs, and others, which are loaded or stored
// beside them; all in rows of `width`. Absent ones do not count.
template <class Body>
void with_pack(std::initializer_list<In> fetched, std::initializer_list<In> others, int64_t width, const Body& body) {
  uintptr_t addresses = 0;
  bool narrow = true;
  for (const In& x : others) addresses |= reinterpret_cast<uintptr_t>(x.data);
  for (const In& x : fetched) {
    addresses |= reinterpret_cast<uintptr_t>(x.data);
    narrow = narrow && x.dtype != LK_F32;
  }
  const bool packed = width % vector_width == 0 && addresses % 16 == 0;
  if (!packed) {
    body(One{});
  } else if (narrow) {
    body(Eight16{});
  } else {
    body(Eight{});
  }
}

}  // namespace lk::cuda
