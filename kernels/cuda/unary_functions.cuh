// The functions of lk_unary as small functors: value and slope. Also compiled at run time, for pointwise.cu.
#pragma once

#include "cuda/activations.cuh"

namespace lk::cuda {

struct GeluQuick {
  __device__ float value(float x) const { return x * sigmoid(1.702f * x); }
  __device__ float slope(float x) const {
    const Logistic f(1.702f * x);
    return f.s + 1.702f * x * f.slope;
  }
};

struct Tanh {
  __device__ float value(float x) const { return tanhf(x); }
  __device__ float slope(float x) const { return 4.0f * Logistic(2.0f * x).slope; }  // 1 - tanh^2, no cancellation
};

struct Relu {
  __device__ float value(float x) const { return x < 0.0f ? 0.0f : x; }
  __device__ float slope(float x) const { return x > 0.0f ? 1.0f : x != x ? x : 0.0f; }
};

struct Exp {
  __device__ float value(float x) const { return expf(x); }
  __device__ float slope(float x) const { return expf(x); }
};

struct Sqrt {
  __device__ float value(float x) const { return sqrtf(x); }
  __device__ float slope(float x) const { return 0.5f / sqrtf(x); }
};

struct Rsqrt {
  __device__ float value(float x) const { return 1.0f / sqrtf(x); }
  __device__ float slope(float x) const { return -0.5f / (x * sqrtf(x)); }
};

struct Abs {
  __device__ float value(float x) const { return fabsf(x); }
  __device__ float slope(float x) const { return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x; }
};

struct Sign {
  __device__ float value(float x) const { return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x; }
  __device__ float slope(float) const { return 0.0f; }
};

struct Square {
  __device__ float value(float x) const { return x * x; }
  __device__ float slope(float x) const { return 2.0f * x; }
};

struct Affine {
  float a, b;
  __device__ float value(float x) const { return a * x + b; }
  __device__ float slope(float) const { return a; }
};

struct Clamp {
  float a, b;
  __device__ float value(float x) const {
    const float low = x < a ? a : x;
    return low > b ? b : low;
  }
  __device__ float slope(float x) const { return x >= a && x <= b ? 1.0f : 0.0f; }
};

struct Sin {
  __device__ float value(float x) const { return sinf(x); }
  __device__ float slope(float x) const { return cosf(x); }
};

struct Cos {
  __device__ float value(float x) const { return cosf(x); }
  __device__ float slope(float x) const { return -sinf(x); }
};

struct Log {
  __device__ float value(float x) const { return logf(x); }
  __device__ float slope(float x) const { return 1.0f / x; }
};

struct Floor {
  __device__ float value(float x) const { return floorf(x); }
  __device__ float slope(float) const { return 0.0f; }
};

struct Ceil {
  __device__ float value(float x) const { return ceilf(x); }
  __device__ float slope(float) const { return 0.0f; }
};

struct Round {
  __device__ float value(float x) const { return rintf(x); }
  __device__ float slope(float) const { return 0.0f; }
};

}  // namespace lk::cuda
