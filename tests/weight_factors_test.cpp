// Adapters that begin with factors of the weight (PiSSA, OLoRA): the factors against PEFT's (golden/adapters), and that
// their change is counted from there. Whole runs: family_test.cpp.
#include "compile/weight_factors.h"

#include <gmock/gmock.h>

#include <cmath>

#include "compile/adapters.h"
#include "ops/ops.h"
#include "plugin/adapter.h"
#include "support/device.h"
#include "support/given_options.h"
#include "support/golden.h"
#include "support/graph_run.h"
#include "support/model_files.h"
#include "support/paths.h"

namespace lh::test::weight_factors_test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// A linear layer "m" with an adapter, and its trained tensors as a run begins with them.
struct Begun {
  Graph graph;
  std::vector<AdaptedModule> modules;
  std::unique_ptr<Adapters> adapters;

  Begun(Device& device, const AdapterRule& rule, const HostTensor& weight, int64_t rank, double alpha,
        DType compute = DType::f32)
      : graph(compute) {
    const Shape& shape = weight.desc.shape;
    const Value x = graph.add_input("x", {compute, {2, shape[1]}});
    const Value w = graph.add_param("m.weight", {compute, shape});
    graph.outputs["y"] = graph.add(linear_op, {x, w, {}}, {}, 0)[0];
    const AdapterSpec spec{.rank = rank, .alpha = alpha, .rule = &rule};
    modules = adapt(
        graph, [&](const std::string&) { return &spec; }, true);
    adapters = std::make_unique<Adapters>(graph, modules);
    adapters->allocate(device);
    adapters->initialise(7, {.read = [&](const std::string&) { return weight; }});
  }
  HostTensor value(size_t tensor, const char* section = "p") const {
    return adapters->download(section, adapters->tensors()[tensor]);
  }
};

// a [n, m] times b [m, k], in float64.
std::vector<float> product(const HostTensor& a, const HostTensor& b, double scale = 1) {
  const int64_t n = a.desc.shape[0], m = a.desc.shape[1], k = b.desc.shape[1];
  std::vector<float> out;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < k; ++j) {
      double sum = 0;
      for (int64_t l = 0; l < m; ++l)
        sum += double{a.as<float>()[static_cast<size_t>(i * m + l)]} * b.as<float>()[static_cast<size_t>(l * k + j)];
      out.push_back(static_cast<float>(sum * scale));
    }
  return out;
}

HostTensor transposed(const HostTensor& a) {
  const int64_t n = a.desc.shape[0], m = a.desc.shape[1];
  HostTensor out(Desc{DType::f32, {m, n}});
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < m; ++j)
      out.as<float>()[static_cast<size_t>(j * n + i)] = a.as<float>()[static_cast<size_t>(i * m + j)];
  return out;
}

// Numbers that fall off: singular values of a trained weight do.
HostTensor weight_of(Shape shape) {
  HostTensor w(Desc{DType::f32, std::move(shape)});
  Random random(3, Purpose::noise, 0, 0);
  random.fill_normal(w.as<float>());
  const auto columns = static_cast<size_t>(w.desc.shape.numel() / w.desc.shape[0]);
  for (size_t i = 0; i < w.as<float>().size(); ++i)
    w.as<float>()[i] *= std::exp(-0.15f * static_cast<float>(i % columns));
  return w;
}

class WeightFactorsGolden : public testing::TestWithParam<const char*> {};

TEST_P(WeightFactorsGolden, BeginAsPeftDoes) {
  Device device(tested_device());
  const golden::Case c(fs::path(test_data()) / "golden" / "adapters" / GetParam());
  const auto& options = c.json.at("adapter").at("options");
  const std::string init = options.at("init_lora_weights");
  const Adapter rule(built_plugins(), "lora", given_options("{init: " + init + "}"));
  const HostTensor weight = c.tensor("weight", c.json.at("weights").at("weight"));
  const Begun begun(device, rule, weight, options.at("r"), options.at("lora_alpha"));
  const HostTensor down = begun.value(0), up = begun.value(1);
  std::map<std::string, std::vector<float>> got;
  got["product"] = product(up, down, c.json.at("adapter").at("scale"));
  got["residual"] = {weight.as<float>().begin(), weight.as<float>().end()};
  for (size_t i = 0; i < got["residual"].size(); ++i) got["residual"][i] -= got["product"][i];
  got["a_gram"] = product(down, transposed(down));
  got["b_gram"] = product(transposed(up), up);
  for (const float v : down.as<float>()) got["a_squared"].push_back(v * v);
  ASSERT_FALSE(c.expected_names().empty());
  for (const std::string& name : c.expected_names()) {
    const double limit = std::max(4 * c.json.at("fp32_error").value(name, 0.0), 2e-6);
    EXPECT_LE(golden::relative_error(got.at(name), c.expected(name).as<float>()), limit) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, WeightFactorsGolden,
                         testing::Values("pissa_tall", "pissa_wide", "olora_tall", "olora_wide"),
                         [](const auto& info) { return std::string(info.param); });

// exp(-0.15 (r + 8)) / exp(-0.15 r) = 0.3 is what a round leaves of the part outside, so 16 leave 1e-8 of it; the
// products differ by the rounding of float32 in a sum of 70 terms then.
TEST(WeightFactors, IterationComesToTheSingularVectors) {
  for (const Shape& shape : {Shape{70, 50}, Shape{30, 90}, Shape{24, 8, 3, 3}}) {
    const HostTensor weight = weight_of(shape);
    Random random(1, Purpose::adapter_init, 0, 0), again(1, Purpose::adapter_init, 0, 0);
    const WeightFactors exact = singular_factors(weight, 6, 0.5, 0, random);
    const WeightFactors close = singular_factors(weight, 6, 0.5, 16, random);
    EXPECT_LE(golden::relative_error(product(close.up, close.down), product(exact.up, exact.down)), 1e-5);
    EXPECT_LE(golden::relative_error(close.down.as<float>(), exact.down.as<float>()), 1e-3) << "signs are settled";
    EXPECT_EQ(singular_factors(weight, 6, 0.5, 0, again).up.data, exact.up.data);
    EXPECT_EQ(singular_factors(weight, 6, 0.5, 16, again).up.data, close.up.data);
  }
}

TEST(WeightFactors, OfAWeightOfSmallerRank) {
  const HostTensor zero(Desc{DType::f32, {6, 5}});
  Random random(1, Purpose::adapter_init, 0, 0);
  for (const int64_t rounds : {0, 4}) {
    const WeightFactors factors = singular_factors(zero, 3, 1, rounds, random);
    for (const HostTensor* t : {&factors.down, &factors.up})
      for (const float v : t->as<float>()) EXPECT_EQ(v, 0.0f);
  }
  const WeightFactors factors = qr_factors(zero, 3);
  EXPECT_TRUE(all_finite(factors.up));
  for (const float v : factors.down.as<float>()) EXPECT_EQ(v, 0.0f);
}

// The weight is 1 everywhere and inputs alternate, so that the layer gives 0. Down begins at sqrt(12), and moves by a
// quarter of the step of bfloat16 there, which is all of the output.
TEST(WeightFactors, ASmallChangeIsNotLostInHalfPrecision) {
  Device device(tested_device());
  const Adapter rule(built_plugins(), "lora", given_options("{init: olora}"));
  HostTensor weight(Desc{DType::f32, {12, 8}}), x(Desc{DType::f32, {2, 8}});
  std::ranges::fill(weight.as<float>(), 1.0f);
  for (size_t i = 0; i < x.as<float>().size(); ++i) x.as<float>()[i] = i % 2 == 0 ? 1.0f : -1.0f;
  const Begun begun(device, rule, weight, 2, 2, DType::bf16);
  const float step = 1.0f / 256;
  HostTensor down = begun.value(0);
  ASSERT_NEAR(down.as<float>()[0], std::sqrt(12.0f), 1e-5);
  for (size_t i = 0; i < 8; i += 2) down.as<float>()[i] += step;
  const auto output = [&](const HostTensor& with) {
    return converted(run_graph(device, begun.graph,
                               {{"x", converted(x, DType::bf16)},
                                {"m.weight", converted(weight, DType::bf16)},
                                {"m.lora_down.weight", with},
                                {"m.lora_up.weight", begun.value(1)},
                                {"m.lora_down.weight.start", begun.value(0, "start")},
                                {"m.lora_up.weight.start", begun.value(1, "start")}})
                         .at("y"),
                     DType::f32);
  };
  const float wanted = 4 * step / std::sqrt(12.0f);
  const HostTensor at_start = output(begun.value(0)), moved = output(down);
  for (const float v : at_start.as<float>()) ASSERT_EQ(v, 0.0f);
  for (const float v : moved.as<float>()) ASSERT_NEAR(v, wanted, wanted / 64);  // four roundings of 2^-9
}

TEST(WeightFactors, WhatCannotBeHadIsRefused) {
  Device device(tested_device());
  const auto begin = [&](const std::string& options, int64_t rank) {
    const Adapter rule(built_plugins(), "lora", given_options(options));
    Begun(device, rule, weight_of({6, 5}), rank, 1);
  };
  EXPECT_THAT(error_of([&] { begin("{init: pissa, use_tucker: true}", 2); }), HasSubstr("excludes weight_decompose"));
  EXPECT_THAT(error_of([&] { begin("{init: olora}", 6); }), HasSubstr("has 5 singular vectors, the rank is 6"));
  const Adapter rule(built_plugins(), "lora", given_options("{init: pissa}"));
  const AdapterLayer layer{.module = "m", .weight = {6, 5}, .rank = 2, .alpha = 2, .dropout = 0.1};
  EXPECT_THAT(error_of([&] { rule.form(layer); }), HasSubstr("excludes network.dropout"));
}

}  // namespace
}  // namespace lh::test::weight_factors_test
