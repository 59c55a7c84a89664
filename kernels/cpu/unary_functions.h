// The functions of lk_unary as small functors: value and slope, which the loops of unary.cpp and pointwise.cpp apply.
#pragma once

#include "cpu/activations.h"
#include "lora_kernels.h"
#include "unary_list.h"

namespace lk::cpu {

struct GeluQuick {
  float value(float x) const { return x * sigmoid_float(1.702f * x); }
  float slope(float x) const {
    const Logistic f(1.702f * x);
    return f.s + 1.702f * x * f.slope;
  }
};

struct Tanh {
  float value(float x) const { return tanh_float(x); }
  float slope(float x) const { return 4.0f * Logistic(2.0f * x).slope; }  // 1 - tanh^2, without cancellation
};

struct Relu {
  float value(float x) const { return x < 0.0f ? 0.0f : x; }
  float slope(float x) const { return x > 0.0f ? 1.0f : x != x ? x : 0.0f; }
};

struct Exp {
  float value(float x) const { return exp_float(x); }
  float slope(float x) const { return exp_float(x); }
};

struct Sqrt {
  float value(float x) const { return std::sqrt(x); }
  float slope(float x) const { return 0.5f / std::sqrt(x); }
};

struct Rsqrt {
  float value(float x) const { return 1.0f / std::sqrt(x); }
  float slope(float x) const { return -0.5f / (x * std::sqrt(x)); }
};

struct Abs {
  float value(float x) const { return std::fabs(x); }
  float slope(float x) const { return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x; }
};

struct Sign {
  float value(float x) const { return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x; }
  float slope(float) const { return 0.0f; }
};

struct Square {
  float value(float x) const { return x * x; }
  float slope(float x) const { return 2.0f * x; }
};

struct Affine {
  float a, b;
  float value(float x) const { return a * x + b; }
  float slope(float) const { return a; }
};

struct Clamp {
  float a, b;
  float value(float x) const {
    const float low = x < a ? a : x;
    return low > b ? b : low;
  }
  float slope(float x) const { return x >= a && x <= b ? 1.0f : 0.0f; }
};

struct Sin {
  float value(float x) const { return std::sin(x); }
  float slope(float x) const { return std::cos(x); }
};

struct Cos {
  float value(float x) const { return std::cos(x); }
  float slope(float x) const { return -std::sin(x); }
};

struct Log {
  float value(float x) const { return std::log(x); }
  float slope(float x) const { return 1.0f / x; }
};

struct Floor {
  float value(float x) const { return std::floor(x); }
  float slope(float) const { return 0.0f; }
};

struct Ceil {
  float value(float x) const { return std::ceil(x); }
  float slope(float) const { return 0.0f; }
};

struct Round {
  float value(float x) const { return std::nearbyint(x); }
  float slope(float) const { return 0.0f; }
};

template <class Apply>
void with_function(lk_unary_kind kind, float a, float b, const Apply& apply) {
  switch (kind) {
#define LK_CASE(which, functor) \
  case which: return apply(functor);
    LK_FOR_EACH_UNARY(LK_CASE)
#undef LK_CASE
    default: return;  // arguments were checked
  }
}

}  // namespace lk::cpu
