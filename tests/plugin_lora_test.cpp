// Files of a plugin's adapter that no table knows: merged, verified and refused by the plugin's own description.
#include "compile/plugin_lora.h"

#include <gmock/gmock.h>

#include "io/lora_inspect.h"
#include "io/lora_merge.h"
#include "io/lora_verify.h"
#include "lora/merge_loras.h"
#include "support/io_files.h"
#include "support/model_files.h"
#include "support/paths.h"

namespace lh::test::plugin_lora_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* yaml = R"(
components:
  denoiser:
    lora: {kohya: lora_unet_, native: "diffusion_model."}
    marker: a.weight
)";

HostTensor ramp(const Shape& shape, float step) {
  HostTensor t(Desc{DType::f32, shape});
  for (size_t i = 0; i < t.as<float>().size(); ++i) t.as<float>()[i] = step * static_cast<float>(i % 11) - 2 * step;
  return t;
}

class PluginLoraTest : public testing::Test {
 protected:
  const fs::path plugin = fs::path(binary_dir()) / "lib" / "lora-host-test" / "stranger.so";
  const Registry registry{{}, {plugin}};
  const CheckpointSpec spec = CheckpointSpec::parse(yaml, "test");
  const std::map<std::string, Desc> weights{{"a.weight", {DType::f32, {6, 5}}},
                                            {"a.bias", {DType::f32, {6}}},
                                            {"c.weight", {DType::f32, {4, 300, 3, 2}}}};  // in two parts of inputs
  TempDir dir;

  LoraInput file(const std::string& options, const NamedTensors& tensors, double strength = 1) const {
    const fs::path path = dir / "lora.safetensors";
    std::vector<TensorToWrite> list;
    for (const auto& [name, t] : tensors) list.push_back({name, t.desc, t.data.data()});
    write_safetensors(path, list,
                      {{network_entry, "stranger"},
                       {network_options_entry, options},
                       {network_layers_entry, R"({"":[2,4.0],"c":[3,3.0]})"}});
    return {path, strength, plugin_lora(registry, Safetensors(path))};
  }

  HostTensor merged(const LoraInput& input, const std::string& weight) const {
    HostTensor t = ramp(weights.at(weight).shape, 0.25f);
    LoraMerge(spec, weights, {input}).apply(weight, t.desc.shape, t.as<float>());
    return t;
  }
};

// Row r of the weight becomes 1 + strength s gain[r] times what it was, on linears and convolutions alike.
TEST_F(PluginLoraTest, WeightsAndOutputs) {
  const NamedTensors tensors{{"lora_unet_a.gain", ramp({6}, 0.5f)}, {"diffusion_model.c.gain", ramp({4}, 0.5f)}};
  for (const std::string how : {"weight", "output"}) {
    const LoraInput input = file("{how: " + how + ", strength: 3}", tensors, 0.5);
    ASSERT_NE(input.foreign, nullptr);
    for (const auto& [name, desc] : weights) {
      const HostTensor got = merged(input, name), base = ramp(desc.shape, 0.25f);
      const size_t row = base.as<float>().size() / static_cast<size_t>(desc.shape[0]);
      for (size_t i = 0; i < base.as<float>().size(); ++i) {
        const float gain = 0.5f * static_cast<float>(i / row) - 1;
        const float factor = how == "weight" && name == "a.bias" ? 1 : 1 + 0.5f * 3 * gain;
        ASSERT_NEAR(got.as<float>()[i], base.as<float>()[i] * factor, 1e-5) << how << " " << name << " " << i;
      }
    }
  }
}

// A pair that is counted from its start has twice the rank in files; its scale is the layer's alpha / rank.
TEST_F(PluginLoraTest, PairsOfTwiceTheRank) {
  const HostTensor a = ramp({4, 5}, 0.5f), b = ramp({6, 4}, 0.25f), a3 = ramp({6, 300, 3, 2}, 0.5f),
                   b3 = ramp({4, 6, 1, 1}, 0.25f);
  const LoraInput input = file("{how: pair}", {{"lora_unet_a.mine_a", a},
                                               {"lora_unet_a.mine_b", b},
                                               {"lora_unet_a.alpha", ramp({}, 1)},
                                               {"lora_unet_c.mine_a", a3},
                                               {"lora_unet_c.mine_b", b3}});
  for (const auto& [name, down, up, scale] :
       {std::tuple("a.weight", &a, &b, 2.0f), std::tuple("c.weight", &a3, &b3, 1.0f)}) {
    const HostTensor got = merged(input, name), base = ramp(weights.at(name).shape, 0.25f);
    const auto rank = static_cast<size_t>(down->desc.shape[0]), columns = down->as<float>().size() / rank;
    for (size_t i = 0; i < base.as<float>().size(); ++i) {
      float sum = 0;
      for (size_t k = 0; k < rank; ++k)
        sum += up->as<float>()[i / columns * rank + k] * down->as<float>()[k * columns + i % columns];
      ASSERT_NEAR(got.as<float>()[i], base.as<float>()[i] + scale * sum, 1e-4) << name << " " << i;
    }
  }
}

// As a plain LoRA: what the weights become, less what they were, at the rank that is asked for.
TEST_F(PluginLoraTest, MergesIntoALora) {
  const LoraInput input = file("{how: output, strength: 3}", {{"lora_unet_a.gain", ramp({6}, 0.5f)}}, 0.5);
  std::vector<Given> tensors;
  for (const auto& [name, desc] : weights) tensors.push_back({name, ramp(desc.shape, 0.25f)});
  write_file(dir / "base.safetensors", tensors);
  const Checkpoint base(spec, {{"name_or_path", dir / "base.safetensors"}});
  EXPECT_THAT(error_of([&] { merge_loras(spec, base, {input}, {}, Unmatched::refuse); }), HasSubstr("--rank"));
  const MergedLora plain = merge_loras(spec, base, {input}, {.rank = 5}, Unmatched::refuse);
  ASSERT_EQ(plain.modules.size(), 1u);
  write_lora(dir / "plain.safetensors", plain.modules, spec, "kohya", DType::f32, {});
  for (const std::string weight : {"a.weight", "a.bias"}) {
    const HostTensor got = merged({dir / "plain.safetensors", 1}, weight), want = merged(input, weight);
    for (size_t i = 0; i < want.as<float>().size(); ++i)
      ASSERT_NEAR(got.as<float>()[i], want.as<float>()[i], 1e-5) << weight << " " << i;
  }
}

TEST_F(PluginLoraTest, WhatDoesNotFitIsSaid) {
  const auto merge = [&](const std::string& options, const NamedTensors& tensors) {
    return error_of([&] { merged(file(options, tensors), "a.weight"); });
  };
  EXPECT_THAT(merge("{how: bent}", {{"lora_unet_a.gain", ramp({6}, 1)}}), HasSubstr("no linear function of the input"));
  EXPECT_THAT(merge("{}", {{"lora_unet_a.gain", ramp({5}, 1)}}),
              AllOf(HasSubstr("lora_unet_a.gain: it is float32 [5]"), HasSubstr("has [6] for a layer [6, 5]")));
  EXPECT_THAT(merge("{}", {{"lora_unet_a.gains", ramp({6}, 1)}}),
              AllOf(HasSubstr("has no such tensor"), HasSubstr("its gain [6] is missing")));
  EXPECT_THAT(merge("{}", {{"lora_unet_b.gain", ramp({6}, 1)}}), HasSubstr("no layer of this model has this name"));
  EXPECT_THAT(merge("{how: straight}", {{"lora_unet_a.gain", ramp({6}, 1)}}), HasSubstr("must be weight, output"));
  const LoraInput fine = file("{}", {{"lora_unet_a.gain", ramp({6}, 1)}});
  EXPECT_THAT(error_of([&] { plugin_lora(built_plugins(), Safetensors(fine.path)); }),
              AllOf(HasSubstr("adapter 'stranger' of a plugin"), HasSubstr("--plugin-dir")));
}

TEST_F(PluginLoraTest, VerifyAndInspectKnowIt) {
  const LoraInput input =
      file("{}", {{"lora_unet_a.gain", ramp({6}, 1)}, {"lora_unet_c.gain", ramp({4}, 1)}, {"x.gain", ramp({4}, 1)}});
  const LoraFile read = read_lora(input.path);
  const VerifyReport report = verify_lora(read, spec, weights, {}, input.foreign.get());
  ASSERT_EQ(report.programs.size(), 1u);
  EXPECT_EQ(report.programs[0].program, "lora-host");
  EXPECT_EQ(report.programs[0].loaded, 2);
  EXPECT_EQ(report.modules, 2);
  EXPECT_FALSE(report.good({}));
  EXPECT_THAT(lora_text(read, {}), AllOf(HasSubstr("adapter 'stranger' of a plugin, with {}"), HasSubstr("3 gain")));
}

}  // namespace
}  // namespace lh::test::plugin_lora_test
