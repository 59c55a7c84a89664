// The pass that puts activations into the layers beside them: where it does, where it does not, and that no bit of a
// result changes.
#include "passes/fuse_activations.h"

#include <gmock/gmock.h>

#include "ops/lora_activated.h"
#include "ops/lora_group.h"
#include "ops/ops.h"
#include "passes/fuse.h"
#include "passes/group_layers.h"
#include "run/plan.h"
#include "support/device.h"
#include "support/flux2_shapes.h"
#include "support/graph_run.h"
#include "support/krea2_shapes.h"
#include "support/layer_graph.h"
#include "support/model_shapes.h"
#include "support/qwen_image_shapes.h"
#include "support/toy_step.h"

namespace lh::test::fuse_activations_test {
namespace {

namespace fs = std::filesystem;

constexpr int64_t hidden = LayerGraph::width, inner = 384;

// Two layers with adapters and gelu between them, and their gradients.
struct Layers : LayerGraph {
  using LayerGraph::LayerGraph;

  Value gelu(Value in, const char* mode = "tanh") { return one(gelu_op, {in}, {{"mode", std::string(mode)}}); }
  // fc2(gelu(fc1 x))
  Layers& mlp(const char* mode = "tanh") {
    g.outputs["y"] = layer("fc2", gelu(layer("fc1", x, inner), mode), hidden);
    return *this;
  }
  // One layer makes what is mixed, and what goes through gelu beside it into another.
  Layers& beside() {
    const Value wide = layer("fc1", x, 2 * hidden + inner);
    const auto parts =
        g.add(split_op, {wide}, {{"axis", int64_t{-1}}, {"sizes", std::vector<int64_t>{hidden, hidden, inner}}}, 0);
    const Value mixed = one(mul_op, {one(tanh_op, {parts[0]}), parts[1]});
    g.outputs["y"] = layer("fc2", one(concat_op, {mixed, gelu(parts[2])}, {{"axis", int64_t{-1}}}), hidden);
    return *this;
  }
  // The same with silu of one half of what is beside, times the other.
  Layers& gated(const OpDef& activation = silu_op, const Attrs& attrs = {}) {
    const Value wide = layer("fc1", x, hidden + 2 * inner);
    const auto parts =
        g.add(split_op, {wide}, {{"axis", int64_t{-1}}, {"sizes", std::vector<int64_t>{hidden, inner, inner}}}, 0);
    const Value gate = one(mul_op, {one(activation, {parts[1]}, attrs), parts[2]});
    g.outputs["y"] = layer("fc2", one(concat_op, {one(tanh_op, {parts[0]}), gate}, {{"axis", int64_t{-1}}}), hidden);
    fuse(g);
    return *this;
  }
  // One layer gates another, the first the second or the other way round.
  Layers& gate_layers(bool grouped, bool turned) {
    const Value one_layer = layer("w1", x, inner), other = layer("w3", x, inner);
    const auto [a, b] = turned ? std::pair(other, one_layer) : std::pair(one_layer, other);
    g.outputs["y"] = layer("w2", one(mul_op, {one(silu_op, {a}), b}), hidden);
    fuse(g);
    if (grouped) {
      g.scopes.push_back({.path = "block", .parent = 0, .checkpoint = true});
      for (Node& node : g.nodes) node.scope = 1;
      group_layers(g);
    }
    return *this;
  }
  Layers& differentiated() {
    add_gradients();
    return *this;
  }
  Layers& fused() {
    fuse_activations(g);
    return *this;
  }
};

TEST(FuseActivations, PutsThemIntoLayers) {
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    Layers plain = Layers(type).mlp().differentiated(), fused = Layers(type).mlp().differentiated().fused();
    EXPECT_EQ(count_nodes(fused.g, lora_activated_op), 1);
    EXPECT_EQ(count_nodes(fused.g, gelu_op), 0);
    EXPECT_EQ(fused.g.nodes.size() + 1, plain.g.nodes.size());
    expect_same_bits(plain, fused);
  }
}

TEST(FuseActivations, TakesColumnsThatStayWhereTheyAre) {
  for (const DType type : {DType::f32, DType::bf16}) {
    Layers plain = Layers(type).beside().differentiated(), fused = Layers(type).beside().differentiated().fused();
    EXPECT_EQ(count_nodes(fused.g, gelu_op), 0);
    expect_same_bits(plain, fused);
    // Its result lies in what it is joined to.
    const Plan plan = plan_memory(fused.g, {});
    for (const Node& node : fused.g.nodes) {
      if (node.op != &lora_activated_op) continue;
      EXPECT_EQ(node.attrs.i("from"), 2 * hidden);
      EXPECT_EQ(plan.views[node.outputs[2].id].pitch, hidden + inner);
    }
  }
}

TEST(FuseActivations, GatesColumnsOfALayer) {
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    Layers plain = Layers(type).gated().differentiated(), fused = Layers(type).gated().differentiated().fused();
    EXPECT_EQ(count_nodes(plain.g, gated_activation_op), 1);
    EXPECT_EQ(count_nodes(fused.g, gated_activation_op), 0);
    expect_same_bits(plain, fused);
    const Plan plan = plan_memory(fused.g, {});
    for (const Node& node : fused.g.nodes) {
      if (node.op != &lora_activated_op) continue;
      EXPECT_EQ(node.attrs.i("from"), hidden);
      EXPECT_EQ(plan.views[node.outputs[2].id].pitch, hidden + inner);
    }
  }
}

TEST(FuseActivations, GatesALayerWithAnother) {
  for (const auto& [grouped, turned, type] :
       {std::tuple(false, false, DType::f32), std::tuple(false, true, DType::f16), std::tuple(true, false, DType::bf16),
        std::tuple(true, true, DType::f32)}) {
    SCOPED_TRACE(testing::Message() << (grouped ? "grouped " : "") << (turned ? "turned" : ""));
    Layers plain = Layers(type).gate_layers(grouped, turned).differentiated();
    Layers fused = Layers(type).gate_layers(grouped, turned).differentiated().fused();
    EXPECT_EQ(count_nodes(plain.g, lora_group_op), grouped ? 1 : 0);
    EXPECT_EQ(count_nodes(fused.g, gated_activation_op), 0);
    EXPECT_EQ(count_nodes(fused.g, lora_group_gated_op), 1);
    EXPECT_EQ(count_nodes(fused.g, lora_group_op), 0);
    expect_same_bits(plain, fused);
  }
}

TEST(FuseActivations, LeavesOtherGates) {
  Layers erf = Layers().gated(gelu_op, {{"mode", std::string("erf")}}).differentiated().fused();
  EXPECT_EQ(count_nodes(erf.g, gated_activation_op), 1);

  // The second half gates the first.
  Layers turned;
  const auto parts = turned.g.add(split_op, {turned.layer("fc1", turned.x, 2 * inner)},
                                  {{"axis", int64_t{-1}}, {"sizes", std::vector<int64_t>{inner, inner}}}, 0);
  turned.g.outputs["y"] = turned.layer("fc2", turned.one(mul_op, {turned.one(silu_op, {parts[1]}), parts[0]}), hidden);
  fuse(turned.g);
  turned.differentiated().fused();
  EXPECT_EQ(count_nodes(turned.g, gated_activation_op), 1);

  // Layers of two inputs, and one that is read before the other is there.
  Layers apart;
  const Value a = apart.layer("w1", apart.x, inner), b = apart.layer("w3", apart.one(tanh_op, {apart.x}), inner);
  apart.g.outputs["y"] = apart.layer("w2", apart.one(mul_op, {apart.one(silu_op, {a}), b}), hidden);
  fuse(apart.g);
  apart.differentiated().fused();
  EXPECT_EQ(count_nodes(apart.g, gated_activation_op), 1);

  Layers read;
  const Value first = read.layer("w1", read.x, inner), early = read.one(tanh_op, {first});
  const Value second = read.layer("w3", read.x, inner);
  const Value gate = read.one(mul_op, {read.one(silu_op, {first}), second});
  read.g.outputs["y"] = read.layer("w2", read.one(mul_op, {gate, early}), hidden);
  fuse(read.g);
  read.differentiated().fused();
  EXPECT_EQ(count_nodes(read.g, gated_activation_op), 1);
}

TEST(FuseActivations, LeavesOthers) {
  Layers erf = Layers().mlp("erf").differentiated().fused();
  EXPECT_EQ(count_nodes(erf.g, lora_activated_op), 0);

  // Something else reads what the layer makes before the activation does.
  Layers read;
  const Value wide_read = read.layer("fc1", read.x, inner);
  const Value first = read.one(tanh_op, {wide_read});
  read.g.outputs["y"] = read.layer("fc2", read.one(mul_op, {first, read.gelu(wide_read)}), hidden);
  read.fused();
  EXPECT_EQ(count_nodes(read.g, lora_activated_op), 0);

  // Other columns than the last ones.
  Layers front;
  const Value wide = front.layer("fc1", front.x, inner + hidden);
  const auto parts =
      front.g.add(split_op, {wide}, {{"axis", int64_t{-1}}, {"sizes", std::vector<int64_t>{inner, hidden}}}, 0);
  const Value joined = front.one(concat_op, {front.gelu(parts[0]), parts[1]}, {{"axis", int64_t{-1}}});
  front.g.outputs["y"] = front.layer("fc2", joined, hidden);
  front.differentiated().fused();
  EXPECT_EQ(count_nodes(front.g, lora_activated_op), 0);
}

// Small models of the shipped families, and how many feed-forward parts with gelu by tanh or gates of silu they have.
struct Family {
  const char* name;
  std::function<void(const fs::path&)> write;
  int64_t activations;
};
const Family families[] = {
    {"flux", [](const fs::path& path) { fs::copy_file(toy_denoiser(), path); }, 2 * 1 + 4},
    {"chroma", [](const fs::path& path) { write_small_chroma(path); },
     2 * small_chroma.double_blocks + small_chroma.single_blocks},
    // The last block has none of the text, which nothing reads any more.
    {"sd35_medium", [](const fs::path& path) { write_small_sd35(path, small_medium); }, 2 * small_medium.blocks - 1},
    {"sd35_large", [](const fs::path& path) { write_small_sd35(path, small_large); }, 2 * small_large.blocks - 1},
    {"qwen_image", [](const fs::path& path) { write_small_qwen_image(path); }, 2 * small_qwen_image.blocks - 1},
    // This gates by gelu (erf).
    {"sdxl", [](const fs::path& path) { write_small_sdxl(path); }, 0},
    {"flux2", [](const fs::path& path) { write_small_flux2(path, small_klein); },
     2 * small_klein.double_blocks + small_klein.single_blocks},
    {"z_image", [](const fs::path& path) { write_small_z_image(path); },
     small_z_image.layers + 2 * small_z_image.refiners}};

int64_t activations_in_layers(const Graph& g) {
  return count_nodes(g, lora_activated_op) + count_nodes(g, lora_group_gated_op);
}
int64_t activations_apart(const Graph& g) {
  return count_nodes(g, gelu_op) + std::ranges::count_if(g.nodes, [](const Node& node) {
           return node.op == &gated_activation_op && node.attrs.i("kind") == LK_SILU;
         });
}

class FuseActivationsFamily : public testing::TestWithParam<Family> {};

TEST_P(FuseActivationsFamily, PutsAllOfThemIntoLayers) {
  const TempDir dir;
  GetParam().write(dir / "model.safetensors");
  const OpenedModel opened(dir / "model.safetensors", "auto");
  for (const ActivationChoice choice :
       {ActivationChoice{}, ActivationChoice{0.5, 0}, ActivationChoice{1, 0}, ActivationChoice{0, 1}}) {
    SCOPED_TRACE(testing::Message() << choice.recompute << " made again, " << choice.offload << " in host memory");
    const Graph g = toy_graph(opened.model, choice).graph;
    EXPECT_GE(activations_in_layers(g), GetParam().activations);
    if (choice.recompute == 0) {
      EXPECT_EQ(activations_apart(g), 0);
      EXPECT_EQ(activations_in_layers(g), GetParam().activations);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, FuseActivationsFamily, testing::ValuesIn(families),
                         [](const auto& info) { return std::string(info.param.name); });

// Of the blocks and of four of the text: what they gate is attention's result, which no layer makes.
TEST(FuseActivations, SigmoidsGateInOnePass) {
  const TempDir dir;
  write_small_krea2(dir / "model.safetensors");
  const OpenedModel opened(dir / "model.safetensors", "auto");
  const Graph g = toy_graph(opened.model, ActivationChoice{}).graph;
  EXPECT_EQ(count_nodes(g, sigmoid_op), 0);
  EXPECT_EQ(std::ranges::count_if(
                g.nodes,
                [](const Node& node) { return node.op == &gated_activation_op && node.attrs.i("kind") == LK_SIGMOID; }),
            small_krea2.blocks + 4);
}

}  // namespace
}  // namespace lh::test::fuse_activations_test
