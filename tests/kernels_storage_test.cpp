// Storage of optimizer states: the maps of 8-bit codes against the published tables, nearest codes, what becomes of
// zeros and of numbers that are none; stochastic rounding against the exact probabilities, by statistics.
#include <gtest/gtest.h>

#include <bit>
#include <fstream>
#include <nlohmann/json.hpp>

#include "support/kernel_tensors.h"
#include "support/paths.h"

namespace lk_test::kernels_storage_test {
namespace {

using Json = nlohmann::json;
using Bytes = std::vector<unsigned char>;

Json golden_table(const char* name) {
  return Json::parse(std::ifstream(std::string(lh::test::test_data()) + "/golden/optimizers/" + name));
}

class KernelsBlockwise : public Kernels {
 protected:
  struct Quantized {
    Bytes codes;
    Values scales;
  };
  Quantized quantize(const Tensor& x, int64_t count, bool is_signed) {
    const Tensor codes({count}, LK_U8), scales({(count + 255) / 256}, LK_F32);
    const lk_quantize_blockwise_params p{
        .x = x.view(), .codes = codes.view(), .scales = scales.view(), .is_signed = is_signed};
    EXPECT_EQ(lk_quantize_blockwise(context.get(), &p), LK_OK) << lk_last_error(context.get());
    return {codes.bytes(), load(scales)};
  }
  Values dequantize(const Bytes& codes, const Values& scales, bool is_signed) {
    const auto count = static_cast<int64_t>(codes.size());
    const Tensor stored({count}, LK_U8), y({count}, LK_F32);
    const Tensor factors = floats({static_cast<int64_t>(scales.size())}, scales);
    stored.write(codes.data(), 0, count);
    const lk_dequantize_blockwise_params p{
        .codes = stored.view(), .scales = factors.view(), .y = y.view(), .is_signed = is_signed};
    EXPECT_EQ(lk_dequantize_blockwise(context.get(), &p), LK_OK) << lk_last_error(context.get());
    return load(y);
  }
  static Bytes every_code() {
    Bytes codes(256);
    std::iota(codes.begin(), codes.end(), static_cast<unsigned char>(0));
    return codes;
  }
};

TEST_F(KernelsBlockwise, MapsAreThePublishedOnes) {
  const Json table = golden_table("quantization_maps.json");
  for (const bool is_signed : {false, true}) {
    Values want;
    for (const double value : table.at(is_signed ? "signed" : "unsigned")) want.push_back(static_cast<float>(value));
    EXPECT_EQ(dequantize(every_code(), {1}, is_signed), want);
  }
}

TEST_F(KernelsBlockwise, EveryCodeComesBack) {
  for (const bool is_signed : {false, true}) {
    const Values values = dequantize(every_code(), {1}, is_signed);
    const Quantized again = quantize(floats({256}, values), 256, is_signed);
    EXPECT_EQ(again.codes, every_code());
    EXPECT_EQ(again.scales, Values{1});
  }
}

// On both sides of the middle between two values the nearer one, in the middle the one nearer zero.
TEST_F(KernelsBlockwise, CodesAreTheNearest) {
  for (const bool is_signed : {false, true}) {
    const Values values = dequantize(every_code(), {1}, is_signed);
    for (size_t code = 0; code + 1 < 256; ++code) {
      const float middle = static_cast<float>((values[code] + values[code + 1]) / 2);
      const Values x{std::nextafter(middle, -2.0f), middle, std::nextafter(middle, 2.0f), 1};
      const auto low = static_cast<unsigned char>(code), high = static_cast<unsigned char>(code + 1);
      const Bytes want{low, middle > 0 ? low : high, high, 255};
      ASSERT_EQ(quantize(floats({4}, x), 4, is_signed).codes, want) << "after code " << code;
    }
  }
}

TEST_F(KernelsBlockwise, ABlockHasItsOwnScale) {
  Values x(700, 0.0);
  x[3] = -4, x[256] = 0.5, x[699] = 1e-42;
  const Quantized q = quantize(floats({700}, x), 700, true);
  EXPECT_EQ(q.scales, (Values{4, 0.5, static_cast<float>(1e-42)}));
  const Values y = dequantize(q.codes, q.scales, true);
  EXPECT_EQ(y[3], 4 * dequantize({0}, {1}, true)[0]);  // -3.97: the map has no -1
  EXPECT_EQ(y[256], 0.5);
  for (size_t i = 0; i < 700; ++i) {
    if (i == 3 || i == 256) continue;
    EXPECT_NEAR(y[i], 0, 1e-37) << i;
  }
}

TEST_F(KernelsBlockwise, ZerosStayZerosAndNanSpreadsOverItsBlock) {
  for (const bool is_signed : {false, true}) {
    Values x(512, 0.0);
    x[300] = NAN;
    const Quantized q = quantize(floats({512}, x), 512, is_signed);
    const Values y = dequantize(q.codes, q.scales, is_signed);
    EXPECT_EQ(q.scales[0], 0);
    for (size_t i = 0; i < 256; ++i) EXPECT_EQ(y[i], 0) << i;
    for (size_t i = 256; i < 512; ++i) EXPECT_TRUE(std::isnan(y[i])) << i;
  }
  const Quantized below = quantize(floats({2}, {-3, 1}), 2, false);
  EXPECT_EQ(below.codes[0], 0);
}

TEST_F(KernelsBlockwise, ThreadsDoNotChangeIt) {
  const Tensor x = random_tensor(context.get(), random, {100003}, LK_F32, -1e-4, 3e-4);
  const Quantized here = quantize(x, 100003, true);
  const Context two = std::exchange(context, make_context(1));
  EXPECT_EQ(quantize(x, 100003, true).codes, here.codes);
}

TEST_F(KernelsBlockwise, BadArgumentsAreNamed) {
  const Tensor x({300}, LK_F32), codes({300}, LK_U8), scales({2}, LK_F32), few({1}, LK_F32);
  lk_quantize_blockwise_params p{.x = x.view(), .codes = codes.view(), .scales = few.view(), .is_signed = 1};
  EXPECT_EQ(lk_quantize_blockwise(context.get(), &p), LK_E_INVALID);
  EXPECT_STREQ(lk_last_error(context.get()), "quantize_blockwise: scales: expected shape [2], found [1]");
  p = {.x = x.view(), .codes = x.view(), .scales = scales.view(), .is_signed = 1};
  EXPECT_EQ(lk_quantize_blockwise(context.get(), &p), LK_E_INVALID);
  EXPECT_STREQ(lk_last_error(context.get()), "quantize_blockwise: codes: expected u8, found f32");
}

class KernelsStochastic : public Kernels {
 protected:
  Tensor rounded(const Tensor& x, int64_t count, int32_t step, uint64_t seed = 1, uint64_t stream = 0) {
    const Tensor turn = integers({1}, {step});
    Tensor y({count}, LK_BF16);
    const lk_round_stochastic_params p{
        .x = x.view(), .step = turn.view(), .y = y.view(), .seed = seed, .stream = stream};
    EXPECT_EQ(lk_round_stochastic(context.get(), &p), LK_OK) << lk_last_error(context.get());
    return y;
  }
};

TEST_F(KernelsStochastic, HasTheExactProbabilities) {
  constexpr int64_t draws = 40000;
  const Json golden = golden_table("stochastic_rounding.json"), &rows = golden.at("tables").at("bfloat16");
  ASSERT_GT(rows.size(), 5u);
  for (const Json& row : rows) {
    const double value = row.at("value"), near = row.at("toward_zero"), away = row.at("away"), p = row.at("p_away");
    SCOPED_TRACE(value);
    const Values y = load(rounded(floats({draws}, Values(draws, value)), draws, 3));
    double sum = 0, count = 0;
    for (const double v : y) {
      ASSERT_TRUE(v == near || v == away) << v;
      sum += v - value, count += v == away && away != near;
    }
    const double n = static_cast<double>(draws), variance = row.at("variance");
    EXPECT_LE(std::fabs(sum / n), 5 * std::sqrt(variance / n));
    EXPECT_LE(std::fabs(count / n - p), 5 * std::sqrt(p * (1 - p) / n));
  }
}

TEST_F(KernelsStochastic, ElementsStepsSeedsAndStreamsDrawApart) {
  constexpr int64_t count = 20000;
  const Tensor x = floats({count}, Values(count, 1 + 0x1p-8));  // either neighbour with probability 1/2
  const auto signs = [&](const Tensor& y) {
    Values s = load(y);
    for (double& v : s) v = v > 1 ? 1 : -1;
    return s;
  };
  const Tensor first = rounded(x, count, 5);
  EXPECT_EQ(rounded(x, count, 5).bytes(), first.bytes());
  const Values s = signs(first);
  const auto correlation = [&](const Values& a, size_t shift) {
    double sum = 0;
    for (size_t i = 0; i + shift < a.size(); ++i) sum += s[i + shift] * a[i];
    return sum / static_cast<double>(a.size() - shift);
  };
  const double limit = 5 / std::sqrt(static_cast<double>(count));
  for (const size_t shift : {1, 2, 3, 4, 8, 32, 256}) EXPECT_LE(std::fabs(correlation(s, shift)), limit) << shift;
  EXPECT_LE(std::fabs(correlation(signs(rounded(x, count, 6)), 0)), limit);
  EXPECT_LE(std::fabs(correlation(signs(rounded(x, count, 5, 2)), 0)), limit);
  EXPECT_LE(std::fabs(correlation(signs(rounded(x, count, 5, 1, 1)), 0)), limit);
}

// 1000 additions of 1e-4 to bf16 ones: rounding to nearest would stay at 1.
TEST_F(KernelsStochastic, SmallSumsAddUpInTheMean) {
  constexpr int64_t count = 4000;
  const Tensor x = floats({count}, Values(count, 1.0));
  const Tensor small = floats({1}, {1e-4});
  for (int32_t step = 1; step <= 1000; ++step) {
    const lk_binary_params add{.kind = LK_ADD, .a = x.view(), .b = small.view(), .y = x.view()};
    ASSERT_EQ(lk_binary(context.get(), &add), LK_OK);
    const Tensor y = rounded(x, count, step);
    const lk_cast_params back{.x = y.view(), .y = x.view()};
    ASSERT_EQ(lk_cast(context.get(), &back), LK_OK);
  }
  const Values end = load(x);
  const double mean = std::accumulate(end.begin(), end.end(), 0.0) / static_cast<double>(count);
  const double gap = 0x1p-7, variance = 1000 * gap * gap / 4;  // at most, of one element
  EXPECT_NEAR(mean, 1.1, 5 * std::sqrt(variance / static_cast<double>(count)));
}

TEST_F(KernelsStochastic, NanAndInfinityStay) {
  const Values y = load(rounded(floats({4}, {NAN, INFINITY, -INFINITY, 0}), 4, 1));
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_EQ(Values(y.begin() + 1, y.end()), (Values{INFINITY, -INFINITY, 0}));
}

}  // namespace

}  // namespace lk_test::kernels_storage_test
