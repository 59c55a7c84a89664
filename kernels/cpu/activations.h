// The activations that gate a product (gated_activation.cpp) and that unary.cpp has among its functions: value, slope,
// and both from what they share.
#pragma once

#include <cmath>

#include "cpu/vector_math.h"

namespace lk::cpu {

constexpr float gelu_c = 0.797884560802865356f;  // sqrt(2 / pi)
constexpr float gelu_k = 0.044715f;

// s = sigmoid(u) and s' = s (1 - s) without the cancellation of 1 - s: both from e^-|u|.
struct Logistic {
  float s, slope;
  explicit Logistic(float u) {
    const float t = exp_float(-std::fabs(u)), r = 1.0f / (1.0f + t);
    s = u < 0.0f ? t * r : r;
    slope = t * r * r;
  }
};

struct ValueAndSlope {
  float value, slope;
};

struct Sigmoid {
  float value(float x) const { return sigmoid_float(x); }
  float slope(float x) const { return Logistic(x).slope; }
};

struct Silu {
  float value(float x) const { return x * sigmoid_float(x); }
  float slope(float x) const { return both(x).slope; }
  ValueAndSlope both(float x) const {
    const Logistic f(x);
    return {x * f.s, f.s + x * f.slope};
  }
};

struct GeluErf {
  float value(float x) const { return x * normal_cdf_float(x); }
  float slope(float x) const { return both(x).slope; }
  ValueAndSlope both(float x) const {
    constexpr float inverse_sqrt_2pi = 0.398942280401432678f;
    const float cdf = normal_cdf_float(x);
    return {x * cdf, cdf + x * inverse_sqrt_2pi * exp_float(-0.5f * x * x)};
  }
};

// 1/2 (1 + tanh u) = sigmoid(2u), which keeps its relative accuracy for negative u.
struct GeluTanh {
  float value(float x) const { return x * sigmoid_float(2.0f * gelu_c * (x + gelu_k * x * x * x)); }
  float slope(float x) const { return both(x).slope; }
  ValueAndSlope both(float x) const {
    const Logistic f(2.0f * gelu_c * (x + gelu_k * x * x * x));
    return {x * f.s, f.s + x * f.slope * (2.0f * gelu_c * (1.0f + 3.0f * gelu_k * x * x))};
  }
};

}  // namespace lk::cpu
