// Arithmetic of i32 tensors, element by element, the same on every backend. Results wrap modulo 2^32.
#pragma once

#include <cstdint>

#include "lora_kernels.h"

#ifdef __CUDACC__
#define LK_HOST_DEVICE __host__ __device__
#else
#define LK_HOST_DEVICE
#endif

namespace lk {

LK_HOST_DEVICE inline int32_t wrapped(uint32_t value) { return static_cast<int32_t>(value); }
LK_HOST_DEVICE inline uint32_t bits(int32_t value) { return static_cast<uint32_t>(value); }

// Those of the unary kinds that have a meaning for integers; a and b are whole numbers.
inline bool integer_unary_kind(lk_unary_kind kind) {
  return kind == LK_RELU || kind == LK_ABS || kind == LK_SIGN || kind == LK_SQUARE || kind == LK_AFFINE ||
         kind == LK_CLAMP;
}

LK_HOST_DEVICE inline int32_t integer_unary(lk_unary_kind kind, int32_t a, int32_t b, int32_t x) {
  switch (kind) {
    case LK_RELU: return x > 0 ? x : 0;
    case LK_ABS: return x < 0 ? wrapped(0u - bits(x)) : x;
    case LK_SIGN: return (x > 0) - (x < 0);
    case LK_SQUARE: return wrapped(bits(x) * bits(x));
    case LK_AFFINE: return wrapped(bits(a) * bits(x) + bits(b));
    default: {
      const int32_t low = x < a ? a : x;
      return low > b ? b : low;
    }
  }
}

inline bool comparison(lk_binary_kind kind) { return kind >= LK_GREATER_EQUAL; }

LK_HOST_DEVICE inline int32_t integer_binary(lk_binary_kind kind, int32_t a, int32_t b) {
  switch (kind) {
    case LK_ADD: return wrapped(bits(a) + bits(b));
    case LK_SUB: return wrapped(bits(a) - bits(b));
    case LK_MUL: return wrapped(bits(a) * bits(b));
    case LK_MAX: return a > b ? a : b;
    case LK_MIN: return a < b ? a : b;
    case LK_GREATER_EQUAL: return a >= b;
    case LK_EQUAL: return a == b;
    case LK_LESS: return a < b;
    case LK_LESS_EQUAL: return a <= b;
    default: return a > b;
  }
}

}  // namespace lk
