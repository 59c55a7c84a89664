// Samples of a training run that differ in size, steps, guidance and strength, and LoRA files that are part of the
// model in training or in samples alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/image.h"
#include "io/safetensors.h"
#include "support/device.h"
#include "support/image_files.h"
#include "support/paths.h"
#include "support/run_host.h"

namespace lh::test::sample_set_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

std::vector<uint8_t> sample(const ToyRun& run, int64_t step, int64_t index) {
  return pixels_of(run.output() / "samples" / fmt::format("{:09}_{}.png", step, index));
}
std::string metrics(const ToyRun& run) { return get(run.output() / "metrics.csv"); }

// Two steps with samples before and after them.
struct Sampled : ToyRun {
  explicit Sampled(const std::string& prompts) {
    set("steps", "2").set("sample_every", "2").set("prompts", prompts).set("lr", "1e-2");
    replace("sample:\n", "sample:\n  sample_at_start: true\n");
  }
};

TEST(SampleSet, EachImageHasItsOwnSizeStepsSeedAndStrength) {
  const Sampled run(
      "[{prompt: a photo, width: 64, height: 128}, \"a photo --w 128 --s 3 --d 7\", "
      "{prompt: a photo, network_multiplier: 0}, a photo, {prompt: a photo, guidance_scale: 2}]");
  expect_trained(run.train());
  const std::pair<int64_t, int64_t> sizes[] = {{64, 128}, {128, 64}, {64, 64}, {64, 64}, {64, 64}};
  for (int64_t i = 0; i < 5; ++i) {
    const Image image = decode_image(run.output() / "samples" / fmt::format("{:09}_{}.png", 2, i));
    EXPECT_EQ(image.width, sizes[i].first) << i;
    EXPECT_EQ(image.height, sizes[i].second) << i;
  }
  EXPECT_EQ(sample(run, 0, 2), sample(run, 0, 3));  // before the first step the adapter changes nothing
  EXPECT_EQ(sample(run, 2, 2), sample(run, 0, 2));  // nor at strength 0
  EXPECT_NE(sample(run, 2, 3), sample(run, 0, 3));
  EXPECT_NE(sample(run, 0, 4), sample(run, 0, 3));
}

TEST(SampleSet, StrengthIsForEveryAdapter) {
  Sampled run(
      "[{prompt: a photo, network_multiplier: 0}, {prompt: a photo, network_multiplier: 0.5}, a photo, "
      "{prompt: a photo, network_multiplier: 1}]");
  run.replace("  linear: 2\n", "  linear: 2\n  type: dora\n");
  expect_trained(run.train());
  EXPECT_EQ(sample(run, 2, 0), sample(run, 0, 2));
  EXPECT_NE(sample(run, 2, 1), sample(run, 2, 0));
  EXPECT_NE(sample(run, 2, 1), sample(run, 2, 2));
  EXPECT_EQ(sample(run, 2, 3), sample(run, 2, 2));
}

// A LoRA of the toy model that changes what it says.
fs::path trained_lora() {
  static ToyRun run;
  if (!fs::exists(run.lora())) {
    run.set("lr", "1e-2");
    expect_trained(run.train());
  }
  return run.lora();
}

struct WithModelLora : Sampled {
  // strength: behind the file, as it is written.
  explicit WithModelLora(const std::string& key, const std::string& strength = "") : Sampled("[a photo, a house]") {
    if (!key.empty()) replace("model:\n", fmt::format("model:\n  {}: {}{}\n", key, trained_lora().string(), strength));
    expect_trained(train());
  }
};

TEST(ModelLoras, AreInTrainingInSamplesOrInBoth) {
  const WithModelLora none(""), assistant("assistant_lora_path"), inference("inference_lora_path"), both("lora_path");
  EXPECT_NE(metrics(assistant), metrics(none));
  EXPECT_EQ(metrics(inference), metrics(none));
  EXPECT_EQ(metrics(both), metrics(assistant));
  EXPECT_EQ(get(both.lora()), get(assistant.lora()));
  EXPECT_EQ(sample(assistant, 0, 0), sample(none, 0, 0));
  EXPECT_NE(sample(inference, 0, 0), sample(none, 0, 0));
  EXPECT_EQ(sample(both, 0, 0), sample(inference, 0, 0));
  EXPECT_EQ(sample(both, 0, 1), sample(inference, 0, 1));
}

TEST(ModelLoras, HaveStrengthsAndMayBeSeveral) {
  const WithModelLora none(""), one("lora_path"), same("lora_path", ":1"), half("lora_path", ":0.5"),
      nothing("lora_path", ":0");
  EXPECT_EQ(metrics(same), metrics(one));
  EXPECT_EQ(sample(same, 0, 0), sample(one, 0, 0));
  EXPECT_EQ(sample(nothing, 0, 0), sample(none, 0, 0));
  EXPECT_NE(sample(half, 0, 0), sample(one, 0, 0));
  const std::string file = trained_lora().string();
  Sampled both("[a photo, a house]");
  both.replace("model:\n", fmt::format("model:\n  lora_path: [\"{}:2\", \"{}:-2\"]\n", file, file));
  expect_trained(both.train());
  EXPECT_EQ(sample(both, 0, 0), sample(none, 0, 0));
  ToyRun wrong;
  wrong.replace("model:\n", "model:\n  lora_path: a.safetensors:x\n");
  EXPECT_THAT(wrong.train().output, HasSubstr("model.lora_path: a.safetensors:x: the strength after the colon"));
}

// Samples take the weights away and bring them back: steps after them are those of a run without samples.
TEST(ModelLoras, TrainingGoesOnWithTheWeightsThatItHad) {
  const auto trained = [](bool samples) {
    Sampled run("[a photo]");
    run.set("steps", "4").set("sample_every", samples ? "1" : "0");
    if (!samples) run.replace("sample_at_start: true", "sample_at_start: false");
    run.replace("model:\n", fmt::format("model:\n  assistant_lora_path: {}\n", trained_lora().string()));
    expect_trained(run.train());
    return get(run.lora());
  };
  EXPECT_EQ(trained(true), trained(false));
}

TEST(ModelLoras, AMissingFileIsNamed) {
  ToyRun run;
  run.replace("model:\n", "model:\n  assistant_lora_path: someone/training-adapter\n");
  const HostResult result = run.train();
  EXPECT_EQ(result.code, 2) << result.output;
  EXPECT_THAT(result.output, AllOf(HasSubstr("model.assistant_lora_path: there is no file someone/training-adapter"),
                                   HasSubstr("It looks like a repository's name")));
}

// A whole job as ai-toolkit has them, with only the paths of this machine.
TEST(AiToolkitJob, Trains) {
  ToyRun run;
  const std::string toy = toy_folder().string() + "/";
  run.config() = fmt::format(R"(---
job: extension
config:
  name: "toy"
  process:
    - type: 'sd_trainer'
      training_folder: "{0}/runs"
      device: {1}
      trigger_word: "sks"
      network: {{type: "lora", linear: 4, linear_alpha: 4}}
      save: {{dtype: float16, save_every: 250, max_step_saves_to_keep: 4, push_to_hub: false}}
      datasets:
        - folder_path: "{2}/examples/demo/photos"
          caption_ext: "txt"
          caption_dropout_rate: 0.05
          shuffle_tokens: false
          cache_latents_to_disk: true
          resolution: [ 64, 96 ]
      train:
        batch_size: 1
        steps: 2
        gradient_accumulation_steps: 1
        train_unet: true
        train_text_encoder: false
        gradient_checkpointing: true
        noise_scheduler: "flowmatch"
        timestep_type: "weighted"
        optimizer: "adamw8bit"
        lr: 1e-3
        ema_config: {{use_ema: true, ema_decay: 0.99}}
        dtype: bf16
      model:
        name_or_path: "{3}flux_toy.safetensors"
        vae_path: "{3}ae.safetensors"
        clip_path: "{3}clip_l.safetensors"
        t5_path: "{3}t5xxl.safetensors"
        assistant_lora_path: "{4}"
        is_flux: true
        quantize: true
        low_vram: true
      sample:
        sampler: "flowmatch"
        sample_every: 250
        sample_start_step: 0
        width: 64
        height: 64
        prompts: ["[trigger] on the beach", "a bear --w 128 --m 0.5"]
        neg: ""
        seed: 42
        walk_seed: true
        guidance_scale: 1
        sample_steps: 2
meta:
  name: "[name]"
  version: '1.0'
)",
                             run.folder().string(), tested_device(), source_dir(), toy, trained_lora().string());
  EXPECT_EQ(run.train({"--dry-run"}).code, 0);
  const HostResult result = expect_trained(run.train());
  EXPECT_THAT(result.output, HasSubstr("keys without effect here"));
  EXPECT_THAT(get(run.output() / "config.yaml"), StartsWith("# what the file does not say is as ai-toolkit has it"));
  for (const int64_t step : {0, 2})
    for (const int64_t index : {0, 1}) EXPECT_FALSE(sample(run, step, index).empty()) << step << " " << index;
  const Safetensors file(run.lora());
  for (const StoredTensor& tensor : file.tensors()) EXPECT_THAT(tensor.name, StartsWith("transformer.")) << tensor.name;
}

}  // namespace
}  // namespace lh::test::sample_set_test
