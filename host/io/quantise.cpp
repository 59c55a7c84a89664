#include "io/quantise.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/float_formats.h"
#include "core/parallel.h"

namespace lh {
namespace {

constexpr int64_t elements_of_a_thread = 1 << 18;  // fewer are not worth starting one

int64_t rows_of_a_thread(size_t width) {
  return elements_of_a_thread / std::max<int64_t>(static_cast<int64_t>(width), 1) + 1;
}

// Magnitudes in the order of their bits: infinities and NaN are above everything else.
float largest_magnitude(std::span<const float> values) {
  uint32_t largest = 0;
  for (const float v : values) largest = std::max(largest, std::bit_cast<uint32_t>(v) & 0x7fffffffu);
  return std::bit_cast<float>(largest);
}

// Below 2^22 in magnitude; halves to even.
std::byte rounded_to_int8(float value) {
  constexpr float steps_of_one = 12582912.0f;  // 1.5 * 2^23: a float of this size has no fraction
  return static_cast<std::byte>(std::bit_cast<uint32_t>(value + steps_of_one) & 0xffu);
}

void quantise_row(DType dtype, std::span<const float> values, std::byte* codes, float& factor) {
  // A factor that is no normal number would have no finite inverse. Rows that small become zeros or nearly so.
  factor =
      std::max(largest_magnitude(values) / (dtype == DType::i8 ? 127.0f : 448.0f), std::numeric_limits<float>::min());
  const float inverse = 1 / factor;
  if (dtype == DType::i8)
    for (size_t i = 0; i < values.size(); ++i) codes[i] = rounded_to_int8(values[i] * inverse);
  else
    for (size_t i = 0; i < values.size(); ++i) codes[i] = std::byte{e4m3_from_bounded(values[i] * inverse)};
}

// ---- nf4

constexpr size_t block = LK_NF4_BLOCK, group = 256;
constexpr uint8_t zero_level = 7;

// Where the parts of a scale are.
struct Nf4Parts {
  std::byte *offset, *ranges, *codes;
  Nf4Parts(std::span<std::byte> scale, size_t blocks)
      : offset(scale.data()),
        ranges(offset + sizeof(float)),
        codes(ranges + (blocks + group - 1) / group * sizeof(float)) {}
};

void put(std::byte* to, float value) { std::memcpy(to, &value, sizeof value); }

// The values of the 8-bit map, and by exact middles the nearest of them; halfway between two the one nearer zero.
class FactorMap {
 public:
  FactorMap() : values_(lk_blockwise_values(1), 256) {
    for (size_t i = 0; i < middles_.size(); ++i)
      middles_[i] = (static_cast<double>(values_[i]) + static_cast<double>(values_[i + 1])) / 2;
  }
  uint8_t code(float value) const {
    const auto below = value < 0 ? std::ranges::upper_bound(middles_, static_cast<double>(value))
                                 : std::ranges::lower_bound(middles_, static_cast<double>(value));
    return static_cast<uint8_t>(below - middles_.begin());
  }
  float value(uint8_t code) const { return values_[code]; }

 private:
  std::span<const float> values_;
  std::array<double, 255> middles_;
};

// Rounds the factors of all blocks; they become what is kept of them.
void quantise_factors(std::span<float> factors, std::span<std::byte> scale) {
  const Nf4Parts parts(scale, factors.size());
  double sum = 0;
  for (const float f : factors) sum += static_cast<double>(f);
  const auto offset = static_cast<float>(sum / static_cast<double>(factors.size()));
  put(parts.offset, offset);
  const FactorMap map;
  for (size_t first = 0; first < factors.size(); first += group) {
    const std::span<float> own = factors.subspan(first, std::min(group, factors.size() - first));
    for (float& f : own) f -= offset;
    const float range = largest_magnitude(own);
    put(parts.ranges + first / group * sizeof(float), range);
    for (size_t i = 0; i < own.size(); ++i) {
      const uint8_t code = map.code(range > 0 ? own[i] / range : 0);
      parts.codes[first + i] = std::byte{code};
      own[i] = std::fma(map.value(code), range, offset);
    }
  }
}

// Middles between neighbouring levels: a value goes to the level above where it is above the middle.
std::array<float, 15> nf4_middles() {
  const float* const levels = lk_nf4_levels();
  std::array<float, 15> middles{};
  for (size_t i = 0; i < middles.size(); ++i)
    middles[i] = static_cast<float>((static_cast<double>(levels[i]) + static_cast<double>(levels[i + 1])) / 2);
  return middles;
}

void round_block(std::span<const float> values, float factor, const std::array<float, 15>& middles, uint8_t* codes) {
  if (factor == 0) return void(std::fill_n(codes, values.size(), zero_level));
  for (size_t i = 0; i < values.size(); ++i) {
    const float x = values[i] / factor;
    int32_t code = 0;
    for (const float middle : middles) code += x > middle ? 1 : 0;
    codes[i] = static_cast<uint8_t>(code);
  }
}

}  // namespace

void quantise_rows(DType dtype, std::span<const float> values, std::span<std::byte> codes, std::span<float> factors) {
  const size_t rows = factors.size(), width = values.size() / std::max<size_t>(rows, 1);
  in_threads(static_cast<int64_t>(rows), rows_of_a_thread(width), [=](int64_t first, int64_t end) {
    for (auto r = static_cast<size_t>(first); r < static_cast<size_t>(end); ++r)
      quantise_row(dtype, values.subspan(r * width, width), codes.data() + r * width, factors[r]);
  });
}

void quantise_nf4(std::span<const float> values, int64_t rows, std::span<std::byte> codes, std::span<std::byte> scale) {
  const auto height = static_cast<size_t>(rows);
  const size_t width = values.size() / height, row_blocks = (width + block - 1) / block, row_bytes = (width + 1) / 2;
  std::vector<float> factors(height * row_blocks);
  const auto block_of = [=](size_t r, size_t b) {
    return values.subspan(r * width + b * block, std::min(block, width - b * block));
  };
  in_threads(rows, rows_of_a_thread(width), [&](int64_t first, int64_t end) {
    for (auto r = static_cast<size_t>(first); r < static_cast<size_t>(end); ++r)
      for (size_t b = 0; b < row_blocks; ++b) factors[r * row_blocks + b] = largest_magnitude(block_of(r, b));
  });
  quantise_factors(factors, scale);
  const std::array<float, 15> middles = nf4_middles();
  in_threads(rows, rows_of_a_thread(width), [&](int64_t first, int64_t end) {
    for (auto r = static_cast<size_t>(first); r < static_cast<size_t>(end); ++r)
      for (size_t b = 0; b < row_blocks; ++b) {
        std::array<uint8_t, block> wide;
        const std::span<const float> own = block_of(r, b);
        wide.fill(zero_level);  // where a row of odd width has half a byte too many
        round_block(own, factors[r * row_blocks + b], middles, wide.data());
        std::byte* const to = codes.data() + r * row_bytes + b * block / 2;
        for (size_t i = 0; i < own.size(); i += 2) to[i / 2] = static_cast<std::byte>(wide[i] << 4 | wide[i + 1]);
      }
  });
}

}  // namespace lh
