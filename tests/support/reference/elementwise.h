// Float64 references of elementwise operations.
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>

#include "lora_kernels.h"
#include "support/reference/tensor.h"

namespace lh::test::reference {

// In forms that keep their relative accuracy for negative x.
inline double unary(lk_unary_kind kind, double a, double b, double x) {
  switch (kind) {
    case LK_SILU: return x / (1 + std::exp(-x));
    case LK_GELU_ERF: return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
    case LK_GELU_TANH: return x / (1 + std::exp(-2 * std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case LK_GELU_QUICK: return x / (1 + std::exp(-1.702 * x));
    case LK_SIGMOID: return 1 / (1 + std::exp(-x));
    case LK_TANH: return std::tanh(x);
    case LK_RELU: return std::max(x, 0.0);
    case LK_EXP: return std::exp(x);
    case LK_SQRT: return std::sqrt(x);
    case LK_RSQRT: return 1 / std::sqrt(x);
    case LK_ABS: return std::fabs(x);
    case LK_SIGN: return x > 0 ? 1 : x < 0 ? -1 : 0;
    case LK_SQUARE: return x * x;
    case LK_AFFINE: return a * x + b;
    case LK_CLAMP: return std::clamp(x, a, b);
    case LK_SIN: return std::sin(x);
    case LK_COS: return std::cos(x);
    case LK_LOG: return std::log(x);
    case LK_FLOOR: return std::floor(x);
    case LK_CEIL: return std::ceil(x);
    default: return std::nearbyint(x);
  }
}

inline Values unary(lk_unary_kind kind, double a, double b, const Values& x) {
  Values y;
  for (const double v : x) y.push_back(unary(kind, a, b, v));
  return y;
}

inline double binary(lk_binary_kind kind, double a, double b) {
  switch (kind) {
    case LK_ADD: return a + b;
    case LK_SUB: return a - b;
    case LK_MUL: return a * b;
    case LK_DIV: return a / b;
    case LK_MAX: return std::max(a, b);
    case LK_MIN: return std::min(a, b);
    case LK_GREATER_EQUAL: return a >= b ? 1 : 0;
    case LK_EQUAL: return a == b ? 1 : 0;
    case LK_LESS: return a < b ? 1 : 0;
    case LK_LESS_EQUAL: return a <= b ? 1 : 0;
    default: return a > b ? 1 : 0;
  }
}

inline Values binary(lk_binary_kind kind, const Dims& a_dims, const Values& a, const Dims& b_dims, const Values& b) {
  Values y;
  each_index(broadcast(a_dims, b_dims),
             [&](const Dims& i) { y.push_back(binary(kind, a[place_of(a_dims, i)], b[place_of(b_dims, i)])); });
  return y;
}

// x + gate z, for x and z [images, length, channels] and gate [images, channels].
inline Values gated_residual(const Dims& dims, const Values& x, const Values& gate, const Values& z) {
  Values y;
  each_index(dims, [&](const Dims& i) {
    const size_t at = place_of(dims, i);
    y.push_back(x[at] + gate[i[0] * dims[2] + i[2]] * z[at]);
  });
  return y;
}

// act(a) b
inline Values gated_activation(lk_unary_kind kind, const Values& a, const Values& b) {
  Values y = unary(kind, 0, 0, a);
  for (size_t i = 0; i < y.size(); ++i) y[i] *= b[i];
  return y;
}

}  // namespace lh::test::reference
