// Weights in fewer bits, in float64: what codes and factors mean, and what values should become. Made from the papers'
// rules (docs/quantisation.md), not from the tables of the library.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>

#include "support/reference/tensor.h"

namespace lh::test::reference {

// The quantile of the standard normal distribution, by halving: 80 steps from [0, 10] are below 1e-23.
inline double normal_quantile(double probability) {
  double low = -10, high = 10;
  for (int i = 0; i < 80; ++i) {
    const double middle = (low + high) / 2;
    (std::erfc(-middle / std::sqrt(2.0)) / 2 < probability ? low : high) = middle;
  }
  return low;
}

// QLoRA, section 3 and its appendix: quantiles at even distances between a half and 1 - (1/32 + 1/30) / 2, 8 above zero
// and 7 below, with zero, divided by the largest.
inline Values make_nf4_levels() {
  const double top = 1 - (1.0 / 32 + 1.0 / 30) / 2;
  Values levels{0};
  for (int i = 0; i < 8; ++i) levels.push_back(normal_quantile(top + (0.5 - top) * i / 8));
  for (int i = 0; i < 7; ++i) levels.push_back(-normal_quantile(top + (0.5 - top) * i / 7));
  std::ranges::sort(levels);
  const double largest = levels.back();
  for (double& level : levels) level /= largest;
  return levels;
}

// Dettmers et al. 2022: the signed "dynamic" map of 256 values.
inline Values make_dynamic_map() {
  Values map{0, 1};
  for (int i = 0; i < 7; ++i)
    for (int k = 0; k < 1 << i; ++k) {
      const double value = std::pow(10.0, i - 6) * (0.1 + 0.9 * (k + 0.5) / (1 << i));
      map.insert(map.end(), {value, -value});
    }
  std::ranges::sort(map);
  return map;
}

inline const Values& nf4_levels() {
  static const Values levels = make_nf4_levels();
  return levels;
}

inline const Values& dynamic_map() {
  static const Values map = make_dynamic_map();
  return map;
}

inline size_t nearest(const Values& ascending, double x) {
  size_t best = 0;
  for (size_t i = 1; i < ascending.size(); ++i)
    if (std::fabs(ascending[i] - x) < std::fabs(ascending[best] - x)) best = i;
  return best;
}

// A matrix [rows, cols] in nf4, its blocks numbered row by row.
struct Nf4 {
  int64_t rows, cols;

  int64_t row_blocks() const { return (cols + 63) / 64; }
  int64_t blocks() const { return rows * row_blocks(); }
  int64_t block_of(int64_t row, int64_t col) const { return row * row_blocks() + col / 64; }
  int64_t code_bytes() const { return rows * ((cols + 1) / 2); }
  int64_t scale_bytes() const { return 4 * (1 + (blocks() + 255) / 256) + blocks(); }

  int code(std::span<const std::byte> codes, int64_t row, int64_t col) const {
    const auto both = static_cast<unsigned>(codes[static_cast<size_t>(row * ((cols + 1) / 2) + col / 2)]);
    return static_cast<int>(col % 2 == 0 ? both >> 4 : both & 15);
  }
  static double number(std::span<const std::byte> scale, int64_t index) {
    float value;
    std::memcpy(&value, scale.data() + 4 * index, 4);
    return static_cast<double>(value);
  }
  // The factors of all blocks, from what is kept of them.
  Values factors(std::span<const std::byte> scale) const {
    const Values& map = dynamic_map();
    const int64_t groups = (blocks() + 255) / 256;
    Values all;
    for (int64_t b = 0; b < blocks(); ++b) {
      const auto at = static_cast<size_t>(scale[static_cast<size_t>(4 * (1 + groups) + b)]);
      all.push_back(number(scale, 0) + map[at] * number(scale, 1 + b / 256));
    }
    return all;
  }
  Values values(std::span<const std::byte> codes, std::span<const std::byte> scale) const {
    const Values &levels = nf4_levels(), kept = factors(scale);
    Values all;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c)
        all.push_back(levels[static_cast<size_t>(code(codes, r, c))] * kept[static_cast<size_t>(block_of(r, c))]);
    return all;
  }
};

// The value of an e4m3 code ("fn": no infinity).
inline double e4m3(unsigned code) {
  const unsigned exponent = code >> 3 & 15, mantissa = code & 7;
  if ((code & 0x7f) == 0x7f) return NAN;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, static_cast<int>(exponent) - 10);
  return code & 0x80 ? -magnitude : magnitude;
}

// Codes of one byte each, times one factor or one for each row.
template <class Value>
Values scaled_rows(int64_t rows, std::span<const std::byte> codes, std::span<const float> factors, const Value& value) {
  const size_t width = codes.size() / static_cast<size_t>(rows);
  Values all;
  for (size_t i = 0; i < codes.size(); ++i)
    all.push_back(value(static_cast<unsigned>(codes[i])) *
                  (factors.empty() ? 1.0 : static_cast<double>(factors[factors.size() == 1 ? 0 : i / width])));
  return all;
}

inline double int8(unsigned code) { return code < 128 ? code : static_cast<double>(code) - 256; }

}  // namespace lh::test::reference
