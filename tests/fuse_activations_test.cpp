// The pass that puts activations into the layers beside them: where it does, where it does not, and that no bit of a
// result changes.
#include "passes/fuse_activations.h"

#include <gmock/gmock.h>

#include "ops/lora_activated.h"
#include "ops/ops.h"
#include "run/plan.h"
#include "support/device.h"
#include "support/flux2_shapes.h"
#include "support/graph_run.h"
#include "support/layer_graph.h"
#include "support/model_shapes.h"
#include "support/qwen_image_shapes.h"
#include "support/toy_step.h"

namespace lh::test {
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

// Small models of the shipped families, and how many feed-forward parts with gelu by tanh they have.
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
    // These gate.
    {"sdxl", [](const fs::path& path) { write_small_sdxl(path); }, 0},
    {"flux2", [](const fs::path& path) { write_small_flux2(path, small_klein); }, 0},
    {"z_image", [](const fs::path& path) { write_small_z_image(path); }, 0}};

class FuseActivationsFamily : public testing::TestWithParam<Family> {};

TEST_P(FuseActivationsFamily, PutsAllOfThemIntoLayers) {
  const TempDir dir;
  GetParam().write(dir / "model.safetensors");
  const OpenedModel opened(dir / "model.safetensors", "auto");
  for (const ActivationChoice choice :
       {ActivationChoice{}, ActivationChoice{0.5, 0}, ActivationChoice{1, 0}, ActivationChoice{0, 1}}) {
    SCOPED_TRACE(testing::Message() << choice.recompute << " made again, " << choice.offload << " in host memory");
    const Graph g = toy_graph(opened.model, choice).graph;
    const int64_t again = count_nodes(g, lora_activated_op) + count_nodes(g, gelu_op) - GetParam().activations;
    EXPECT_GE(count_nodes(g, lora_activated_op), GetParam().activations);
    if (choice.recompute == 0) {
      EXPECT_EQ(again, 0);
      EXPECT_EQ(count_nodes(g, lora_activated_op), GetParam().activations);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, FuseActivationsFamily, testing::ValuesIn(families),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace lh::test
