// Small float formats, element by element, round to nearest even.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace lh {

inline float float_from_bf16(uint16_t v) { return std::bit_cast<float>(static_cast<uint32_t>(v) << 16); }

inline uint16_t bf16_from_float(float f) {
  const auto bits = std::bit_cast<uint32_t>(f);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);  // quiet NaN
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// Value of a float with `exponent_bits` and `mantissa_bits`, without infinities when `finite`.
template <int exponent_bits, int mantissa_bits, bool finite>
float float_from_small(uint32_t v) {
  constexpr int bias = (1 << (exponent_bits - 1)) - 1;
  constexpr uint32_t exponent_mask = (1u << exponent_bits) - 1, mantissa_mask = (1u << mantissa_bits) - 1;
  const uint32_t exponent = (v >> mantissa_bits) & exponent_mask, mantissa = v & mantissa_mask;
  const float sign = (v >> (exponent_bits + mantissa_bits)) != 0 ? -1.0f : 1.0f;
  if (exponent == exponent_mask) {
    if constexpr (finite) {
      if (mantissa == mantissa_mask) return std::numeric_limits<float>::quiet_NaN();
    } else {
      return mantissa == 0 ? sign * std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
    }
  }
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), 1 - bias - mantissa_bits);
  return sign * std::ldexp(static_cast<float>(mantissa | (1u << mantissa_bits)),
                           static_cast<int>(exponent) - bias - mantissa_bits);
}

template <int exponent_bits, int mantissa_bits, bool finite>
uint32_t small_from_float(float f) {
  constexpr int bias = (1 << (exponent_bits - 1)) - 1;
  constexpr uint32_t exponent_mask = (1u << exponent_bits) - 1, mantissa_mask = (1u << mantissa_bits) - 1;
  constexpr uint32_t largest = finite ? (exponent_mask << mantissa_bits) | (mantissa_mask - 1)
                                      : ((exponent_mask - 1) << mantissa_bits) | mantissa_mask;
  const uint32_t sign = std::signbit(f) ? 1u << (exponent_bits + mantissa_bits) : 0u;
  if (std::isnan(f)) return sign | (exponent_mask << mantissa_bits) | mantissa_mask;
  const float magnitude = std::fabs(f);
  if (std::isinf(f)) return finite ? sign | (exponent_mask << mantissa_bits) | mantissa_mask : sign | (largest + 1);
  if (magnitude == 0.0f) return sign;
  int exponent = std::ilogb(magnitude);
  if (exponent < 1 - bias) exponent = 1 - bias;
  // The quotient is exact in float, and nearbyint rounds halves to even.
  const float steps = std::nearbyint(std::ldexp(magnitude, mantissa_bits - exponent));
  const auto mantissa = static_cast<uint32_t>(steps);
  const uint32_t code = mantissa + (static_cast<uint32_t>(exponent + bias - 1) << mantissa_bits);
  // Above the largest: infinity, or NaN where there is none (as the casts of PyTorch do).
  if (code > largest) return finite ? sign | (exponent_mask << mantissa_bits) | mantissa_mask : sign | (largest + 1);
  return sign | code;
}

inline float float_from_f16(uint16_t v) { return float_from_small<5, 10, false>(v); }
inline uint16_t f16_from_float(float f) { return static_cast<uint16_t>(small_from_float<5, 10, false>(f)); }
inline float float_from_e4m3(uint8_t v) { return float_from_small<4, 3, true>(v); }
inline uint8_t e4m3_from_float(float f) { return static_cast<uint8_t>(small_from_float<4, 3, true>(f)); }
inline float float_from_e5m2(uint8_t v) { return float_from_small<5, 2, false>(v); }
inline uint8_t e5m2_from_float(float f) { return static_cast<uint8_t>(small_from_float<5, 2, false>(f)); }

// The same as e4m3_from_float for magnitudes below 464, which round to 448 at most, without branches: the compiler
// makes vector code of loops over it. 464 and above, infinity and NaN have no defined result.
inline uint8_t e4m3_from_bounded(float f) {
  constexpr uint32_t smallest_normal = 0x3c800000u;  // 2^-6
  constexpr float subnormal_shift = 16384.0f;        // a float of this size has steps of 2^-9, as the subnormals have
  const auto bits = std::bit_cast<uint32_t>(f);
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t normal = ((magnitude + 0x7ffffu + ((magnitude >> 20) & 1u)) >> 20) - ((127u - 7u) << 3);
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + subnormal_shift) -
                             std::bit_cast<uint32_t>(subnormal_shift);
  return static_cast<uint8_t>((bits >> 24 & 0x80u) | (magnitude < smallest_normal ? subnormal : normal));
}

}  // namespace lh
