// The pass that puts residual connections into the layers before them: where it does, where it does not, and what
// becomes of the results.
#include "passes/fuse_residuals.h"

#include <gmock/gmock.h>

#include <cmath>

#include "ops/lora_added.h"
#include "support/anima_shapes.h"
#include "support/ernie_image_shapes.h"
#include "support/flux2_shapes.h"
#include "support/ideogram4_shapes.h"
#include "support/krea2_shapes.h"
#include "support/layer_graph.h"
#include "support/model_shapes.h"
#include "support/qwen_image21_shapes.h"
#include "support/qwen_image_shapes.h"
#include "support/toy_step.h"
#include "support/wan_shapes.h"

namespace lh::test::fuse_residuals_test {
namespace {

namespace fs = std::filesystem;

struct Residuals : LayerGraph {
  using LayerGraph::LayerGraph;

  // z = x + fc1(tanh x),  y = fc2(tanh z) + z
  Residuals& two() {
    const Value z = one(add_op, {x, layer("fc1", one(tanh_op, {x}), width)});
    g.outputs["y"] = one(add_op, {layer("fc2", one(tanh_op, {z}), width), z});
    return *this;
  }
  Residuals& fused() {
    fuse_residuals(g);
    return *this;
  }
  Residuals& differentiated() {
    add_gradients();
    return *this;
  }
};

TEST(FuseResiduals, PutsThemIntoLayers) {
  const Residuals plain = Residuals().two().differentiated(), fused = Residuals().two().fused().differentiated();
  EXPECT_EQ(count_nodes(fused.g, lora_added_op), 2);
  EXPECT_EQ(count_nodes(fused.g, lora_op), 0);
  EXPECT_EQ(fused.g.nodes.size() + 2, plain.g.nodes.size());
  // A GPU's product begins with what it adds to, so that the last places of its sum are others.
  if (tested_device() == "cpu") expect_same_bits(plain, fused);
}

// What is rounded once is no farther from the results in float32 than what is rounded twice, but for a part that
// chance may add.
TEST(FuseResiduals, RoundsOnce) {
  Device device(tested_device());
  const Tensors exact = run_graph(device, Residuals().two().differentiated());
  for (const DType type : {DType::f16, DType::bf16}) {
    const Tensors plain = run_graph(device, Residuals(type).two().differentiated()),
                  fused = run_graph(device, Residuals(type).two().fused().differentiated());
    for (const auto& [name, want] : exact) {
      const auto error = [&](const Tensors& all) {
        HostTensor f32(want.desc);
        convert(all.at(name).desc.dtype, all.at(name).data.data(), DType::f32, f32.data.data(),
                want.desc.shape.numel());
        return relative_error(f32, want);
      };
      EXPECT_LE(error(fused), 1.5 * error(plain) + std::ldexp(1.0, type == DType::f16 ? -11 : -8)) << name;
    }
  }
}

TEST(FuseResiduals, LeavesOthers) {
  Residuals read;  // by something else, too
  const Value before = read.one(tanh_op, {read.x}), y = read.layer("fc1", read.x, LayerGraph::width);
  read.g.outputs["y"] = read.one(mul_op, {read.one(add_op, {y, before}), y});
  EXPECT_EQ(count_nodes(read.fused().g, lora_added_op), 0);

  Residuals own;  // its own input
  own.g.outputs["y"] = own.one(add_op, {own.layer("fc1", own.x, LayerGraph::width), own.x});
  EXPECT_EQ(count_nodes(own.fused().g, lora_added_op), 0);

  Residuals later;  // what is added is made behind the layer
  const Value first = later.layer("fc1", later.x, LayerGraph::width);
  const Value behind = later.one(tanh_op, {later.x});
  later.g.outputs["y"] = later.one(add_op, {first, behind});
  EXPECT_EQ(count_nodes(later.fused().g, lora_added_op), 0);

  Residuals spread;  // one row for all
  spread.g.outputs["y"] =
      spread.one(add_op, {spread.layer("fc1", spread.x, LayerGraph::width), spread.param("row", {LayerGraph::width})});
  EXPECT_EQ(count_nodes(spread.fused().g, lora_added_op), 0);

  Residuals twice;
  const Value same = twice.layer("fc1", twice.x, LayerGraph::width);
  twice.g.outputs["y"] = twice.one(add_op, {same, same});
  EXPECT_EQ(count_nodes(twice.fused().g, lora_added_op), 0);
}

// Small models of the shipped families, and how many such sums they have: most gate what they add.
struct Family {
  const char* name;
  std::function<void(const fs::path&)> write;
  int64_t residuals;
};
const Family families[] = {
    // Behind both attentions and the feed-forward part of 14 blocks, and behind 11 stacks of them.
    {"sdxl", [](const fs::path& path) { write_small_sdxl(path); }, 3 * 14 + 11},
    {"flux", [](const fs::path& path) { fs::copy_file(toy_denoiser(), path); }, 0},
    {"chroma", [](const fs::path& path) { write_small_chroma(path); }, 0},
    {"sd35_large", [](const fs::path& path) { write_small_sd35(path, small_large); }, 0},
    {"qwen_image", [](const fs::path& path) { write_small_qwen_image(path); }, 0},
    {"qwen_image21", write_small_qwen_image21, 0},
    {"krea2", write_small_krea2, 2 * 4},  // of the blocks of the text, which are not modulated
    {"ideogram4", write_small_ideogram4, 0},
    {"wan", write_small_wan, small_wan.blocks},  // behind the attention to the text
    {"anima", write_small_anima, 0},
    {"ernie_image", write_small_ernie_image, 0},
    {"flux2", [](const fs::path& path) { write_small_flux2(path, small_klein); }, 0},
    {"z_image", [](const fs::path& path) { write_small_z_image(path); }, 0}};

class FuseResidualsFamily : public testing::TestWithParam<Family> {};

TEST_P(FuseResidualsFamily, PutsAllOfThemIntoLayers) {
  const TempDir dir;
  GetParam().write(dir / "model.safetensors");
  const OpenedModel opened(dir / "model.safetensors", "auto");
  for (const ActivationChoice choice : {ActivationChoice{}, ActivationChoice{0.5, 0}, ActivationChoice{0, 1}}) {
    SCOPED_TRACE(testing::Message() << choice.recompute << " made again, " << choice.offload << " in host memory");
    const int64_t found = count_nodes(toy_graph(opened.model, choice).graph, lora_added_op);
    if (choice.recompute == 0)
      EXPECT_EQ(found, GetParam().residuals);
    else
      EXPECT_GE(found, GetParam().residuals);
  }
}

INSTANTIATE_TEST_SUITE_P(All, FuseResidualsFamily, testing::ValuesIn(families),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace lh::test::fuse_residuals_test
