// Storage formats, element by element, round to nearest even. Written with selects instead of branches so that loops
// over them vectorise.
//
// A small float with M mantissa bits and exponent bias b widens by moving its exponent and mantissa bits to those of
// a float and multiplying by 2^(127 - b), which is exact and turns subnormals into normal numbers by itself. To narrow,
// normal numbers are rounded in the integer bits; subnormals by adding the power of two whose last place is the
// subnormal step.
#pragma once

#include <bit>
#include <cstdint>

namespace lk {

inline float power_of_two(int exponent) { return std::bit_cast<float>(static_cast<uint32_t>(exponent + 127) << 23); }

// `finite`: all exponent and mantissa bits set is the NaN and there is no infinity.
template <int exponent_bits, int mantissa_bits, bool finite>
struct SmallFloat {
  static constexpr int bias = (1 << (exponent_bits - 1)) - 1;
  static constexpr uint32_t magnitude_mask = (1u << (exponent_bits + mantissa_bits)) - 1;
  static constexpr uint32_t infinity = ((1u << exponent_bits) - 1) << mantissa_bits;  // NaN region where not finite
  static constexpr uint32_t nan = finite ? magnitude_mask : infinity | (1u << (mantissa_bits - 1));
  static constexpr uint32_t largest = finite ? magnitude_mask - 1 : infinity - 1;

  static float widen(uint32_t v) {
    const uint32_t magnitude = v & magnitude_mask;
    const uint32_t sign = (v >> (exponent_bits + mantissa_bits)) << 31;
    const float value = std::bit_cast<float>(magnitude << (23 - mantissa_bits)) * power_of_two(127 - bias);
    uint32_t bits = std::bit_cast<uint32_t>(value);
    if constexpr (finite) {
      bits = magnitude == magnitude_mask ? 0x7fc00000u : bits;
    } else {
      bits = magnitude >= infinity ? 0x7f800000u | (magnitude << (23 - mantissa_bits)) : bits;
    }
    return std::bit_cast<float>(bits | sign);
  }

  static uint32_t narrow(float f) {
    const uint32_t bits = std::bit_cast<uint32_t>(f), magnitude = bits & 0x7fffffffu;
    const uint32_t sign = (bits >> 31) << (exponent_bits + mantissa_bits);
    const uint32_t odd = (magnitude >> (23 - mantissa_bits)) & 1u;
    const uint32_t rounded = magnitude + ((1u << (22 - mantissa_bits)) - 1) + odd;
    const uint32_t normal = (rounded >> (23 - mantissa_bits)) - (static_cast<uint32_t>(127 - bias) << mantissa_bits);
    const float step = power_of_two(1 - bias - mantissa_bits + 23);
    const uint32_t subnormal =
        std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + step) - std::bit_cast<uint32_t>(step);
    uint32_t code = magnitude < (static_cast<uint32_t>(128 - bias) << 23) ? subnormal : normal;
    // Above the largest: infinity, or NaN where there is none.
    code = magnitude >= 0x7f800000u || code > largest ? (finite ? nan : infinity) : code;
    code = magnitude > 0x7f800000u ? nan : code;
    return code | sign;
  }
};

using Float16 = SmallFloat<5, 10, false>;
using FloatE4M3 = SmallFloat<4, 3, true>;
using FloatE5M2 = SmallFloat<5, 2, false>;

struct BFloat16 {
  static float widen(uint32_t v) { return std::bit_cast<float>(v << 16); }
  static uint32_t narrow(float f) {
    const uint32_t bits = std::bit_cast<uint32_t>(f);
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return (bits & 0x7fffffffu) > 0x7f800000u ? (bits >> 16) | 0x40u : rounded;
  }
};

struct Integer8 {
  static float widen(int8_t v) { return v; }
};

}  // namespace lk
