// Training that starts from a LoRA file: the first step changes the very weights that the file makes. And what is
// trained is what sampling with the file shows.
#include "compile/warm_start.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "data/image.h"
#include "io/lora_file.h"
#include "support/device.h"
#include "support/graph_run.h"
#include "support/log.h"
#include "support/run_host.h"

namespace lh::test::warm_start_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr const char* yaml = R"(
components:
  denoiser:
    lora: {kohya: lora_unet_, diffusers: "transformer.", native: "diffusion_model."}
    marker: a.qkv.weight
    diffusers:
      - {native: a.qkv, from: [t.to_q, t.to_k, t.to_v]}
      - {native: a.mod, from: t.norm, how: swap_halves}
      - {native: a.conv, from: t.conv}
      - {native: a.other, from: t.other}
  clip:
    lora: {kohya: lora_te1_}
    marker: fc.weight
)";

struct Target {
  const char* name;
  Shape weight;
};
const std::vector<Target>& targets() {
  static const std::vector<Target> all{
      {"a.qkv", {12, 4}}, {"a.mod", {8, 4}}, {"a.conv", {6, 4, 3, 3}}, {"clip:fc", {5, 4}}};
  return all;
}

class WarmStartTest : public ::testing::Test {
 protected:
  WarmStartTest() : device(tested_device()) {
    for (const Target& t : targets()) weights[std::string(t.name) + ".weight"] = {DType::f32, t.weight};
    weights["a.other.weight"] = {DType::f32, {4, 4}};
  }

  // Adapters as a run makes them.
  std::unique_ptr<Adapters> adapters(int64_t rank, double alpha) {
    Graph graph(DType::f32);
    std::vector<AdaptedModule> modules;
    for (const Target& t : targets()) {
      const Shape up = t.weight.rank() == 4 ? Shape{t.weight[0], rank, 1, 1} : Shape{t.weight[0], rank};
      const std::string name = t.name;
      const Value a = graph.add_param(down_name(name), {DType::f32, t.weight.with(0, rank)});
      const Value b = graph.add_param(up_name(name), {DType::f32, up});
      modules.push_back({.name = name,
                         .tensors = {{a, down_key, TensorRole::down, {InitialValue::Kind::uniform, 0.5}},
                                     {b, up_key, TensorRole::up}},
                         .rank = rank,
                         .alpha = alpha});
    }
    auto made = std::make_unique<Adapters>(graph, modules);
    made->allocate(device);
    made->initialise(3);
    return made;
  }

  static LoraModule module(const std::string& name, const Shape& weight, int64_t rank, double alpha) {
    const Shape up = weight.rank() == 4 ? Shape{weight[0], rank, 1, 1} : Shape{weight[0], rank};
    return {name, ramp(weight.with(0, rank), static_cast<int64_t>(name.size())),
            ramp(up, 7 + static_cast<int64_t>(name.size())), alpha};
  }
  static std::vector<LoraModule> modules(int64_t rank, double alpha) {
    std::vector<LoraModule> all;
    for (const Target& t : targets()) all.push_back(module(t.name, t.weight, rank, alpha));
    return all;
  }

  // alpha / rank up down, in float64.
  static std::vector<double> delta(const LoraModule& m) {
    const auto rank = static_cast<size_t>(m.down.desc.shape[0]), rows = static_cast<size_t>(m.up.desc.shape[0]);
    const auto down = m.down.as<float>(), up = m.up.as<float>();
    const size_t in = down.size() / rank;
    std::vector<double> out(rows * in);
    for (size_t o = 0; o < rows; ++o)
      for (size_t r = 0; r < rank; ++r)
        for (size_t i = 0; i < in; ++i)
          out[o * in + i] += m.alpha / static_cast<double>(rank) * up[o * rank + r] * down[r * in + i];
    return out;
  }

  std::vector<LoraModule> started(Adapters& trained) const {
    WarmStart(path, spec, weights, trained).apply(trained);
    return trained.modules();
  }
  std::string error(const Adapters& trained) const {
    return error_of([&] { WarmStart(path, spec, weights, trained); });
  }

  // Numbers are below 1, sums have at most 12 terms, up is scaled once.
  static void expect_same_change(const LoraModule& got, const LoraModule& want) {
    const auto a = delta(got), b = delta(want);
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 12 * 6e-8 * 4) << want.name << " " << i;
  }

  TempDir dir;
  std::filesystem::path path = dir / "lora.safetensors";
  CheckpointSpec spec = CheckpointSpec::parse(yaml, "tiny");
  std::map<std::string, Desc> weights;
  Device device;
};

TEST_F(WarmStartTest, SameRankAndAlphaAreTakenToTheBit) {
  write_lora(path, modules(2, 3), spec, "kohya", DType::f32, {});
  const auto trained = adapters(2, 3);
  const auto got = started(*trained), want = modules(2, 3);
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(got[i].down.data, want[i].down.data) << want[i].name;
    EXPECT_EQ(got[i].up.data, want[i].up.data) << want[i].name;
  }
}

TEST_F(WarmStartTest, AnotherAlphaOrASmallerRankIsTheSameChange) {
  for (const auto& [rank, alpha] : {std::pair{2, 5.0}, std::pair{4, 1.0}, std::pair{7, 7.0}}) {
    write_lora(path, modules(2, 3), spec, "kohya", DType::f32, {});
    const auto trained = adapters(rank, alpha);
    const auto fresh = trained->modules();
    const auto got = started(*trained), want = modules(2, 3);
    for (size_t i = 0; i < want.size(); ++i) {
      expect_same_change(got[i], want[i]);
      // Further rows start as new ones, so that they learn.
      const size_t row = got[i].down.as<float>().size() / static_cast<size_t>(rank);
      for (size_t k = 2 * row; k < got[i].down.as<float>().size(); ++k)
        ASSERT_EQ(got[i].down.as<float>()[k], fresh[i].down.as<float>()[k]);
    }
  }
}

// What diffusers has in parts with one down fits the rank that it was trained with.
TEST_F(WarmStartTest, SplitFileOfAFusedModule) {
  std::vector<LoraModule> without_encoder = modules(2, 3);
  without_encoder.pop_back();
  write_lora(path, without_encoder, spec, "diffusers", DType::f32, {});
  const auto trained = adapters(2, 2);
  const std::string fresh = [&] {
    const auto all = trained->modules();
    return std::string(reinterpret_cast<const char*>(all[3].down.data.data()), all[3].down.data.size());
  }();
  const auto got = started(*trained);
  for (size_t i = 0; i < without_encoder.size(); ++i) expect_same_change(got[i], without_encoder[i]);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(got[3].down.data.data()), got[3].down.data.size()), fresh)
      << "a module that the file does not have starts as a new one";
  for (const float v : got[3].up.as<float>()) ASSERT_EQ(v, 0);
}

// Parts that were trained apart stand one after the other: three times the rank.
TEST_F(WarmStartTest, PartsTrainedApart) {
  std::vector<Given> tensors;
  const char* const parts[] = {"q", "k", "v"};
  for (int64_t i = 0; i < 3; ++i) {
    const std::string name = fmt::format("transformer.t.to_{}", parts[i]);
    tensors.push_back({name + ".lora_A.weight", ramp({2, 4}, i)});
    tensors.push_back({name + ".lora_B.weight", ramp({4, 2}, 10 + i)});
  }
  write_file(path, tensors);
  EXPECT_THAT(error(*adapters(4, 4)), AllOf(HasSubstr("need rank 6"), HasSubstr("set network.linear: 6 or more")));
  const auto trained = adapters(6, 3);
  const auto got = delta(started(*trained)[0]);
  for (int64_t i = 0; i < 3; ++i) {
    const auto want = delta({"", ramp({2, 4}, i), ramp({4, 2}, 10 + i), 2});
    for (size_t k = 0; k < want.size(); ++k) ASSERT_NEAR(got[static_cast<size_t>(i) * 16 + k], want[k], 1e-6) << i;
  }
}

TEST_F(WarmStartTest, WhatCannotBeContinuedIsSaid) {
  const Given down{"lora_unet_a_qkv.lora_down.weight", ramp({2, 4}, 1)},
      up{"lora_unet_a_qkv.lora_up.weight", ramp({12, 2}, 2)};
  struct Case {
    std::vector<Given> tensors;
    std::string why;
  };
  const std::vector<Case> cases{
      {{down, up, {"lora_unet_a_qkv.dora_scale", ramp({1, 4}, 3)}}, "DoRA cannot be continued as a plain LoRA"},
      {{{"lora_unet_a_qkv.lokr_w1", ramp({3, 2}, 1)}, {"lora_unet_a_qkv.lokr_w2", ramp({4, 2}, 1)}},
       "LoKr cannot be continued"},
      {{{"lora_unet_a_qkv.diff", ramp({12, 4}, 1)}}, "not a pair of matrices"},
      {{down,
        up,
        {"lora_unet_a_other.lora_down.weight", ramp({2, 4}, 1)},
        {"lora_unet_a_other.lora_up.weight", ramp({4, 2}, 1)}},
       "a.other is not trained by this run"},
      {{down}, "its up (or B) matrix is missing"},
      {{down, {up.name, ramp({11, 2}, 1)}}, "it changes [11, 4], the weight is [12, 4]"},
      {{{"lora_unet_b.lora_down.weight", ramp({2, 4}, 1)}, {"lora_unet_b.lora_up.weight", ramp({4, 2}, 1)}},
       "no layer of this model has this name"},
      {{down,
        up,
        {"transformer.t.to_k.lora_A.weight", ramp({2, 4}, 1)},
        {"transformer.t.to_k.lora_B.weight", ramp({4, 2}, 1)}},
       "two modules of the file change the same weight"}};
  const auto trained = adapters(8, 8);
  for (const Case& c : cases) {
    write_file(path, c.tensors);
    EXPECT_THAT(error(*trained), AllOf(HasSubstr("network.pretrained_lora_path"), HasSubstr(c.why)));
  }
}

// Else the run's first step has one, and advice on its learning rate.
TEST_F(WarmStartTest, ANaNIsTheFiles) {
  HostTensor up = ramp({12, 2}, 2);
  up.as<float>()[5] = std::numeric_limits<float>::quiet_NaN();
  write_file(path, {{"lora_unet_a_qkv.lora_down.weight", ramp({2, 4}, 1)}, {"lora_unet_a_qkv.lora_up.weight", up}});
  EXPECT_THAT(error(*adapters(8, 8)), HasSubstr("1 of 24 values of `lora_unet_a_qkv.lora_up.weight` are a NaN"));
}

// ---- whole runs

double largest_difference(const std::filesystem::path& a, const std::filesystem::path& b) {
  const Image first = decode_image(a), second = decode_image(b);
  EXPECT_EQ(first.rgb.size(), second.rgb.size());
  double largest = 0;
  for (size_t i = 0; i < std::min(first.rgb.size(), second.rgb.size()); ++i)
    largest = std::max(largest, std::abs(static_cast<double>(first.rgb[i]) - second.rgb[i]));
  return largest;
}

// A sample while training has the adapters beside the weights, `sample --lora` has them merged into the weights: the
// same image, to the rounding of float32 through 2 steps and the decoder.
TEST(LoraEndToEnd, MergedIsWhatWasTrained) {
  ToyRun run;
  run.set("sample_every", "6")
      .set("prompts", "[a photo]")
      .set("lr", "1e-2")
      .replace("save_every: 2", "save_every: 0\n  dtype: float32");
  run.replace("sample_every: 6", "sample_every: 6\n  sample_at_start: true");
  const HostResult trained = run.train();
  ASSERT_EQ(trained.code, 0) << trained.output;
  const auto before = run.output() / "samples" / "000000000_0.png",
             after = run.output() / "samples" / "000000006_0.png";
  const auto sample = [&](const std::vector<std::string>& more) {
    const auto image = run.folder() / "sample.png";
    std::vector<std::string> words{"sample", "--config",     (run.folder() / "train.yaml").string(),
                                   "--out",  image.string(), "--force"};
    words.insert(words.end(), more.begin(), more.end());
    const HostResult result = run_host(words);
    EXPECT_EQ(result.code, 0) << result.output;
    return image;
  };
  EXPECT_GT(largest_difference(before, after), 16) << "training changed nothing to be seen";
  EXPECT_LE(largest_difference(sample({"--lora", run.lora().string()}), after), 1);
  EXPECT_LE(largest_difference(sample({}), before), 1);

  // A run that starts from the file begins where the other one ended, and is continued with it only.
  ToyRun second;
  second.set("sample_every", "1").set("prompts", "[a photo]").set("steps", "1");
  second.replace("sample_every: 1", "sample_every: 1\n  sample_at_start: true");
  second.replace("linear: 2", "linear: 3\n  pretrained_lora_path: " + run.lora().string());
  const HostResult started = second.train();
  ASSERT_EQ(started.code, 0) << started.output;
  EXPECT_THAT(started.output, HasSubstr("starting from"));
  EXPECT_LE(largest_difference(second.output() / "samples" / "000000000_0.png", after), 1);
  second.replace("\n  pretrained_lora_path: " + run.lora().string(), "");
  const HostResult other = second.train({"--resume"});
  EXPECT_EQ(other.code, 2) << other.output;
  EXPECT_THAT(other.output, HasSubstr("network.pretrained_lora_path: the saved run has"));
}

}  // namespace
}  // namespace lh::test::warm_start_test
