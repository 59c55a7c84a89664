// Rounding weights to int8 and nf4: the rules of docs/quantisation.md against a float64 reading of them. How such
// weights are multiplied: kernels_weights_test.cpp; in models: fp8_test.cpp.
#include "io/quantise.h"

#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>

#include "core/hash.h"
#include "io/synthetic.h"
#include "support/reference/quantise.h"

namespace lh::test::quantise_test {
namespace {

using reference::Values;
using ::testing::ElementsAre;

// ---- nf4

TEST(Nf4, LevelsAreQuantilesOfTheNormalDistribution) {
  const Values want = reference::nf4_levels();
  ASSERT_EQ(want.size(), 16u);
  // The published numbers were made in float32 from probabilities in float32, where a step is 6e-8.
  for (size_t i = 0; i < 16; ++i) EXPECT_NEAR(lk_nf4_levels()[i], want[i], 2.5e-7) << i;
  EXPECT_EQ(lk_nf4_levels()[0], -1.0f);
  EXPECT_EQ(lk_nf4_levels()[7], 0.0f);
  EXPECT_EQ(lk_nf4_levels()[15], 1.0f);
}

TEST(Nf4, FactorsHaveTheDynamicMap) {
  const Values want = reference::dynamic_map();
  ASSERT_EQ(want.size(), 256u);
  for (size_t i = 0; i < 256; ++i) EXPECT_NEAR(lk_blockwise_values(1)[i], want[i], 3e-7 * std::fabs(want[i])) << i;
}

struct Rounded {
  std::vector<std::byte> codes, scale;
};

Rounded rounded(const reference::Nf4& form, std::span<const float> values) {
  Rounded r{std::vector<std::byte>(static_cast<size_t>(form.code_bytes())),
            std::vector<std::byte>(static_cast<size_t>(form.scale_bytes()))};
  const WeightForm kept = WeightForm::of(DType::nf4, {form.rows, form.cols});
  EXPECT_EQ(kept.scale(), (Desc{DType::u8, {form.scale_bytes()}}));
  EXPECT_EQ((Desc{DType::nf4, {form.rows, form.cols}}.bytes()), form.code_bytes());
  quantise_nf4(values, form.rows, r.codes, r.scale);
  return r;
}

// Whether `code` is that of the value of the ascending `map` that is nearest to x; in the middle between two, where
// float32 may see either, both are.
void expect_nearest(const Values& map, size_t code, double x, const char* what) {
  const size_t best = reference::nearest(map, x);
  ASSERT_LE(std::fabs(map[code] - x), std::fabs(map[best] - x) + 1e-6 * std::max(1.0, std::fabs(x)))
      << what << " " << x;
}

struct Filling {
  const char* name;
  std::function<float(int64_t row, int64_t col, std::mt19937& random)> value;
};

float normal(std::mt19937& random) { return std::normal_distribution<float>()(random); }

const Filling fillings[] = {
    {"normal", [](int64_t, int64_t, std::mt19937& r) { return 0.02f * normal(r); }},
    {"rows of many sizes",
     [](int64_t row, int64_t, std::mt19937& r) {
       return std::pow(10.0f, static_cast<float>(row % 9 - 4)) * normal(r);
     }},
    {"rows of zeros", [](int64_t row, int64_t, std::mt19937& r) { return row % 2 == 0 ? 0.0f : normal(r); }},
    // The factor of a small block may come out at zero or below it.
    {"one outlier", [](int64_t row, int64_t col, std::mt19937& r) { return row + col == 0 ? -1e4f : normal(r); }},
    {"zeros", [](int64_t, int64_t, std::mt19937&) { return 0.0f; }},
    {"equal", [](int64_t, int64_t, std::mt19937&) { return -0.25f; }},
};

class QuantiseNf4 : public ::testing::TestWithParam<std::pair<int64_t, int64_t>> {};

TEST_P(QuantiseNf4, IsTheFloat64Rule) {
  const reference::Nf4 form{GetParam().first, GetParam().second};
  const Values map = reference::dynamic_map(), levels = reference::nf4_levels();
  for (const Filling& filling : fillings) {
    SCOPED_TRACE(filling.name);
    std::mt19937 random(5);
    std::vector<float> values;
    for (int64_t r = 0; r < form.rows; ++r)
      for (int64_t c = 0; c < form.cols; ++c) values.push_back(filling.value(r, c, random));
    const Rounded got = rounded(form, values);

    Values largest(static_cast<size_t>(form.blocks()));
    for (int64_t r = 0; r < form.rows; ++r)
      for (int64_t c = 0; c < form.cols; ++c) {
        double& most = largest[static_cast<size_t>(form.block_of(r, c))];
        most = std::max(most, std::fabs(static_cast<double>(values[static_cast<size_t>(r * form.cols + c)])));
      }
    const double mean = std::accumulate(largest.begin(), largest.end(), 0.0) / static_cast<double>(largest.size());
    const double offset = reference::Nf4::number(got.scale, 0);
    EXPECT_EQ(offset, static_cast<double>(static_cast<float>(mean)));
    const auto groups = static_cast<int64_t>((largest.size() + 255) / 256);
    for (int64_t g = 0; g < groups; ++g) {
      double range = 0;
      const size_t end = std::min(largest.size(), static_cast<size_t>(g + 1) * 256);
      for (auto b = static_cast<size_t>(g) * 256; b < end; ++b) range = std::max(range, std::fabs(largest[b] - offset));
      EXPECT_NEAR(reference::Nf4::number(got.scale, 1 + g), range, 1e-7 * range);
      for (auto b = static_cast<size_t>(g) * 256; b < end; ++b)
        expect_nearest(map, static_cast<size_t>(got.scale[4 * (1 + static_cast<size_t>(groups)) + b]),
                       range > 0 ? (largest[b] - offset) / range : 0, "factor");
    }

    const Values factors = form.factors(got.scale), back = form.values(got.codes, got.scale);
    for (int64_t r = 0; r < form.rows; ++r)
      for (int64_t c = 0; c < form.cols; ++c) {
        const auto i = static_cast<size_t>(r * form.cols + c);
        const double value = static_cast<double>(values[i]), factor = factors[static_cast<size_t>(form.block_of(r, c))];
        if (value == 0) {
          ASSERT_EQ(back[i], 0);
          continue;
        }
        if (std::fabs(factor) > 1e-6 * offset)  // else it is zero but for float32 rounding
          expect_nearest(levels, static_cast<size_t>(form.code(got.codes, r, c)), value / factor, "value");
        // Half the widest gap between two levels, which is that above -1; or what lies beyond the last level.
        const double gap = (levels[1] - levels[0]) / 2 * std::fabs(factor),
                     beyond = std::fabs(value) - std::fabs(factor);
        ASSERT_LE(std::fabs(back[i] - value), std::max(gap, beyond) + 1e-6 * std::fabs(value));
      }
    for (int64_t r = 0; r < form.rows && form.cols % 2 != 0; ++r) {  // half a byte that belongs to no element: a zero
      const auto last = static_cast<size_t>((r + 1) * ((form.cols + 1) / 2) - 1);
      ASSERT_EQ(static_cast<unsigned>(got.codes[last]) & 15u, 7u);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, QuantiseNf4,
                         ::testing::Values(std::pair<int64_t, int64_t>{1, 1}, std::pair<int64_t, int64_t>{3, 64},
                                           std::pair<int64_t, int64_t>{5, 63}, std::pair<int64_t, int64_t>{7, 130},
                                           std::pair<int64_t, int64_t>{300, 1000}),  // 4800 blocks, several threads
                         [](const auto& shape) {
                           return std::to_string(shape.param.first) + "x" + std::to_string(shape.param.second);
                         });

// A matrix of normal numbers comes back within what 4 bits can do: the mean square error of the 16 levels is 0.0085 of
// the variance with the factor of each block known exactly, and 8 bits for the factors add little.
TEST(Nf4, NormalNumbersComeBackWithinNinePercent) {
  const reference::Nf4 form{256, 512};
  std::mt19937 random(9);
  std::vector<float> values(static_cast<size_t>(form.rows * form.cols));
  for (float& v : values) v = 0.02f * normal(random);
  const Rounded got = rounded(form, values);
  const Values back = form.values(got.codes, got.scale);
  double error = 0, all = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    error += std::pow(back[i] - static_cast<double>(values[i]), 2);
    all += std::pow(static_cast<double>(values[i]), 2);
  }
  EXPECT_LT(std::sqrt(error / all), 0.095);
  EXPECT_GT(std::sqrt(error / all), 0.085);
}

// The same bytes for ever: a run that goes on rounds its base again, with whatever version of the host.
TEST(Nf4, BytesAreTheseOnes) {
  const reference::Nf4 form{6, 3001};  // 282 blocks, in two groups
  std::vector<float> values(static_cast<size_t>(form.rows * form.cols));
  generate("nf4", 0, 0.05, values);
  const Rounded got = rounded(form, values);
  const auto text = [](std::span<const std::byte> bytes) {
    return sha256_hex(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size())).substr(0, 16);
  };
  EXPECT_EQ(text(got.codes), "666e0ec0891b7ceb");
  EXPECT_EQ(text(got.scale), "1c82381070fce41d");
}

TEST(Nf4, WhatIsNotFiniteIsSeen) {
  const reference::Nf4 form{2, 70};
  for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> values(140, 1.0f);
    values[139] = bad;
    EXPECT_FALSE(std::isfinite(reference::Nf4::number(rounded(form, values).scale, 0)));
  }
}

// ---- int8

std::vector<int> int8_codes(std::span<const float> values, std::span<float> factors) {
  std::vector<std::byte> codes(values.size());
  quantise_rows(DType::i8, values, codes, factors);
  std::vector<int> out;
  for (const std::byte c : codes) out.push_back(static_cast<int>(reference::int8(static_cast<unsigned>(c))));
  return out;
}

TEST(Int8, HalvesGoToEven) {
  std::vector<float> factors(2);
  EXPECT_THAT(int8_codes(std::vector<float>{127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -127, 126.5f,  //
                                            0, 0, 0, 0, 0, 0, 0, 0},
                         factors),
              ElementsAre(127, 0, 2, 2, 0, -2, -127, 126, 0, 0, 0, 0, 0, 0, 0, 0));
  EXPECT_EQ(factors[0], 1.0f);
}

TEST(Int8, RowsAreWithinHalfAFactor) {
  constexpr size_t rows = 700, width = 1000;  // enough for several threads
  std::mt19937 random(3);
  std::vector<float> values(rows * width), factors(rows);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = std::pow(10.0f, static_cast<float>(i / width) / 350 * 30 - 30) * normal(random);
  const std::vector<int> codes = int8_codes(values, factors);
  for (size_t i = 0; i < values.size(); ++i) {
    const double factor = static_cast<double>(factors[i / width]);
    // value / factor is rounded a few times in float32 before it becomes a code of up to 127.
    ASSERT_LE(std::fabs(codes[i] * factor - static_cast<double>(values[i])), factor * (0.5 + 127 * 3e-7)) << i;
  }
  for (size_t r = 0; r < rows; ++r) {
    const std::span row = std::span(codes).subspan(r * width, width);
    EXPECT_TRUE(std::ranges::any_of(row, [](int c) { return std::abs(c) == 127; })) << "row " << r;
  }
}

TEST(Int8, WhatIsNotFiniteIsSeen) {
  std::vector<float> factors(2);
  int8_codes(std::vector<float>{1, 2, 3, std::numeric_limits<float>::quiet_NaN()}, factors);
  EXPECT_TRUE(std::isfinite(factors[0]));
  EXPECT_FALSE(std::isfinite(factors[1]));
}

}  // namespace
}  // namespace lh::test::quantise_test
