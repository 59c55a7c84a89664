// Small float formats, element by element, round to nearest even.
#pragma once

#include <bit>
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
  constexpr int bias = (1 << (exponent_bits - 1)) - 1, shift = 23 - mantissa_bits;
  constexpr uint32_t sign_bit = 1u << (exponent_bits + mantissa_bits), first_normal = 1u << mantissa_bits;
  constexpr uint32_t infinity = ((1u << exponent_bits) - 1) << mantissa_bits;  // that of IEEE 754
  constexpr float smallest = std::bit_cast<float>(static_cast<uint32_t>(128 - bias - mantissa_bits) << 23);
  const uint32_t sign = (v & sign_bit) != 0 ? 0x80000000u : 0u, magnitude = v & (sign_bit - 1);
  if (finite ? magnitude == sign_bit - 1 : magnitude > infinity) return std::numeric_limits<float>::quiet_NaN();
  uint32_t bits = (magnitude << shift) + (static_cast<uint32_t>(127 - bias) << 23);
  if (!finite && magnitude == infinity) bits = 0x7f800000u;
  if (magnitude < first_normal) bits = std::bit_cast<uint32_t>(static_cast<float>(magnitude) * smallest);
  return std::bit_cast<float>(bits | sign);
}

template <int exponent_bits, int mantissa_bits, bool finite>
uint32_t small_from_float(float f) {
  constexpr int bias = (1 << (exponent_bits - 1)) - 1, shift = 23 - mantissa_bits;
  constexpr uint32_t sign_bit = 1u << (exponent_bits + mantissa_bits), all_ones = sign_bit - 1;
  constexpr uint32_t infinity = ((1u << exponent_bits) - 1) << mantissa_bits;
  constexpr uint32_t first_normal = static_cast<uint32_t>(128 - bias) << 23;
  // Floats of this size have the steps of the subnormals: the sum is rounded to them.
  constexpr float subnormal_shift = std::bit_cast<float>(static_cast<uint32_t>(128 - bias + shift) << 23);
  const auto bits = std::bit_cast<uint32_t>(f);
  const uint32_t sign = (bits >> 31) != 0 ? sign_bit : 0u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | all_ones;
  if (magnitude < first_normal)
    return sign | (std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + subnormal_shift) -
                   std::bit_cast<uint32_t>(subnormal_shift));
  const uint32_t rounded = magnitude + ((1u << (shift - 1)) - 1) + ((magnitude >> shift) & 1u);
  const uint32_t code = (rounded >> shift) - (static_cast<uint32_t>(127 - bias) << mantissa_bits);
  // Above the largest: infinity, or NaN where there is none (as the casts of PyTorch do).
  constexpr uint32_t above = finite ? all_ones : infinity;
  return sign | (code < above ? code : above);
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
