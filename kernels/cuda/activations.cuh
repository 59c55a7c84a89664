// The activations that gate a product (gated_activation.cu) and that unary.cu has among its functions: value, slope,
// and both from what they share. `Math` says how the exponential and the quotient are computed.
#pragma once

namespace lk::cuda {

constexpr float gelu_c = 0.797884560802865356f;  // sqrt(2 / pi)
constexpr float gelu_k = 0.044715f;

// Within a few units of the last place of float32: the accurate functions of the CUDA library.
struct Accurate {
  __device__ static float exponential(float x) { return expf(x); }
  __device__ static float inverse(float x) { return 1.0f / x; }
};

// Some 1e-6 off, for results that are stored in 16 bits: with the others a kernel takes longer to compute than to read
// and to write.
struct Short {
  __device__ static float exponential(float x) { return __expf(x); }
  __device__ static float inverse(float x) { return __fdividef(1.0f, x); }
};

template <class Math = Accurate>
__device__ inline float sigmoid(float x) {
  return Math::inverse(1.0f + Math::exponential(-x));
}

// s = sigmoid(u) and s' = s (1 - s) without the cancellation of 1 - s: both from e^-|u|.
template <class Math>
struct LogisticBy {
  float s, slope;
  __device__ explicit LogisticBy(float u) {
    const float t = Math::exponential(-fabsf(u)), r = Math::inverse(1.0f + t);
    s = u < 0.0f ? t * r : r;
    slope = t * r * r;
  }
};
using Logistic = LogisticBy<Accurate>;

struct ValueAndSlope {
  float value, slope;
};

// Its value is that of both() to the bit: fused with the product that it gates, it changes nothing.
struct Sigmoid {
  __device__ float value(float x) const { return sigmoid(x); }
  __device__ float slope(float x) const { return Logistic(x).slope; }
  __device__ ValueAndSlope both(float x) const { return {value(x), slope(x)}; }
};

template <class Math>
struct SiluBy {
  __device__ float value(float x) const { return x * sigmoid<Math>(x); }
  __device__ float slope(float x) const { return both(x).slope; }
  __device__ ValueAndSlope both(float x) const {
    const LogisticBy<Math> f(x);
    return {x * f.s, f.s + x * f.slope};
  }
};
using Silu = SiluBy<Accurate>;

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

// The same for 16-bit results, some 1e-6 off: with z = |x| / sqrt(2) the smaller tail of the distribution is
// e^-zz erfcx(z) / 2, and erfcx(z) / 2 = t P(t), t = 1 / (1 + 0.45 z). P of degree 7 is the one whose largest relative
// error for 0 <= z <= 40 is smallest, 4.3e-7. Its exponential is that of the slope, too.
struct GeluErfShort {
  __device__ float value(float x) const { return x * distribution(x, density(x)); }
  __device__ float slope(float x) const { return both(x).slope; }
  __device__ ValueAndSlope both(float x) const {
    constexpr float inverse_sqrt_2pi = 0.398942280401432678f;
    const float e = density(x), cdf = distribution(x, e);
    return {x * cdf, cdf + x * inverse_sqrt_2pi * e};
  }

 private:
  __device__ static float density(float x) { return __expf(-0.5f * x * x); }  // times sqrt(2 pi)
  __device__ static float distribution(float x, float e) {
    const float t = __fdividef(1.0f, 1.0f + 0.31819806f * fabsf(x));
    float p = 0.0343792848f;
    p = p * t - 0.124376416f;
    p = p * t + 0.112227589f;
    p = p * t + 0.0125327157f;
    p = p * t + 0.0985488445f;
    p = p * t + 0.112712875f;
    p = p * t + 0.127034709f;
    p = p * t + 0.12694037f;
    const float tail = p * t * e;
    return x < 0.0f ? tail : 1.0f - tail;
  }
};

// 1/2 (1 + tanh u) = sigmoid(2u), which keeps its relative accuracy for negative u.
struct GeluTanh {
  __device__ float value(float x) const { return x * sigmoid<Accurate>(2.0f * gelu_c * (x + gelu_k * x * x * x)); }
  __device__ float slope(float x) const { return both(x).slope; }
  __device__ ValueAndSlope both(float x) const {
    const LogisticBy<Accurate> f(2.0f * gelu_c * (x + gelu_k * x * x * x));
    return {x * f.s, f.s + x * f.slope * (2.0f * gelu_c * (1.0f + 3.0f * gelu_k * x * x))};
  }
};

// The same for 16-bit results, in few instructions: it is also made beside a product (activation_beside.cuh), with the
// bits of a pass over what that stores, so the roundings are spelled out. With p = e^-2u the value
// is x / (1 + p), and the slope (1 + x 2u' p / (1 + p)) / (1 + p).
struct GeluTanhShort {
  __device__ float value(float x) const { return __fmul_rn(x, inverse(__fadd_rn(1.0f, power(x)))); }
  __device__ float slope(float x) const { return both(x).slope; }
  __device__ ValueAndSlope both(float x) const {
    // Below, the slope is nearer to 0 than 1e-34, and p would be infinite.
    const float at = x < -10.0f ? -10.0f : x, p = power(at), r = inverse(__fadd_rn(1.0f, p));
    const float grows = __fmul_rn(at, __fmaf_rn(__fmul_rn(at, at), 6.0f * gelu_c * gelu_k, 2.0f * gelu_c));
    return {value(x), __fmul_rn(r, __fmaf_rn(__fmul_rn(p, r), grows, 1.0f))};
  }

 private:
  __device__ static float power(float x) {
    constexpr float log2_e = 1.44269504088896341f, first = -2.0f * gelu_c * log2_e;
    float p = 0;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(p) : "f"(__fmul_rn(x, __fmaf_rn(__fmul_rn(x, x), first * gelu_k, first))));
    return p;
  }
  __device__ static float inverse(float x) {
    float r = 0;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
  }
};

// The form of a function for results that are stored in 16 bits, where it has one.
template <class Function>
__device__ inline Function shortened(Function f) {
  return f;
}
__device__ inline SiluBy<Short> shortened(Silu) { return {}; }
__device__ inline GeluErfShort shortened(GeluErf) { return {}; }
__device__ inline GeluTanhShort shortened(GeluTanh) { return {}; }

}  // namespace lk::cuda
