// The pass that puts the gradients of several layers' adapters into one op: which go together, and that nothing else
// becomes of them.
#include "passes/group_gradients.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "lora_kernels_group.h"
#include "ops/lora_gradients.h"
#include "support/layer_graph.h"
#include "support/model_shapes.h"
#include "support/toy_step.h"

namespace lh::test::group_gradients_test {
namespace {

using testing::ElementsAre;

// Layers of each op, in order.
std::vector<size_t> groups_in(const Graph& graph) {
  std::vector<size_t> found;
  for (const Node& node : graph.nodes)
    if (node.op == &lora_gradients_op) found.push_back(LoraGradients::layers(node.inputs.size()));
  return found;
}

struct Chain : LayerGraph {
  using LayerGraph::LayerGraph;

  Chain& layers(int count) {
    Value y = x;
    for (int i = 0; i < count; ++i) y = one(tanh_op, {layer("fc" + std::to_string(i), y, width)});
    g.outputs["y"] = y;
    return *this;
  }
  Chain& differentiated() {
    add_gradients();
    return *this;
  }
  Chain& grouped() {
    group_gradients(g);
    return *this;
  }
};

// Each layer of `rows` rows reads as much as the others of its size.
Graph layers_of(const std::vector<int64_t>& rows) {
  Graph g(DType::bf16);
  for (const int64_t count : rows) {
    const auto input = [&](const char* name, const Shape& shape, DType type) {
      return g.add_input(name + std::to_string(g.nodes.size()), {type, shape});
    };
    const Value wide = input("x", {count, 1024}, DType::bf16), narrow = input("s", {count, 16}, DType::bf16);
    const Value down = input("down", {16, 1024}, DType::f32), up = input("up", {1024, 16}, DType::f32);
    g.add(lora_gradients_op, {wide, wide, narrow, narrow, down, up}, {{"scale.0", 1.0}}, 0);
  }
  group_gradients(g);
  return g;
}

// Of 700 layers as many as an op takes; of 96 the three that read a 32nd of what all do.
TEST(GroupGradients, OfAsManyLayersAsAnOpTakes) {
  const std::vector<size_t> many = groups_in(layers_of(std::vector<int64_t>(700, 64)));
  EXPECT_EQ(many.size(), 44u);
  EXPECT_EQ(many.front(), size_t{LK_LORA_GRADIENTS_MAX});
  EXPECT_EQ(many.back(), 12u);
  EXPECT_EQ(groups_in(layers_of(std::vector<int64_t>(96, 64))), std::vector<size_t>(32, 3));
  EXPECT_THAT(groups_in(layers_of({64, 64})), ElementsAre(1, 1));
}

TEST(GroupGradients, OnTheCpuKeepTheirBits) {
  if (tested_device() != "cpu") GTEST_SKIP() << "a GPU shares the rows out by what is there together";
  for (const DType type : {DType::f32, DType::f16, DType::bf16})
    expect_same_bits(Chain(type).layers(70).differentiated(), Chain(type).layers(70).differentiated().grouped());
}

// x and dy of layers that wait stay in memory.
TEST(GroupGradients, OfNoMoreThanAFewMegabytes) {
  constexpr int64_t mebibyte = 256;  // of x and dy together, in rows
  std::vector<int64_t> rows(100, 60 * mebibyte);
  rows.insert(rows.end(), {90 * mebibyte, 200 * mebibyte, mebibyte});
  std::vector<size_t> want(50, 2);
  want.insert(want.end(), {1, 1, 1});
  EXPECT_EQ(groups_in(layers_of(rows)), want);
}

// Streams of a block have rows of their own, and run side by side: an op of both would have them meet.
TEST(GroupGradients, OfTheSameRows) {
  std::vector<int64_t> rows;
  for (int i = 0; i < 96; ++i) rows.push_back(i % 2 == 0 ? 64 : 128);
  const Graph g = layers_of(rows);
  std::vector<size_t> of_few, of_many;
  for (const Node& node : g.nodes) {
    const size_t layers = LoraGradients::layers(node.inputs.size());
    const int64_t first = g.desc(node.inputs[LoraGradients::X]).shape[0];
    for (size_t i = 0; i < layers; ++i)
      EXPECT_EQ(g.desc(node.inputs[LoraGradients::at(i, LoraGradients::X)]).shape[0], first);
    (first == 64 ? of_few : of_many).push_back(layers);
  }
  EXPECT_EQ(of_few, std::vector<size_t>(12, 4));
  EXPECT_EQ(of_many, std::vector<size_t>(24, 2));
}

// Those of few rows have kernels of their own, one by one.
TEST(GroupGradients, NotOfFewRows) {
  EXPECT_EQ(groups_in(layers_of(std::vector<int64_t>(96, 1))), std::vector<size_t>(96, 1));
}

// What is made of a gradient, as where two layers share their matrices, comes behind it.
TEST(GroupGradients, StandBeforeWhatReadsThem) {
  const auto shared = [] {
    Chain chain;
    Value y = chain.x;
    for (int i = 0; i < 94; ++i) y = chain.layer("fc" + std::to_string(i), y, Chain::width);
    const Node layer = chain.g.nodes.back();
    const auto again = [&](Value x) {
      std::vector<Value> inputs = layer.inputs;
      inputs[0] = chain.one(tanh_op, {x});
      return chain.one(lora_op, inputs, layer.attrs);
    };
    chain.g.outputs["y"] = again(again(y));
    return chain.differentiated();
  };
  Chain grouped = shared();
  grouped.grouped();
  // Of 96 layers three have one pair of matrices, whose gradients are added.
  std::vector<size_t> want(31, 3);
  want.insert(want.begin(), {2, 1});
  EXPECT_EQ(groups_in(grouped.g), want);
  if (tested_device() == "cpu") expect_same_bits(shared(), grouped);
}

// The same layers together, whatever is made again or waits in host memory: sums of other sets would have other bits.
TEST(GroupGradients, FollowFromTheModelAlone) {
  const TempDir dir;
  write_small_sdxl(dir / "model.safetensors");
  const OpenedModel opened(dir / "model.safetensors", "auto");
  const std::vector<size_t> all = groups_in(toy_graph(opened.model, ActivationChoice{}).graph);
  EXPECT_GT(std::ranges::max(all), 2u);
  for (const ActivationChoice choice : {ActivationChoice{0.5, 0}, ActivationChoice{1, 0}, ActivationChoice{0, 1}})
    EXPECT_EQ(groups_in(toy_graph(opened.model, choice).graph), all);
}

}  // namespace
}  // namespace lh::test::group_gradients_test
