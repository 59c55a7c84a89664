// The denoiser under a sampler, for small models of several families: guidance, blocks left out, size ids, samplers.
#include "sample/denoiser.h"

#include <gmock/gmock.h>

#include <cmath>

#include "support/device.h"
#include "support/golden.h"
#include "support/graph_run.h"
#include "support/model_files.h"
#include "support/paths.h"

namespace lh::test::denoiser_test {
namespace {

const SelectAdapter no_adapter = [](const std::string&) -> const AdapterSpec* { return nullptr; };

double difference(const HostTensor& a, const HostTensor& b) { return relative_error(a, b); }

HostTensor minus(const HostTensor& a, const HostTensor& b) {
  HostTensor out(a.desc);
  for (size_t i = 0; i < out.as<float>().size(); ++i) out.as<float>()[i] = a.as<float>()[i] - b.as<float>()[i];
  return out;
}

// The model of a golden case, with made-up conditioning for two prompts.
class SmallModel {
 public:
  explicit SmallModel(const std::string& case_name)
      : case_(std::filesystem::path(test_data()) / "golden" / case_name), device_(tested_device()) {
    std::vector<Given> weights;
    for (const auto& [key, spec] : case_.json.at("weights").items()) weights.push_back({key, case_.tensor(key, spec)});
    write_file(dir_ / "model.safetensors", weights);
    ModelConfig config;
    config.name_or_path = dir_ / "model.safetensors";
    model_.emplace(built_plugins(), config, "");
    text_.emplace(device_, *model_, DType::f32, std::filesystem::path());
    length_ = case_.input("text").desc.shape[1];
    int64_t seed = 0;
    for (const std::string prompt : {"a cat", "blurred"}) {
      NamedTensors conditioning;
      for (const auto& [input, spec] : recipe().inputs) {
        if (spec.source != InputSpec::Source::conditioner) continue;
        Shape shape = case_.input(input).desc.shape.with(0, 1);
        if (!spec.mask.empty() && prompt == "blurred") shape = shape.with(1, shape[1] - 2);  // a shorter one
        conditioning.emplace(spec.of, ramp(shape, ++seed));
      }
      text_->give(prompt, std::move(conditioning));
    }
  }

  const Recipe& recipe() const { return model_->recipe(); }

  HostTensor sample(SampleConfig config) {
    config.neg = "blurred";
    config.width = config.height = 64;
    const SampleRequest request = complete_request(config, recipe(), "a cat", 5);
    Denoiser denoiser(device_, *model_, no_adapter, DType::f32, choose_sampler(built_plugins(), recipe(), config),
                      request, {{"text_length", length_}});
    const Weights weights(device_, model_->checkpoint(), denoiser.graph());
    const DeviceMemory arena(device_, denoiser.memory().arena, "activations");
    denoiser.bind(arena.data(), weights, nullptr);
    return denoiser.sample(request, *text_, {}, [] { return false; });
  }

 private:
  TempDir dir_;
  golden::Case case_;
  Device device_;
  std::optional<Model> model_;
  std::optional<TextEncoding> text_;
  int64_t length_ = 0;
};

class DenoiserOf : public testing::TestWithParam<const char*> {};

// Both prompts in a batch differ from one after the other by the order of float32 sums only: next to nothing beside
// what guidance changes. Without guidance the negative prompt is not looked at.
TEST_P(DenoiserOf, GuidanceInABatchIsThatOfOneAfterTheOther) {
  SmallModel model(GetParam());
  SampleConfig config{.sample_steps = 2, .guidance_scale = 3.0, .skip_layer_guidance_scale = 0};
  const HostTensor one_by_one = model.sample(config);
  config.batch_cfg = true;
  const HostTensor batched = model.sample(config);
  config.guidance_scale = 1;
  const HostTensor unguided = model.sample(config);
  config.batch_cfg = false;
  EXPECT_EQ(model.sample(config).data, unguided.data);
  EXPECT_GT(difference(unguided, one_by_one), 0);
  EXPECT_LE(difference(batched, one_by_one), 1e-3 * difference(unguided, one_by_one));
}

// Where it ends at once it is as if there was none; where it ends on the way, and where its norm is taken back, it is
// something between.
TEST_P(DenoiserOf, GuidanceEndsAndIsTakenBack) {
  SmallModel model(GetParam());
  const auto sample = [&](SampleConfig config) {
    config.sample_steps = 4;
    config.guidance_scale = config.guidance_scale.value_or(4.0);
    config.skip_layer_guidance_scale = model.recipe().sampling.skip_layer_guidance ? std::optional(0.0) : std::nullopt;
    return model.sample(config);
  };
  const double behind_the_first = model.recipe().objective == Objective::flow ? 0.02 : 0.4;
  const HostTensor whole = sample({}), none = sample({.guidance_scale = 1.0});
  EXPECT_EQ(sample({.cfg_trunc_ratio = 0}).data, none.data);
  EXPECT_EQ(sample({.cfg_trunc_ratio = 1}).data, whole.data);
  EXPECT_EQ(sample({.cfg_trunc_ratio = 0, .batch_cfg = true}).desc.shape, none.desc.shape);
  for (const SampleConfig& config : {SampleConfig{.cfg_trunc_ratio = behind_the_first}, SampleConfig{.renorm_cfg = 0.5},
                                     SampleConfig{.do_cfg_norm = true}, SampleConfig{.guidance_rescale = 0.7}}) {
    const HostTensor out = sample(config);
    for (const HostTensor* other : {&whole, &none}) EXPECT_NE(out.data, other->data);
  }
}

// Every sampler for the model gives numbers, each its own.
TEST_P(DenoiserOf, SamplersRun) {
  SmallModel model(GetParam());
  const bool flow = model.recipe().objective == Objective::flow;
  std::vector<const char*> samplers{"euler", "heun", "ddim", "dpmpp_2m"};
  for (const char* more : {"euler_a", "dpm++ 2m karras"})
    if (!flow) samplers.push_back(more);
  std::map<std::string, HostTensor> images;
  for (const char* sampler : samplers) {
    const HostTensor out = model.sample({.sampler = sampler, .sample_steps = 2, .guidance_scale = 1.0});
    for (const float v : out.as<float>()) ASSERT_TRUE(std::isfinite(v)) << sampler;
    for (const auto& [other, image] : images) EXPECT_NE(out.data, image.data) << sampler << " and " << other;
    images[sampler] = out;
  }
}

INSTANTIATE_TEST_SUITE_P(All, DenoiserOf,
                         testing::Values("flux_schnell_tiny", "chroma_tiny", "sd35_medium_tiny", "sdxl_tiny"),
                         [](const auto& info) { return std::string(info.param); });

// In the last of two Euler steps, out is changed by scale (c - s), so x by sigma times that: in proportion to the
// scale, to the last bits of x.
TEST(Denoiser, SkipLayerGuidanceGrowsWithItsScale) {
  SmallModel model("sd35_medium_tiny");
  ASSERT_TRUE(model.recipe().sampling.skip_layer_guidance);
  const auto sample = [&](double scale, double start, double stop) {
    return model.sample({.sample_steps = 2,
                         .guidance_scale = 2.0,
                         .skip_guidance_layers = {0},
                         .skip_layer_guidance_scale = scale,
                         .skip_layer_guidance_start = start,
                         .skip_layer_guidance_stop = stop});
  };
  const HostTensor none = sample(0, 0.01, 1), once = sample(1, 0.01, 1), twice = sample(2, 0.01, 1);
  EXPECT_GT(difference(once, none), 1e-3);
  const double rounding = 8 * 0x1p-24 / difference(once, none);
  HostTensor doubled = minus(once, none);
  for (float& v : doubled.as<float>()) v *= 2;
  EXPECT_LE(difference(minus(twice, none), doubled), rounding);
  // Neither the first nor the last step is inside.
  EXPECT_EQ(sample(1, 0.01, 0.5).data, none.data);
  EXPECT_EQ(sample(1, 0.5, 1).data, none.data);
}

TEST(Denoiser, SkippedLayersThatAreNotThereAreNamed) {
  SmallModel model("sd35_medium_tiny");
  EXPECT_THAT(error_of([&] { model.sample({.sample_steps = 2, .guidance_scale = 2.0, .skip_guidance_layers = {99}}); }),
              testing::HasSubstr("skip_layers: there is no block 99"));
}

}  // namespace
}  // namespace lh::test::denoiser_test
