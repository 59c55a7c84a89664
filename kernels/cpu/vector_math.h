// Elementary functions in float whose loops vectorise: no branches, no calls, no tables. NaN gives NaN, infinities
// give the limits. Errors are measured in tests/kernels_test.cpp.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace lk::cpu {

// e^x = 2^n e^r, n = round(x / ln 2), |r| <= ln(2) / 2; Taylor series to r^7 (its rest is 5e-9 relative). The factor
// 2^n is applied in two halves so that results down to the subnormals and up to infinity come out of the product.
inline float exp_float(float x) {
  constexpr float log2e = 1.44269504088896341f, ln2_high = 0.693359375f, ln2_low = -2.12194440054690583e-4f;
  constexpr float rounder = 12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
  x = x > 89.0f ? 89.0f : x;              // comparisons with NaN are false: NaN goes through
  x = x < -104.0f ? -104.0f : x;
  const float shifted = x * log2e + rounder;
  const float n = shifted - rounder;
  const float r = (x - n * ln2_high) - n * ln2_low;
  float p = 1.0f / 5040.0f;
  p = p * r + 1.0f / 720.0f;
  p = p * r + 1.0f / 120.0f;
  p = p * r + 1.0f / 24.0f;
  p = p * r + 1.0f / 6.0f;
  p = p * r + 0.5f;
  p = (p * r * r + r) + 1.0f;
  const int32_t exponent = static_cast<int32_t>(std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(rounder));
  const int32_t half = exponent >> 1;
  const float first = std::bit_cast<float>(static_cast<uint32_t>(half + 127) << 23);
  const float second = std::bit_cast<float>(static_cast<uint32_t>(exponent - half + 127) << 23);
  return p * first * second;
}

inline float sigmoid_float(float x) { return 1.0f / (1.0f + exp_float(-x)); }

// Near zero x + x^3 P(x^2), a Chebyshev fit on |x| <= 0.625 (4e-8); elsewhere 1 - 2 / (e^2|x| + 1).
inline float tanh_float(float x) {
  const float a = std::fabs(x), u = x * x;
  float p = -0.006096852388f;
  p = p * u + 0.02099727398f;
  p = p * u - 0.05385092959f;
  p = p * u + 0.1333276987f;
  p = p * u - 0.3333332895f;
  const float small = a + a * u * p;
  const float large = 1.0f - 2.0f / (exp_float(2.0f * a) + 1.0f);
  return std::copysign(a < 0.625f ? small : large, x);
}

// Standard normal distribution function 1/2 erfc(-x / sqrt 2). For z = |x| / sqrt 2, erfc(z) = e^(-z^2) t P(t) with
// t = 1 / (1 + 0.4 z), P a Chebyshev fit for z <= 10 (5e-9 relative), beyond which the result is zero in float.
inline float normal_cdf_float(float x) {
  const float z = std::fabs(x) * 0.707106781186547524f;
  const float t = 1.0f / (1.0f + 0.4f * z);
  float p = -0.03350112687f;
  p = p * t + 0.2187853561f;
  p = p * t - 0.5465026178f;
  p = p * t + 0.6093421803f;
  p = p * t - 0.3343118762f;
  p = p * t + 0.2979731946f;
  p = p * t + 0.1210599825f;
  p = p * t + 0.216689386f;
  p = p * t + 0.2247486653f;
  p = p * t + 0.2257168574f;
  const float tail = 0.5f * exp_float(-0.5f * x * x) * t * p;
  return x > 0.0f ? 1.0f - tail : tail;
}

}  // namespace lk::cpu
