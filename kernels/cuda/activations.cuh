// The activations that gate a product (gated_activation.cu) and that unary.cu has among its functions: value, slope,
// and both from what they share. The accurate functions of the CUDA library, not the fast ones.
#pragma once

namespace lk::cuda {

constexpr float gelu_c = 0.797884560802865356f;  // sqrt(2 / pi)
constexpr float gelu_k = 0.044715f;

__device__ inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// s = sigmoid(u) and s' = s (1 - s) without the cancellation of 1 - s: both from e^-|u|.
struct Logistic {
  float s, slope;
  __device__ explicit Logistic(float u) {
    const float t = expf(-fabsf(u)), r = 1.0f / (1.0f + t);
    s = u < 0.0f ? t * r : r;
    slope = t * r * r;
  }
};

struct ValueAndSlope {
  float value, slope;
};

struct Silu {
  __device__ float value(float x) const { return x * sigmoid(x); }
  __device__ float slope(float x) const { return both(x).slope; }
  __device__ ValueAndSlope both(float x) const {
    const Logistic f(x);
    return {x * f.s, f.s + x * f.slope};
  }
};

// x times the normal distribution function, which keeps its relative accuracy for negative x.
struct GeluErf {
  __device__ float value(float x) const { return x * normcdff(x); }
  __device__ float slope(float x) const { return both(x).slope; }
  __device__ ValueAndSlope both(float x) const {
    constexpr float inverse_sqrt_2pi = 0.398942280401432678f;
    const float cdf = normcdff(x);
    return {x * cdf, cdf + x * inverse_sqrt_2pi * expf(-0.5f * x * x)};
  }
};

// 1/2 (1 + tanh u) = sigmoid(2u), which keeps its relative accuracy for negative u.
struct GeluTanh {
  __device__ float value(float x) const { return x * sigmoid(2.0f * gelu_c * (x + gelu_k * x * x * x)); }
  __device__ float slope(float x) const { return both(x).slope; }
  __device__ ValueAndSlope both(float x) const {
    const Logistic f(2.0f * gelu_c * (x + gelu_k * x * x * x));
    return {x * f.s, f.s + x * f.slope * (2.0f * gelu_c * (1.0f + 3.0f * gelu_k * x * x))};
  }
};

}  // namespace lk::cuda
