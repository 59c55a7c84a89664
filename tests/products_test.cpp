// model.products in a graph, a step and a run. The products themselves: kernels_products_test.cpp.
#include "passes/products.h"

#include <gmock/gmock.h>

#include <cmath>

#include "ops/lora_activated.h"
#include "ops/lora_added.h"
#include "ops/ops.h"
#include "support/model_files.h"
#include "support/run_host.h"
#include "support/toy_step.h"

namespace lh::test::products_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Products, ChosenLayersWithWeightsInFp8Alone) {
  Graph g(DType::bf16);
  Value y = g.add_input("x", {DType::bf16, {3, 4}});
  const auto layer = [&](const char* name, DType dtype) {
    y = g.add(linear_op, {y, g.add_param(name, {dtype, {4, 4}})}, {}, 0)[0];
  };
  layer("blocks.0", DType::f8_e4m3);
  layer("blocks.1", DType::bf16);  // something else reads it as well
  layer("final", DType::f8_e4m3);
  layer("blocks.2", DType::f8_e5m2);
  g.outputs["y"] = y;
  multiply_in(g, LK_PRODUCTS_E4M3, [](const std::string& weight) { return weight.starts_with("blocks."); });
  std::vector<lk_products> products;
  for (const Node& node : g.nodes) products.push_back(products_of(node.attrs));
  EXPECT_EQ(products, (std::vector{LK_PRODUCTS_E4M3, LK_PRODUCTS_WIDE, LK_PRODUCTS_WIDE, LK_PRODUCTS_E4M3}));
}

TEST(Products, OtherTypesOfWeightsAreRefused) {
  struct Case {
    lk_products products;
    DType kept;
    const char *found, *remedy;
  };
  for (const Case& c : {Case{LK_PRODUCTS_E4M3, DType::i8, "'w' is kept in int8", "float8_e4m3"},
                        {LK_PRODUCTS_E4M3, DType::nf4, "'w' is kept in nf4", "float8_e4m3"},
                        {LK_PRODUCTS_E4M3, DType::bf16, "none of the layers that LoRA goes on has one", "float8_e4m3"},
                        {LK_PRODUCTS_I8, DType::f8_e4m3, "'w' is kept in float8_e4m3", "int8"},
                        {LK_PRODUCTS_I8, DType::f32, "none of the layers that LoRA goes on has one", "int8"}}) {
    Graph g(DType::bf16);
    const Value x = g.add_input("x", {DType::bf16, {3, 64}});
    g.outputs["y"] = g.add(linear_op, {x, g.add_param("w", {c.kept, {4, 64}})}, {}, 0)[0];
    EXPECT_THAT(error_of([&] { multiply_in(g, c.products, [](const std::string&) { return true; }); }),
                AllOf(HasSubstr(c.found), HasSubstr(fmt::format("Set model.dtype: {}", c.remedy))));
  }
}

struct Products {
  const char *name, *dtype;
  // Of an element that is rounded, in the mean square, relative to the mean square of its row. e4m3 keeps three bits
  // after the first, so that it is off by at most a sixteenth of itself. int8 is off by half a 127th of its row's
  // largest value, which may be ten times its mean.
  double error;
};
const Products all_products[] = {{"float8", "float8_e4m3", std::ldexp(1.0, -4) / std::sqrt(3.0)},
                                 {"int8", "int8", 10.0 / 127 / std::sqrt(12.0)}};

void PrintTo(const Products& p, std::ostream* out) { *out << p.name; }

class EightBitProducts : public ::testing::TestWithParam<Products> {};

INSTANTIATE_TEST_SUITE_P(Of, EightBitProducts, ::testing::ValuesIn(all_products),
                         [](const auto& info) { return std::string(info.param.name); });

// The errors of the layers that a value goes through add up in squares; gradients go through them twice.
TEST_P(EightBitProducts, AStepIsThatOfFullProductsWithinRounding) {
  const OpenedModel full(toy_denoiser(), GetParam().dtype), rounded(toy_denoiser(), GetParam().dtype, GetParam().name);
  const Ran want = run_step(full.model, {}), got = run_step(rounded.model, {0}),
            recomputed = run_step(rounded.model, {1});
  int64_t layers = 0;
  const Graph graph = toy_graph(rounded.model, {}).graph;
  for (const Node& node : graph.nodes)
    if (products_of(node.attrs) != LK_PRODUCTS_WIDE) {
      const bool forward = node.op == &lora_op || node.op == &lora_activated_op || node.op == &lora_added_op;
      EXPECT_TRUE(forward || node.op == &lora_backward_op) << node.op->name;
      EXPECT_EQ(products_of(node.attrs), products_named(GetParam().name));
      layers += forward;
    }
  EXPECT_EQ(layers, 22);  // ten of the double block, three of each single block
  const double error = GetParam().error * std::sqrt(2.0 * static_cast<double>(layers));
  EXPECT_NE(got.loss, want.loss);
  EXPECT_NEAR(got.loss, want.loss, error * want.loss);
  ASSERT_EQ(got.gradients.size(), want.gradients.size());
  for (const auto& [name, g] : want.gradients) EXPECT_LT(relative_error(got.gradients.at(name), g), error) << name;
  EXPECT_EQ(recomputed.loss, got.loss);
  for (const auto& [name, g] : got.gradients) EXPECT_EQ(recomputed.gradients.at(name).data, g.data) << name;
}

struct ProductsRun : ToyRun {
  explicit ProductsRun(const Products& p) {
    set("dtype", "bf16")
        .replace("model:\n", fmt::format("model:\n  dtype: {}\n  products: {}\n", p.dtype, p.name))
        .set("steps", "2");
  }
};

TEST_P(EightBitProducts, RunsResumeWithTheSameBytes) {
  const ProductsRun whole(GetParam());
  expect_trained(whole.train());
  ProductsRun run(GetParam());
  expect_trained(run.set("steps", "1").train());
  expect_trained(run.set("steps", "2").train({"--resume"}));
  EXPECT_EQ(run.steps_done(), 2);
  EXPECT_TRUE(get(run.lora()) == get(whole.lora()));
  const HostResult other =
      run.replace(fmt::format("  products: {}\n", GetParam().name), "").set("steps", "3").train({"--resume"});
  EXPECT_EQ(other.code, 2) << other.output;
  EXPECT_THAT(other.output, HasSubstr(fmt::format("model.dtype: the saved run has {0}, products {1}, this one {0}",
                                                  GetParam().dtype, GetParam().name)));
}

TEST_P(EightBitProducts, ARunWithoutSuchWeightsIsRefused) {
  ProductsRun run(GetParam());
  const HostResult refused = run.replace(fmt::format("  dtype: {}\n", GetParam().dtype), "").train();
  EXPECT_EQ(refused.code, 2) << refused.output;
  EXPECT_THAT(refused.output, AllOf(HasSubstr(fmt::format("model.products: {}", GetParam().name)),
                                    HasSubstr(fmt::format("Set model.dtype: {}", GetParam().dtype))));
}

}  // namespace
}  // namespace lh::test::products_test
