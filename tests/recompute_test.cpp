// Recomputation: what is dropped is made again to the bit, whatever is chosen; and what is chosen costs least. For
// small models of all families also with activations in host memory.
#include "passes/recompute.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "core/error.h"
#include "ops/ops.h"
#include "passes/differentiate.h"
#include "passes/prune.h"
#include "support/device.h"
#include "support/model_shapes.h"
#include "support/run_host.h"
#include "support/toy_step.h"
#include "train/memory_planner.h"

namespace lh::test::recompute_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// Blocks of ops that keep the shape of what they are given, a loss, and gradients of the matrices in them.
struct RandomStep {
  explicit RandomStep(uint32_t seed) : random(seed) {
    const Desc rows{DType::f32, {static_cast<int64_t>(random() % 12) + 1, 64}};
    given["x"] = ramp(rows.shape, 1);
    given["target"] = ramp(rows.shape, 2);
    given["seed"] = HostTensor::from_floats({1}, std::vector<float>{1});
    Value x = g.add_input("x", rows);
    for (int block = 0; block < 3; ++block) {
      g.scopes.push_back({.path = "block" + std::to_string(block), .parent = 0, .checkpoint = true});
      x = grow(x, static_cast<int32_t>(g.scopes.size()) - 1);
    }
    const Value loss = g.add(mse_op, {x, g.add_input("target", rows), Value{}}, {}, 0)[0];
    g.outputs["loss"] = loss;
    prune(g);
    forward_count = g.nodes.size();
    std::vector<Value> trained;
    for (const auto& [name, v] : g.params) trained.push_back(v);
    for (const auto& [v, gradient] : differentiate(g, loss, g.add_input("seed", {DType::f32, {1}}), trained))
      if (gradient) g.outputs["grad." + g.info(v).name] = gradient;
    prune(g);
  }
  Graph g{DType::f32};
  size_t forward_count = 0;
  Tensors given;
  std::mt19937 random;

 private:
  Value grow(Value x, int32_t scope) {
    std::vector<Value> pool{x};
    const auto pick = [&] { return pool[random() % pool.size()]; };
    for (int n = 0; n < 10; ++n) {
      const Value v = pick();
      switch (random() % 8) {
        case 0: pool.push_back(g.add(tanh_op, {v}, {}, scope)[0]); break;
        case 1: pool.push_back(g.add(rms_norm_op, {v, Value{}}, {{"eps", 1e-3}}, scope)[0]); break;
        case 2: pool.push_back(g.add(mul_op, {v, pick()}, {}, scope)[0]); break;
        case 3: pool.push_back(g.add(add_op, {v, pick()}, {}, scope)[0]); break;
        case 4: {  // pieces that change places
          const std::vector<Value> cut =
              g.add(split_op, {v}, {{"axis", int64_t{1}}, {"sizes", std::vector<int64_t>{32, 32}}}, scope);
          const Value other = g.add(silu_op, {cut[0]}, {}, scope)[0];
          pool.push_back(g.add(concat_op, {cut[1], other}, {{"axis", int64_t{1}}}, scope)[0]);
          break;
        }
        case 5: {
          const int64_t numel = g.desc(v).shape.numel();
          const Value flat = g.add(reshape_op, {v}, {{"shape", std::vector<int64_t>{numel}}}, scope)[0];
          const Value made = g.add(sigmoid_op, {flat}, {}, scope)[0];
          pool.push_back(g.add(reshape_op, {made}, {{"shape", std::vector<int64_t>{numel / 64, 64}}}, scope)[0]);
          break;
        }
        default: {
          const std::string name = "w" + std::to_string(given.size());
          given[name] = ramp({64, 64}, static_cast<int64_t>(given.size()));
          const Value w = g.add_param(name, {DType::f32, {64, 64}});
          const Value product =
              g.add(matmul_op, {v, w}, {{"transpose_a", int64_t{0}}, {"transpose_b", int64_t{0}}}, scope)[0];
          pool.push_back(g.add(affine_op, {product}, {{"scale", 0.125}, {"shift", 0.0}}, scope)[0]);
        }
      }
    }
    Value sum = x;
    for (int n = 0; n < 3; ++n) sum = g.add(add_op, {sum, pick()}, {}, scope)[0];
    return g.add(tanh_op, {sum}, {}, scope)[0];
  }
};

Tensors without(Device& device, const RandomStep& step, const std::set<Value>& dropped) {
  Graph graph = step.g;
  recompute(graph, step.forward_count, dropped);
  prune(graph);
  Tensors given = step.given;
  std::erase_if(given, [&](const auto& item) {
    return !graph.params.contains(item.first) && !graph.inputs.contains(item.first);
  });
  return run_graph(device, graph, given);
}

TEST(Recompute, AnyChoiceGivesTheSameBits) {
  const uint32_t start = std::random_device{}();
  Device device(tested_device());
  size_t dropped_ones = 0;
  for (uint32_t seed = start; seed < start + 30; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomStep step(seed);
    const Tensors want = without(device, step, {});
    const std::set<Value> may = droppable(step.g, step.forward_count);
    const RecomputeLadder ladder(step.g, step.forward_count, plan_memory(step.g, external_to_step(step.g)),
                                 usual_rates);
    std::vector<std::set<Value>> choices{may, ladder.dropped(0.3), ladder.dropped(0.7), ladder.dropped(1)};
    for (int i = 0; i < 3; ++i) {
      std::set<Value>& some = choices.emplace_back();
      for (const Value v : may)
        if (step.random() % 2 == 0) some.insert(v);
    }
    for (const std::set<Value>& choice : choices) {
      EXPECT_TRUE(std::ranges::includes(may, choice));
      dropped_ones += choice.size();
      const Tensors got = without(device, step, choice);
      ASSERT_EQ(got.size(), want.size());
      for (const auto& [name, tensor] : want) EXPECT_EQ(got.at(name).data, tensor.data) << name;
    }
    if (testing::Test::HasFailure()) break;
  }
  EXPECT_GT(dropped_ones, 1000u);
}

int64_t peak_of(const Graph& graph) { return plan_memory(graph, external_to_step(graph)).live_peak; }

// Small models of the shipped families.
struct Small {
  const char* name;
  std::function<void(const fs::path&)> write;
};

class RecomputedFamily : public testing::TestWithParam<Small> {};

TEST_P(RecomputedFamily, LowersThePeakStepByStepAndChangesNoBit) {
  const TempDir dir;
  GetParam().write(dir / "model.safetensors");
  const OpenedModel opened(dir / "model.safetensors", "auto");
  const Ran want = run_step(opened.model, {});
  EXPECT_TRUE(std::isfinite(want.loss));
  EXPECT_GT(want.gradients.size(), 10u);
  EXPECT_TRUE(std::ranges::any_of(want.gradients, [](const auto& item) {
    return std::ranges::any_of(item.second.template as<float>(), [](float v) { return v != 0; });
  }));
  const int64_t most = peak_of(toy_graph(opened.model, {}).graph);
  int64_t last = most;
  for (const double share : {0.1, 0.4, 0.7, 1.0}) {
    SCOPED_TRACE(share);
    const TrainGraph t = toy_graph(opened.model, {share});
    EXPECT_GT(total(t.activations.again), 0);
    const int64_t peak = peak_of(t.graph);
    EXPECT_LE(peak, last);
    last = peak;
    const Ran got = run_step(opened.model, {share});
    EXPECT_EQ(got.loss, want.loss);
    for (const auto& [name, g] : want.gradients) EXPECT_EQ(got.gradients.at(name).data, g.data) << name;
  }
  EXPECT_LT(last, most);
  for (const ActivationChoice choice : {ActivationChoice{0, 1}, ActivationChoice{0.4, 0.6}}) {
    SCOPED_TRACE(testing::Message() << choice.recompute << " made again, " << choice.offload << " in host memory");
    const Graph graph = toy_graph(opened.model, choice).graph;
    // The way there and back takes two blocks each, so a model of few blocks sends nothing.
    if (toy_blocks(opened.model).size() > 4) {
      EXPECT_GT(offloaded_bytes(graph), 0);
      EXPECT_LT(peak_of(graph), most);
    }
    const Ran got = run_step(opened.model, choice);
    EXPECT_EQ(got.loss, want.loss);
    for (const auto& [name, g] : want.gradients) EXPECT_EQ(got.gradients.at(name).data, g.data) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, RecomputedFamily,
    testing::Values(Small{"flux", [](const fs::path& path) { fs::copy_file(toy_denoiser(), path); }},
                    Small{"sd35_medium", [](const fs::path& path) { write_small_sd35(path, small_medium); }},
                    Small{"sd35_large", [](const fs::path& path) { write_small_sd35(path, small_large); }},
                    Small{"chroma", [](const fs::path& path) { write_small_chroma(path); }},
                    Small{"sdxl", [](const fs::path& path) { write_small_sdxl(path); }}),
    [](const auto& info) { return std::string(info.param.name); });

// y = tanh(x w): a product, whose result is dear to make again, and an activation, which is cheap and of its size. The
// backward pass reads both.
TEST(RecomputeLadder, DropsWhatIsCheapForItsSizeFirst) {
  Graph g(DType::f32);
  const int64_t rows = 1 << 12, wide = 1 << 10;
  const Value w = g.add_param("w", {DType::f32, {wide, wide}});
  Value x = g.add_input("x", {DType::f32, {rows, wide}});
  std::vector<Value> products, activations, norms;
  for (int block = 0; block < 3; ++block) {
    g.scopes.push_back({.path = "b", .parent = 0, .checkpoint = true});
    const int32_t scope = static_cast<int32_t>(g.scopes.size()) - 1;
    norms.push_back(g.add(rms_norm_op, {x, Value{}}, {{"eps", 1e-3}}, scope)[0]);
    products.push_back(
        g.add(matmul_op, {norms.back(), w}, {{"transpose_a", int64_t{0}}, {"transpose_b", int64_t{0}}}, scope)[0]);
    activations.push_back(g.add(gelu_op, {products.back()}, {{"mode", std::string("tanh")}}, scope)[0]);
    const Value y =
        g.add(matmul_op, {activations.back(), w}, {{"transpose_a", int64_t{0}}, {"transpose_b", int64_t{0}}}, scope)[0];
    x = g.add(add_op, {x, y}, {}, scope)[0];
  }
  const Value loss = g.add(mse_op, {x, g.add_input("target", g.desc(x)), Value{}}, {}, 0)[0];
  g.outputs["loss"] = loss;
  const size_t forward_count = g.nodes.size();
  g.outputs["grad.w"] = differentiate(g, loss, g.add_input("seed", {DType::f32, {1}}), {w}).at(w);
  prune(g);
  const RecomputeLadder ladder(g, forward_count, plan_memory(g, external_to_step(g)),
                               {.products = 1e12, .memory = 1e12, .link = 1e10});
  const int64_t one = rows * wide * 4;
  EXPECT_EQ(ladder.freeable(), 9 * one);  // x of each block stays
  EXPECT_TRUE(ladder.dropped(0).empty());
  // Activations and norms cost the same, so that they go together, those of the first blocks first; then products.
  std::set<Value> cheap;
  for (size_t block = 0; block < 3; ++block) {
    cheap.insert({norms[block], activations[block]});
    const auto count = static_cast<int64_t>(cheap.size());
    const double share = static_cast<double>(count) / 9;
    EXPECT_EQ(ladder.dropped(share), cheap);
    EXPECT_EQ(total(ladder.kept(share).again), count * one);
    EXPECT_EQ(total(ladder.kept(share).kept), total(ladder.kept(0).kept) - count * one);
  }
  const std::set<Value> seven = ladder.dropped(7 / 9.0);
  EXPECT_TRUE(seven.contains(products[0]) && !seven.contains(products[1]));
  EXPECT_EQ(ladder.kept(7 / 9.0).again.at("products"), one);
  EXPECT_EQ(ladder.kept(1).again.at("products"), 3 * one);
}

// A piece that is read much later does not hold what it was joined to in memory.
TEST(Views, APieceThatIsReadMuchLaterLiesByItself) {
  Graph g(DType::f32);
  const Value x = g.add_input("x", {DType::f32, {64, 64}});
  const Value piece = g.add(tanh_op, {x}, {}, 0)[0], other = g.add(sigmoid_op, {x}, {}, 0)[0];
  const Value whole = g.add(concat_op, {piece, other, other, other}, {{"axis", int64_t{0}}}, 0)[0];
  Value y = g.add(sum_op, {whole}, {{"axes", std::vector<int64_t>{0, 1}}}, 0)[0];
  for (int n = 0; n < 20; ++n) y = g.add(tanh_op, {y}, {}, 0)[0];
  Graph late = g;
  g.outputs["y"] = y;
  late.outputs["y"] = late.add(mul_op, {piece, piece}, {}, 0)[0];
  late.outputs["z"] = y;
  EXPECT_EQ(plan_memory(g, {}).views[piece.id].root, whole.id);
  EXPECT_EQ(plan_memory(late, {}).views[piece.id].root, piece.id);
}

struct RecomputedRun : ToyRun {
  explicit RecomputedRun(const std::string& share) { config() += "memory: {recompute: " + share + "}\n"; }
};

TEST(RecomputedRun, TrainsTheSameLoraAndGoesOnWithAnotherShare) {
  RecomputedRun none("0"), some("40%");
  expect_trained(none.train());
  const HostResult plan = some.train({"--dry-run"});
  EXPECT_THAT(expect_trained(plan).output, HasSubstr("of activations, made again: "));
  some.set("save_every", "2");
  {
    HostProcess process(some.command());
    reaches(process, some, 3);
    process.send(SIGTERM);
    process.wait();
  }
  some.replace("40%", "100%");
  expect_trained(some.train({"--resume"}));
  EXPECT_EQ(get(some.lora()), get(none.lora()));
}

TEST(RecomputedRun, IsRefusedWhereTwoKeysDisagree) {
  RecomputedRun run("40%");
  run.replace("train:\n", "train:\n  gradient_checkpointing: true\n");
  const HostResult result = run.train();
  EXPECT_EQ(result.code, 2) << result.output;
  EXPECT_THAT(result.output, HasSubstr("memory.recompute: 40% and train.gradient_checkpointing: true say how much is "
                                       "recomputed, and not the same"));
}

TEST(MemoryWishes, SayHowMuchMayBeRecomputed) {
  struct Case {
    const char *checkpointing, *recompute;
    double least, most;
  };
  for (const Case& c : {Case{"auto", "auto", 0, 1}, Case{"true", "auto", 1, 1}, Case{"false", "auto", 0, 0},
                        Case{"auto", "35%", 0.35, 1}, Case{"auto", "0", 0, 0}, Case{"auto", "100%", 1, 1}}) {
    Config config;
    config.train.gradient_checkpointing = c.checkpointing;
    config.memory.recompute = c.recompute;
    const MemoryWishes wishes(config, 10);
    EXPECT_EQ(wishes.least_share, c.least) << c.checkpointing << " " << c.recompute;
    EXPECT_EQ(wishes.most_share, c.most) << c.checkpointing << " " << c.recompute;
  }
}

}  // namespace
}  // namespace lh::test::recompute_test
