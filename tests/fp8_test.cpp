// Base weights in fp8 that are kept as they are stored. The same training step with the weights widened is what they
// are compared with. Rounded when they are loaded: rounded_weights_test.cpp.
#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <limits>

#include "core/float_formats.h"
#include "io/quantise.h"
#include "ops/ops.h"
#include "passes/store_weights.h"
#include "run/weights.h"
#include "support/device.h"
#include "support/model_files.h"
#include "support/paths.h"
#include "support/run_host.h"
#include "support/toy_step.h"

namespace lh::fp8_test {
namespace {

using namespace test;
namespace fs = std::filesystem;
using ::testing::HasSubstr;

// ---- conversion

TEST(Fp8, BoundedConversionIsTheExactOne) {
  const uint32_t end = std::bit_cast<uint32_t>(464.0f);
  for (uint32_t bits = 0; bits < end; bits += 4093)  // a prime: all mantissa bits change
    for (const uint32_t sign : {0u, 0x80000000u}) {
      const auto value = std::bit_cast<float>(bits | sign);
      ASSERT_EQ(e4m3_from_bounded(value), e4m3_from_float(value)) << value;
    }
  for (int code = 0; code < 0x7e; ++code) {  // where rounding turns over, and beside it
    const float middle =
        (float_from_e4m3(static_cast<uint8_t>(code)) + float_from_e4m3(static_cast<uint8_t>(code + 1))) / 2;
    for (const float value : {std::nextafter(middle, 0.0f), middle, std::nextafter(middle, 1000.0f)})
      ASSERT_EQ(e4m3_from_bounded(value), e4m3_from_float(value)) << value;
  }
}

// Each code has the value that its format gives it, and floats get the code that is nearest, the even one of two.
template <int exponent_bits, int mantissa_bits, bool finite>
void expect_small_floats() {
  constexpr uint32_t sign = 1u << (exponent_bits + mantissa_bits), ones = (1u << exponent_bits) - 1;
  constexpr uint32_t first_special = finite ? sign - 1 : ones << mantissa_bits;
  const auto value = [](uint32_t code) { return float_from_small<exponent_bits, mantissa_bits, finite>(code); };
  const auto code_of = [](float f) { return small_from_float<exponent_bits, mantissa_bits, finite>(f); };
  const int bias = (1 << (exponent_bits - 1)) - 1;
  for (uint32_t code = 0; code < first_special; ++code) {
    const int exponent = static_cast<int>(code >> mantissa_bits);
    const int mantissa = static_cast<int>(code & ((1u << mantissa_bits) - 1)) + (exponent > 0 ? 1 << mantissa_bits : 0);
    const auto want = static_cast<float>(std::ldexp(mantissa, std::max(exponent, 1) - bias - mantissa_bits));
    ASSERT_EQ(value(code), want) << code;
    ASSERT_EQ(std::bit_cast<uint32_t>(value(code | sign)), std::bit_cast<uint32_t>(-want)) << code;
    ASSERT_EQ(code_of(want), code);
    ASSERT_EQ(code_of(-want), code | sign);
    if (code + 1 == first_special) break;
    const float middle = (want + value(code + 1)) / 2;
    ASSERT_EQ(code_of(middle), code + code % 2) << middle;
    ASSERT_EQ(code_of(std::nextafter(middle, 0.0f)), code) << middle;
    ASSERT_EQ(code_of(std::nextafter(middle, 1e9f)), code + 1) << middle;
  }
  const uint32_t overflow = first_special;  // infinity, or NaN where there is none
  const float largest = value(first_special - 1), half_step = (largest - value(first_special - 2)) / 2;
  EXPECT_EQ(code_of(largest + half_step), finite ? first_special - 1 : overflow);
  EXPECT_EQ(code_of(largest + 1.5f * half_step), overflow);
  EXPECT_EQ(code_of(-std::numeric_limits<float>::infinity()), overflow | sign);
  if (!finite) {
    EXPECT_EQ(value(first_special), std::numeric_limits<float>::infinity());
  }
  EXPECT_TRUE(std::isnan(value(sign - 1)));
  EXPECT_EQ(code_of(std::numeric_limits<float>::quiet_NaN()), sign - 1);
}

TEST(SmallFloats, HaveTheValuesOfTheirCodesAndRoundToNearestEven) {
  expect_small_floats<5, 10, false>();
  expect_small_floats<4, 3, true>();
  expect_small_floats<5, 2, false>();
}

// What the header of quantise_rows promises, for rows of every size.
void expect_rounded(std::span<const float> values, std::span<const std::byte> codes, std::span<const float> factors) {
  const size_t width = values.size() / factors.size();
  size_t wrong = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const float factor = factors[i / width];
    const double got = static_cast<double>(float_from_e4m3(static_cast<uint8_t>(codes[i]))) * factor;
    // value / factor is rounded a few times in float32 before it becomes a code.
    const double limit = std::max(std::abs(values[i]) / 16.0, factor / 1024.0) * (1 + 1e-6);
    wrong += !(std::abs(got - static_cast<double>(values[i])) <= limit);
  }
  EXPECT_EQ(wrong, 0u);
}

TEST(Fp8, RowsHaveFactorsOfTheirOwn) {
  constexpr size_t rows = 700, width = 1000;  // enough for several threads
  std::vector<float> values(rows * width);
  for (size_t r = 0; r < rows; ++r)  // largest values from 1e-30 to 1e30, one row of zeros
    for (size_t i = 0; i < width; ++i)
      values[r * width + i] =
          r == 7 ? 0
                 : std::sin(0.37f * static_cast<float>(r + i)) * std::pow(10.0f, static_cast<float>(r) / 350 * 30 - 30);
  std::vector<std::byte> codes(values.size());
  std::vector<float> factors(rows);
  quantise_rows(DType::f8_e4m3, values, codes, factors);
  expect_rounded(values, codes, factors);
  for (size_t r = 0; r < rows; ++r) {
    const std::span row(codes.data() + r * width, width);
    const bool largest = std::ranges::any_of(row, [](std::byte c) { return (c & std::byte{0x7f}) == std::byte{0x7e}; });
    EXPECT_EQ(largest, r != 7) << "row " << r << " does not use the whole range";
  }
}

TEST(Fp8, WhatIsNotFiniteIsSeen) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> values{1, 2, inf, 2, 1, nan, -inf, 0};
  std::vector<std::byte> codes(8);
  std::vector<float> factors(4);
  quantise_rows(DType::f8_e4m3, values, codes, factors);
  EXPECT_EQ(factors[0], 2.0f / 448);
  for (size_t r = 1; r < 4; ++r) EXPECT_FALSE(std::isfinite(factors[r])) << r;
}

// ---- the pass

TEST(StoreWeights, OnlyWeightsThatLinearLayersAloneRead) {
  Graph g(DType::bf16);
  const Value x = g.add_input("x", {DType::bf16, {3, 4}});
  const auto weight = [&](const char* name) { return g.add_param(name, {DType::bf16, {4, 4}}); };
  const Value alone = weight("alone.weight"), shared = weight("shared.weight"), other = weight("other.weight");
  Value y = g.add(linear_op, {x, alone}, {}, 0)[0];
  y = g.add(linear_op, {y, alone, g.add_param("alone.bias", {DType::bf16, {4}})}, {}, 0)[0];
  y = g.add(linear_op, {y, shared}, {}, 0)[0];
  y = g.add(mul_op, {y, g.add(sum_op, {shared}, {{"axes", std::vector<int64_t>{0}}}, 0)[0]}, {}, 0)[0];
  g.outputs["y"] = g.add(
      linear_op, {g.add(matmul_op, {y, other}, {{"transpose_a", int64_t{0}}, {"transpose_b", int64_t{0}}}, 0)[0], x},
      {}, 0)[0];
  store_weights(g, [](const std::string&) { return WeightForm{DType::f8_e4m3, 4}; });
  EXPECT_EQ(g.desc(alone).dtype, DType::f8_e4m3);
  EXPECT_EQ(g.desc(shared).dtype, DType::bf16);
  EXPECT_EQ(g.desc(other).dtype, DType::bf16);
  const Value scale = g.params.at(scale_name("alone.weight"));
  EXPECT_EQ(g.info(alone).scale, scale);
  EXPECT_EQ(g.desc(scale), (Desc{DType::f32, {4}}));
  EXPECT_EQ(g.params.size(), 5u);
  EXPECT_EQ(g.nodes[0].inputs, (std::vector{x, alone, Value{}, scale}));
  EXPECT_EQ(g.nodes[1].inputs.back(), scale);
  EXPECT_EQ(g.nodes[2].inputs.size(), 2u);
}

// ---- checkpoints that are stored in fp8

enum class Scales { none, one, rows };

const char* text_of(Scales kind) { return kind == Scales::none ? "plain" : kind == Scales::one ? "scaled" : "rows"; }

// The bundled small model in fp8: all of it, or the matrices with one factor in the old spelling or one for each row in
// the new one.
std::vector<Given> in_fp8(Scales kind) {
  const Safetensors file(toy_denoiser());
  std::vector<Given> out;
  for (const StoredTensor& stored : file.tensors()) {
    const HostTensor values = as_type(file.read(stored.name), DType::f32);
    if (kind == Scales::none) {
      out.push_back({stored.name, as_type(values, DType::f8_e4m3)});
      continue;
    }
    if (values.desc.shape.rank() != 2 || !stored.name.ends_with(".weight")) {
      out.push_back({stored.name, file.read(stored.name)});
      continue;
    }
    const int64_t rows = kind == Scales::rows ? values.desc.shape[0] : 1;
    HostTensor codes(Desc{DType::f8_e4m3, values.desc.shape}), factors(Desc{DType::f32, {rows}});
    quantise_rows(DType::f8_e4m3, values.as<float>(), codes.data, factors.as<float>());
    const std::string layer = stored.name.substr(0, stored.name.rfind('.'));
    out.push_back({stored.name, codes});
    if (kind == Scales::one) {
      factors.desc.shape = Shape{};
      out.push_back({layer + ".scale_weight", factors});
      continue;
    }
    const std::string json = R"({"format": "float8_e4m3fn"})";
    HostTensor quant(Desc{DType::u8, {static_cast<int64_t>(json.size())}});
    std::memcpy(quant.data.data(), json.data(), json.size());
    out.push_back({layer + ".weight_scale", factors});
    out.push_back({layer + ".comfy_quant", quant});
  }
  if (kind == Scales::one) out.push_back({"scaled_fp8", as_type(floats({2}, {0, 0}), DType::f8_e4m3)});
  return out;
}

class StoredFp8 : public ::testing::TestWithParam<Scales> {};

// The widened weight is code * factor rounded once to float32, and so is what the kernels make of it when they read it:
// on the CPU no bit differs. A CUDA kernel may multiply the sum instead of the terms: float32 rounding of up to 1280
// terms then differs, sqrt(1280) 2^-24 a layer in the mean, over some ten layers.
TEST_P(StoredFp8, TrainsAsTheWidenedModelDoes) {
  const TempDir dir;
  write_file(dir / "fp8.safetensors", in_fp8(GetParam()));
  Ran want, got;
  KeptWeights wide, narrow;
  {
    const OpenedModel opened(dir / "fp8.safetensors", "fp32");
    want = run_step(opened.model, {});
    wide = kept_weights(opened.model);
  }
  {
    const OpenedModel opened(dir / "fp8.safetensors", "auto");
    got = run_step(opened.model, {});
    narrow = kept_weights(opened.model);
    const Ran recomputed = run_step(opened.model, {1});
    EXPECT_EQ(recomputed.loss, got.loss);
    for (const auto& [name, g] : got.gradients) EXPECT_EQ(recomputed.gradients.at(name).data, g.data) << name;
  }
  ASSERT_TRUE(std::isfinite(want.loss));
  ASSERT_EQ(got.gradients.size(), want.gradients.size());
  if (tested_device() == "cpu") {
    EXPECT_EQ(got.loss, want.loss);
    for (const auto& [name, g] : want.gradients) EXPECT_EQ(got.gradients.at(name).data, g.data) << name;
  } else {
    EXPECT_NEAR(got.loss, want.loss, 2e-5 * want.loss);
    for (const auto& [name, g] : want.gradients) EXPECT_LT(relative_error(got.gradients.at(name), g), 2e-5) << name;
  }
  EXPECT_EQ(wide.rounded, 0);
  EXPECT_EQ(narrow.rounded, 30);  // every matrix
  EXPECT_EQ(narrow.factors > 0, GetParam() != Scales::none);
  // A byte instead of four; factors are padded to 256 bytes, and all these matrices fill such places.
  EXPECT_EQ(wide.bytes - narrow.bytes, 3 * narrow.elements - (GetParam() == Scales::none  ? 0
                                                              : GetParam() == Scales::one ? 30 * 256
                                                                                          : 4 * narrow.factors));
}

TEST_P(StoredFp8, TrainsThroughTheCommandLine) {
  ToyRun run;
  write_file(run.folder() / "fp8.safetensors", in_fp8(GetParam()));
  run.set("name_or_path", (run.folder() / "fp8.safetensors").string()).set("steps", "2");
  run.replace("prompts: []", "prompts: [a photo]").set("sample_every", "2");
  const HostResult result = run.train();
  EXPECT_EQ(result.code, 0) << result.output;
  EXPECT_EQ(run.steps_done(), 2);
  EXPECT_TRUE(fs::exists(run.lora()));
}

INSTANTIATE_TEST_SUITE_P(Fp8, StoredFp8, ::testing::Values(Scales::none, Scales::one, Scales::rows),
                         [](const auto& info) { return text_of(info.param); });

}  // namespace
}  // namespace lh::fp8_test
