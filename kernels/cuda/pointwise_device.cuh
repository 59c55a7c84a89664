// What compiled programs (pointwise_source.h) are made of: storage types, chunks of 8 elements, and arithmetic that no
// compiler may contract across operations. Compiled at run time only.
#pragma once

#include "cuda/pointwise_arguments.h"
#include "cuda/unary_functions.cuh"
#include "round_stochastic.h"

namespace lk::cuda {

struct F32 {
  using Word = float;
  __device__ static float widen(float w) { return w; }
  __device__ static float narrow(float v) { return v; }
};

struct F16 {
  using Word = uint16_t;
  __device__ static float widen(uint16_t w) {
    float v;
    asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(w));
    return v;
  }
  __device__ static uint16_t narrow(float v) {
    uint16_t w;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(w) : "f"(v));
    return w;
  }
};

struct BF16 {
  using Word = uint16_t;
  __device__ static float widen(uint16_t w) { return __uint_as_float(uint32_t{w} << 16); }
  __device__ static uint16_t narrow(float v) {
#if __CUDA_ARCH__ >= 800
    uint16_t w;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(w) : "f"(v));
    return w;
#else
    const uint32_t bits = __float_as_uint(v);
    return static_cast<uint16_t>(v != v ? 0x7fffu : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
#endif
  }
};

// Conversions to integers saturate, NaN becomes 0.
struct I32 {
  using Word = int32_t;
  __device__ static float widen(int32_t w) { return static_cast<float>(w); }
  __device__ static int32_t narrow(float v) { return __float2int_rn(v); }
};

struct U8 {
  using Word = uint8_t;
  __device__ static float widen(uint8_t w) { return static_cast<float>(w); }
  __device__ static uint8_t narrow(float v) { return static_cast<uint8_t>(min(max(__float2int_rn(v), 0), 255)); }
};

// Eight elements as they lie in memory: one access of up to 16 bytes, or two.
template <class Word>
struct alignas(sizeof(Word) == 1 ? 8 : 16) Pack {
  Word words[8];
};

// Elements i .. i + length - 1, 0 behind them; `whole`: 8 of them, aligned.
template <class Storage, bool whole>
__device__ inline void load(const void* data, int64_t i, int length, float (&v)[8]) {
  using Word = typename Storage::Word;
  const Word* const from = static_cast<const Word*>(data) + i;
  if constexpr (whole) {
    const Pack<Word> pack = *reinterpret_cast<const Pack<Word>*>(from);
#pragma unroll
    for (int k = 0; k < 8; ++k) v[k] = Storage::widen(pack.words[k]);
  } else {
#pragma unroll
    for (int k = 0; k < 8; ++k) v[k] = k < length ? Storage::widen(from[k]) : 0.0f;
  }
}

template <class Storage>
__device__ inline float load_one(const void* data, int64_t i) {
  return Storage::widen(static_cast<const typename Storage::Word*>(data)[i]);
}

template <class Storage, bool whole>
__device__ inline void store(void* data, int64_t i, int length, const float (&v)[8]) {
  using Word = typename Storage::Word;
  Word* const to = static_cast<Word*>(data) + i;
  if constexpr (whole) {
    Pack<Word> pack;
#pragma unroll
    for (int k = 0; k < 8; ++k) pack.words[k] = Storage::narrow(v[k]);
    *reinterpret_cast<Pack<Word>*>(to) = pack;
  } else {
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      if (k < length) to[k] = Storage::narrow(v[k]);
    }
  }
}

// Where an input that is repeated along some of `rank` axes has element i of the loop.
template <class Index, int rank>
__device__ inline int64_t place(const PointwiseArguments& a, int input, int64_t i) {
  Index rest = static_cast<Index>(i);
  int64_t at = 0;
#pragma unroll
  for (int axis = rank - 1; axis > 0; --axis) {
    const Index dim = static_cast<Index>(a.dims[axis]), next = rest / dim;
    at += static_cast<int64_t>(rest - next * dim) * a.strides[input][axis];
    rest = next;
  }
  return at + static_cast<int64_t>(rest) * a.strides[input][0];
}

// A result that ends in a product could be drawn into the sum that reads it; alone it is rounded. Nor may the compiler
// know better: `zero` comes with the arguments.
__device__ inline float rounded(float v, uint32_t zero) { return __uint_as_float(__float_as_uint(v) ^ zero); }

struct Whole {
  static constexpr bool value = true;
};
struct Partial {
  static constexpr bool value = false;
};

}  // namespace lk::cuda
