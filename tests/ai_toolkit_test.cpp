// Files of ai-toolkit: what each key means there is what it means here, is answered, or is refused with what to do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <cstdlib>

#include "config/load.h"
#include "config/schema.h"
#include "config/value.h"
#include "core/error.h"

namespace lh::ai_toolkit_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

// A job with the keys of a process; `process` is flow style, a section each.
std::string job(const std::string& process) {
  return "job: extension\nconfig:\n  name: my_run\n  process:\n  - type: sd_trainer\n    " + process +
         "\nmeta:\n  name: '[name]'\n  version: '1.0'\n";
}

// What every job needs; a test names these sections itself where it is about them.
const std::string network = "network: {type: lora, linear: 16, linear_alpha: 16}\n    ";
const std::string model = "model: {name_or_path: m}\n    ";
const std::string data = "datasets: [{folder_path: photos}]\n    ";
const std::string flow = "train: {noise_scheduler: flowmatch}\n    ";

Config read(const std::string& process) {
  spdlog::set_level(spdlog::level::warn);
  return parse_config(job(process), "job.yaml", {.usual_rate = [](const std::string& optimizer) {
                        return optimizer == "prodigy" ? std::optional(1.0) : std::nullopt;
                      }});
}

std::string error_of(const std::string& text) {
  spdlog::set_level(spdlog::level::warn);
  try {
    parse_config(text, "job.yaml");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// The value of a key as the effective configuration prints it; of a dataset's key that of the first one.
std::string value_of(Config& config, const std::string& key) {
  const schema::Key* row = schema::find(key);
  if (row == nullptr) return "there is no such key";
  DatasetConfig none;
  return schema::print_value(row->field(config, config.datasets.empty() ? none : config.datasets[0]));
}

// Written from toolkit/config_modules.py of ai-toolkit; without a network there is none to have defaults.
TEST(AiToolkit, WhatAFileDoesNotSayIsAsThatProgramHasIt) {
  Config config = read("network: {type: lora}\n    " + model + data);
  const std::pair<const char*, const char*> expected[] = {
      {"network.linear", "4"},
      {"network.linear_alpha", "1"},
      {"datasets[].caption_ext", "\"txt\""},
      {"datasets[].resolution", "[512]"},
      {"datasets[].caption_dropout_rate", "0"},
      {"datasets[].cache_latents_to_disk", "false"},
      {"datasets[].missing_captions", "\"empty\""},
      {"train.steps", "1000"},
      {"train.lr", "1e-06"},
      {"train.optimizer", "\"adamw\""},
      {"train.dtype", "\"fp32\""},
      {"train.noise_scheduler", "\"ddpm\""},
      {"train.gradient_checkpointing", "\"true\""},
      {"train.max_grad_norm", "1"},
      {"train.ema_config.use_ema", "false"},
      {"train.cfg_scale", "1"},
      {"save.save_every", "1000"},
      {"save.max_step_saves_to_keep", "5"},
      {"save.dtype", "\"float16\""},
      {"sample.sample_every", "100"},
      {"sample.width", "512"},
      {"sample.height", "512"},
      {"sample.seed", "0"},
      {"sample.walk_seed", "false"},
      {"sample.guidance_scale", "7"},
      {"sample.sample_steps", "20"},
      {"sample.sample_at_start", "true"},
  };
  for (const auto& [key, value] : expected) EXPECT_EQ(value_of(config, key), value) << key;
  EXPECT_THAT(config.notes, testing::Contains(HasSubstr("ai-toolkit has it")));
  EXPECT_THAT(to_yaml(config), StartsWith("# "));
}

struct Meaning {
  const char* name;
  std::string process;
  std::vector<std::pair<const char*, const char*>> expected;  // key, value as it is printed
  std::vector<const char*> notes = {};                        // a part of each, besides the one on defaults
};

void PrintTo(const Meaning& meaning, std::ostream* out) { *out << meaning.name; }

class Meanings : public testing::TestWithParam<Meaning> {};

TEST_P(Meanings, AreThoseOfThatProgram) {
  const Meaning& meaning = GetParam();
  Config config = read(meaning.process);
  for (const auto& [key, value] : meaning.expected) EXPECT_EQ(value_of(config, key), value) << key;
  std::vector<testing::Matcher<std::string>> notes;
  for (const char* note : meaning.notes) notes.push_back(HasSubstr(note));
  notes.push_back(HasSubstr("ai-toolkit has it"));
  EXPECT_THAT(config.notes, testing::UnorderedElementsAreArray(notes));
  const Config again = parse_config(to_yaml(config), "again.yaml");
  std::string printed = to_yaml(config);
  while (printed.starts_with("# ")) printed.erase(0, printed.find('\n') + 1);
  EXPECT_EQ(to_yaml(again), printed);
}

std::string train(const std::string& keys) { return network + model + data + "train: {" + keys + "}\n    "; }
std::string flow_train(const std::string& keys) { return train("noise_scheduler: flowmatch, " + keys); }

INSTANTIATE_TEST_SUITE_P(
    Table, Meanings,
    testing::Values(
        // Datasets: sub-folders are searched, shuffling moves every tag, a .json in place of a folder names images.
        Meaning{"captions and masks",
                network + model + flow +
                    "datasets: [{folder_path: d, shuffle_tokens: true, keep_tokens: 2, token_dropout_rate: 0.1, "
                    "is_reg: true, mask_path: m, invert_mask: true, mask_min_value: 0.1, loss_multiplier: 2, "
                    "random_crop: true}]\n    ",
                {{"datasets[].recursive", "true"},
                 {"datasets[].shuffle_tokens", "\"all\""},
                 {"datasets[].keep_tokens", "2"},
                 {"datasets[].token_dropout_rate", "0.1"},
                 {"datasets[].is_reg", "true"},
                 {"datasets[].mask_path", "\"m\""},
                 {"datasets[].invert_mask", "true"},
                 {"datasets[].mask_min_value", "0.1"},
                 {"datasets[].loss_multiplier", "2"},
                 {"datasets[].random_crop", "true"},
                 {"train.reg_weight", "1"},
                 {"train.mask_normalization", "\"batch\""}}},
        // Images are scaled where there are no buckets, and cropped anywhere.
        Meaning{"words and scales",
                network + model + flow +
                    "datasets: [{folder_path: d, replacements: [\"a cat|sks cat\"], random_triggers: [x, y, z], "
                    "random_triggers_max: 2, random_scale: true, random_crop: true, buckets: false}]\n    ",
                {{"datasets[].replacements", "[\"a cat|sks cat\"]"},
                 {"datasets[].random_triggers", "[\"x\", \"y\", \"z\"]"},
                 {"datasets[].random_triggers_max", "2"},
                 {"datasets[].random_scale", "true"}}},
        Meaning{"scales in buckets",
                network + model + flow + "datasets: [{folder_path: d, random_scale: true, random_crop: true}]\n    ",
                {{"datasets[].random_scale", "false"}},
                {"datasets[].random_scale: true is not used"}},
        Meaning{"a file of captions",
                network + model + flow + "datasets: [{dataset_path: a/b.json}]\n    ",
                {{"datasets[].folder_path", "\"a\""}, {"datasets[].metadata_file", "\"a/b.json\""}}},
        Meaning{"a slider of another process",
                network + model + data + flow + "slider: {positive_prompt: a, negative_prompt: b}",
                {{"slider.positive_prompt", ""}},
                {"slider: is not used"}},
        Meaning{"a farther target",
                flow_train("do_differential_guidance: true"),
                {{"train.do_differential_guidance", "true"}, {"train.differential_guidance_scale", "3"}},
                {"train.do_differential_guidance: true counts here"}},
        Meaning{"losses and levels",
                flow_train("loss_type: pseudo_huber, content_or_style: style, reg_weight: 0.5"),
                {{"train.loss", "\"pseudo_huber\""},
                 {"train.content_or_style", "\"style\""},
                 {"train.content_or_style_reg", "\"style\""},
                 {"train.reg_weight", "0.5"}}},
        // Regularization images have the same levels there, whatever their own key says.
        Meaning{"levels of regularization images",
                flow_train("content_or_style: style, content_or_style_reg: content"),
                {{"train.content_or_style_reg", "\"style\""}},
                {"train.content_or_style_reg: content is not used"}},
        Meaning{"preservation of the class",
                flow_train("diff_output_preservation: true, diff_output_preservation_class: dog, "
                           "diff_output_preservation_multiplier: 0.5"),
                {{"train.diff_output_preservation", "true"},
                 {"train.diff_output_preservation_class", "\"dog\""},
                 {"train.diff_output_preservation_multiplier", "0.5"},
                 {"train.blank_prompt_preservation", "false"}}},
        Meaning{"preservation without a prompt",
                flow_train("blank_prompt_preservation: true, blank_prompt_preservation_multiplier: 2"),
                {{"train.diff_output_preservation", "false"},
                 {"train.blank_prompt_preservation", "true"},
                 {"train.blank_prompt_preservation_multiplier", "2"}}},
        Meaning{"mae", flow_train("loss_type: mae"), {{"train.loss", "\"l1\""}}},
        // Which noise levels: sigmoid and linear are not shifted, the others evenly drawn and shifted as in sampling;
        // the last of the 1000 levels is never drawn.
        Meaning{"sigmoid",
                network + model + data + flow,
                {{"train.timestep_type", "\"sigmoid\""},
                 {"train.timestep_shift", "1"},
                 {"train.min_denoising_steps", "0"},
                 {"train.max_denoising_steps", "998"}}},
        Meaning{"linear",
                flow_train("timestep_type: linear"),
                {{"train.timestep_type", "\"linear\""}, {"train.timestep_shift", "1"}}},
        Meaning{"weighted", flow_train("timestep_type: weighted"), {{"train.timestep_type", "\"weighted\""}}},
        Meaning{"shift",
                flow_train("timestep_type: shift"),
                {{"train.timestep_type", "\"linear_shift\""}, {"train.timestep_shift", ""}}},
        Meaning{"lognorm_blend",
                flow_train("timestep_type: lognorm_blend"),
                {{"train.timestep_type", "\"lognorm_blend\""}, {"train.timestep_shift", ""}}},
        Meaning{"inverted_mask_prior",
                flow_train("inverted_mask_prior: true"),
                {{"train.inverted_mask_prior", "true"}, {"train.inverted_mask_prior_multiplier", "0.5"}}},
        Meaning{"inverted_mask_prior with a weight",
                flow_train("inverted_mask_prior: true, inverted_mask_prior_multiplier: 2"),
                {{"train.inverted_mask_prior_multiplier", "2"}}},
        Meaning{"four_step", flow_train("timestep_type: four_step"), {{"train.timestep_type", "\"four_step\""}}},
        Meaning{"flux_shift", flow_train("timestep_type: flux_shift"), {{"train.timestep_type", "\"linear_shift\""}}},
        Meaning{
            "lumina2_shift", flow_train("timestep_type: lumina2_shift"), {{"train.timestep_type", "\"linear_shift\""}}},
        Meaning{"linear_timesteps",
                flow_train("linear_timesteps: true"),
                {{"train.timestep_type", "\"linear\""}, {"train.weighting_scheme", "\"bell\""}}},
        Meaning{"linear_timesteps2",
                flow_train("linear_timesteps2: true"),
                {{"train.timestep_type", "\"linear\""}, {"train.weighting_scheme", "\"half_bell\""}}},
        Meaning{"ddpm draws its timesteps evenly",
                train("noise_scheduler: ddpm, timestep_type: sigmoid"),
                {{"train.timestep_type", "\"linear\""},
                 {"train.timestep_shift", ""},
                 {"train.min_denoising_steps", "1"},
                 {"train.max_denoising_steps", "997"}},
                {"train.timestep_type: sigmoid is for noise_scheduler: flowmatch"}},
        Meaning{"denoising steps",
                flow_train("min_denoising_steps: 200, max_denoising_steps: 600"),
                {{"train.min_denoising_steps", "200"}, {"train.max_denoising_steps", "599"}}},

        // The network: transformers have alpha = rank and the names of PEFT, others alpha 1 unless it is said.
        Meaning{"alpha of a transformer",
                "network: {linear: 16, linear_alpha: 8}\n    " + model + data + flow,
                {{"network.linear", "16"}, {"network.linear_alpha", ""}, {"save.format", "\"diffusers\""}},
                {"network.linear_alpha: 8 is not used"}},
        Meaning{"alpha of another",
                "network: {linear: 16, linear_alpha: 8}\n    " + model + data,
                {{"network.linear_alpha", "8"}, {"save.format", "\"kohya\""}},
                {"train.timestep_type: sigmoid"}},
        Meaning{"rank is linear",
                "network: {rank: 8, conv: 4}\n    " + model + data + flow,
                {{"network.linear", "8"}, {"network.conv", "0"}},
                {"network.conv: 4 is not used"}},
        Meaning{"lokr is whole",
                "network: {type: lokr}\n    " + model + data + flow,
                {{"network.network_kwargs", "{\"full_matrix\": true}"}, {"save.format", "\"kohya\""}}},
        Meaning{"lokr of a rank",
                "network: {type: lokr, lokr_full_rank: false, lokr_factor: 8}\n    " + model + data + flow,
                {{"network.network_kwargs", "{\"factor\": 8, \"full_matrix\": false}"}}},
        Meaning{"only some modules",
                "network: {linear: 4, network_kwargs: {only_if_contains: [a.b], ignore_if_contains: [c]}}\n    " +
                    model + data + flow,
                {{"network.only_if_contains", "[\"a.b\"]"}, {"network.ignore_if_contains", "[\"c\"]"}}},
        Meaning{"save_format is of checkpoints",
                network + model + data + flow + "save: {save_format: safetensors}",
                {{"save.format", "\"diffusers\""}}},

        // Optimizers have an eps and flags of that program; lr is 1 where the optimizer finds it.
        Meaning{"adamw8bit", flow_train("optimizer: adamw8bit"), {{"train.optimizer_params", "{\"eps\": 1e-6}"}}},
        Meaning{"eps that is said",
                flow_train("optimizer: AdamW, optimizer_params: {eps: 1e-8, weight_decay: 1e-4}"),
                {{"train.optimizer_params", "{\"eps\": 1e-8, \"weight_decay\": 1e-4}"}}},
        Meaning{"adafactor",
                flow_train("optimizer: adafactor, lr: 3e-5"),
                {{"train.optimizer_params",
                  "{\"relative_step\": false, \"scale_parameter\": false, \"warmup_init\": false}"}}},
        Meaning{"prodigy", flow_train("optimizer: prodigy, lr: 1e-4"), {{"train.lr", "1"}}, {"train.lr: 0.0001 is 1"}},
        Meaning{"prodigy with a rate", flow_train("optimizer: prodigy, lr: 0.5"), {{"train.lr", "0.5"}}},
        Meaning{"lion", flow_train("optimizer: lion8bit"), {{"train.optimizer_params", ""}}},
        Meaning{"warm-up of 1000",
                flow_train("lr_scheduler: constant_with_warmup"),
                {{"train.lr_scheduler_params", "{\"warmup_steps\": 1000}"}}},
        Meaning{"warm-up of its name",
                flow_train("lr_scheduler: constant_with_warmup, lr_scheduler_params: {num_warmup_steps: 50}"),
                {{"train.lr_scheduler_params", "{\"warmup_steps\": 50}"}}},
        Meaning{"ema",
                flow_train("ema_config: {use_ema: true, ema_decay: 0.99}"),
                {{"train.ema_config.use_ema", "true"},
                 {"train.ema_config.ema_decay", "0.99"},
                 {"train.ema_config.warmup", "\"none\""}}},

        // The base model.
        Meaning{"quantize",
                network + data + flow + "model: {name_or_path: m, is_flux: true, quantize: true}",
                {{"model.dtype", "\"float8_e4m3\""}}},
        Meaning{
            "quantize to fewer bits",
            network + data + flow +
                "model: {name_or_path: m, quantize: true, qtype: 'uint3|org/adapters/x.safetensors', low_vram: true}",
            {{"model.dtype", "\"nf4\""}},
            {"instead of uint3|org/adapters/x.safetensors: the adapter, which makes up"}},
        Meaning{"quantize to integers",
                network + data + flow + "model: {name_or_path: m, quantize: true, qtype: qint8}",
                {{"model.dtype", "\"int8\""}}},
        Meaning{"quantize to six bits",
                network + data + flow + "model: {name_or_path: m, quantize: true, qtype: uint6}",
                {{"model.dtype", "\"int8\""}},
                {"weights are kept as int8, with a factor for each row, instead of uint6"}},
        Meaning{"quantize to nf4",
                network + data + flow + "model: {name_or_path: m, quantize: true, qtype: nf4}",
                {{"model.dtype", "\"nf4\""}}},
        Meaning{"layer_offloading",
                network + data + flow + "model: {name_or_path: m, layer_offloading: true}",
                {{"memory.stream", "\"100%\""}},
                {"model.layer_offloading: the weights of 100% of the blocks are streamed"}},
        Meaning{"layer_offloading of a part",
                network + data + flow +
                    "model: {name_or_path: m, layer_offloading: true, layer_offloading_transformer_percent: 0.7}",
                {{"memory.stream", "\"70%\""}},
                {"the weights of 70% of the blocks are streamed"}},
        Meaning{"a percent of no layer_offloading",
                network + data + flow +
                    "model: {name_or_path: m, layer_offloading: false, layer_offloading_transformer_percent: 0.7}",
                {{"memory.stream", "\"auto\""}}},
        Meaning{"text encoders in fewer bits",
                network + data + flow + "model: {name_or_path: m, quantize_te: true}",
                {{"model.text_encoder_dtype", "\"float8_e4m3\""}, {"model.dtype", "\"auto\""}}},
        Meaning{"text encoders in integers",
                network + data + flow + "model: {name_or_path: m, quantize_te: true, qtype_te: uint4}",
                {{"model.text_encoder_dtype", "\"nf4\""}},
                {"model.qtype_te: weights are kept as nf4"}},
        Meaning{"bits of text encoders",
                network + data + flow + "model: {name_or_path: m, text_encoder_bits: 8}",
                {{"model.text_encoder_dtype", "\"int8\""}}},
        Meaning{"qtype alone",
                network + data + flow + "model: {name_or_path: m, quantize: false, qtype: uint3}",
                {{"model.dtype", "\"auto\""}}},
        Meaning{"model.dtype follows train.dtype",
                network + data + flow + "model: {name_or_path: m, dtype: fp16}",
                {{"model.dtype", "\"auto\""}}},
        Meaning{"settings of a model that are off",
                network + data + flow + "model: {name_or_path: m, model_kwargs: {match_target_res: false}}",
                {{"model.name_or_path", "\"m\""}}},
        Meaning{"assistant",
                network + data + flow + "model: {name_or_path: m, assistant_lora_path: a.safetensors}",
                {{"model.assistant_lora_path", "\"a.safetensors\""}}},

        // Samples.
        Meaning{"step 0 is sampled",
                network + model + data + flow + "sample: {prompts: [a]}",
                {{"sample.sample_at_start", "true"}}},
        Meaning{"skip_first_sample", flow_train("skip_first_sample: true"), {{"sample.sample_at_start", "false"}}},
        Meaning{"disable_sampling",
                flow_train("disable_sampling: true") + "sample: {prompts: [a]}",
                {{"sample.sample_every", "0"}, {"sample.sample_at_start", "false"}, {"sample.prompts", ""}}},
        Meaning{"sample_start_step",
                network + model + data + flow + "sample: {sample_start_step: 300}",
                {{"sample.sample_start_step", "300"}}},
        Meaning{"neg: false", network + model + data + flow + "sample: {neg: false}", {{"sample.neg", ""}}},
        Meaning{"sampler of the model",
                network + model + data + flow + "sample: {sampler: flowmatch}",
                {{"sample.sampler", ""}}},
        Meaning{"samples",
                network + model + data + flow +
                    "sample: {network_multiplier: 0.5, samples: [{prompt: a, width: 64, height: 128, seed: 7, neg: b, "
                    "guidance_scale: 3, sample_steps: 9, network_multiplier: 2.0, ctrl_img: null}, {prompt: c}]}",
                {{"sample.network_multiplier", "0.5"},
                 {"sample.prompts",
                  "[{prompt: \"a\", neg: \"b\", width: 64, height: 128, seed: 7, guidance_scale: 3, sample_steps: 9, "
                  "network_multiplier: 2}, \"c\"]"}}},

        // Data.
        Meaning{"trigger word of a dataset",
                network + model + flow + "datasets: [{folder_path: d, trigger_word: w}]",
                {{"datasets[].trigger_word", "\"w\""}}},
        Meaning{"mirrored both ways",
                network + model + flow + "datasets: [{folder_path: d, flip_x: true, flip_y: true}]",
                {{"datasets[].flip_x", "true"}, {"datasets[].flip_y", "true"}}},
        Meaning{"square_crop",
                network + model + flow + "datasets: [{folder_path: d, square_crop: true, random_crop: true}]",
                {{"datasets[].buckets", "false"}, {"datasets[].random_crop", "false"}},
                {"datasets[].random_crop: true is not used: square_crop has the middle"}},
        Meaning{"square_crop is for buckets",
                network + model + flow +
                    "datasets: [{square_crop: true, folder_path: d, buckets: false, random_crop: true}]",
                {{"datasets[].buckets", "false"}, {"datasets[].random_crop", "true"}}},
        Meaning{"square_crop is off",
                network + model + flow + "datasets: [{folder_path: d, square_crop: false}]",
                {{"datasets[].buckets", "true"}}},
        Meaning{"control images of several folders",
                network + model + flow + "datasets: [{folder_path: d, control_path: [a, b, c]}]",
                {{"datasets[].images", "{\"control\": \"a\", \"control_2\": \"b\", \"control_3\": \"c\"}"}}},
        Meaning{"control images of several keys are packed, and take the place of control_path",
                network + model + flow +
                    "datasets: [{folder_path: d, control_path: z, control_path_3: b, control_path_2: a}]",
                {{"datasets[].images", "{\"control\": \"a\", \"control_2\": \"b\"}"}}},
        Meaning{"control images of several keys",
                network + model + flow +
                    "datasets: [{folder_path: d, control_path: null, control_path_1: a, control_path_2: b, "
                    "control_path_3: ''}]",
                {{"datasets[].images", "{\"control\": \"a\", \"control_2\": \"b\"}"}}},
        Meaning{
            "null and empty are as good as nothing",
            network + model + flow +
                "datasets: [{folder_path: d, mask_path: null, mask_min_value: 0.1, is_reg: false, network_weight: 1, "
                "controls: [], num_frames: 1, flip_y: false, shrink_video_to_frames: true, control_path: null}]",
            {{"datasets[].folder_path", "\"d\""}}}));

TEST(AiToolkit, MarksAreReplacedInEveryText) {
  ::setenv("LORA_HOST_TEST_FOLDER", "/photos/mine", 1);
  const Config config =
      read(network + model + flow +
           "training_folder: 'out/[name]'\n    datasets: [{folder_path: '${LORA_HOST_TEST_FOLDER}/a'}]\n"
           "    sample: {prompts: ['[name] in the rain, [trigger]']}");
  EXPECT_EQ(config.name, "my_run");
  EXPECT_EQ(config.training_folder, "out/my_run");
  EXPECT_EQ(config.datasets[0].folder_path, "/photos/mine/a");
  EXPECT_EQ(config.sample.prompts[0].prompt, "my_run in the rain, [trigger]");
  EXPECT_THAT(error_of(job(network + model + data + "training_folder: '${LORA_HOST_NOT_THERE}/x'")),
              testing::StrEq("job.yaml:9:22: ${LORA_HOST_NOT_THERE}: the environment has no LORA_HOST_NOT_THERE. Set "
                             "it, or write the value"));
}

struct Refusal {
  std::string text;
  const char* error;  // its begin
};

void PrintTo(const Refusal& refusal, std::ostream* out) { *out << refusal.error; }

class Refusals : public testing::TestWithParam<Refusal> {};

TEST_P(Refusals, SayWhatToDo) { EXPECT_THAT(error_of(GetParam().text), HasSubstr(GetParam().error)); }

INSTANTIATE_TEST_SUITE_P(
    Table, Refusals,
    testing::Values(
        Refusal{job(model + data + flow),
                "job.yaml:5:5: network: missing. Without it ai-toolkit trains all of the model's weights, and saves a "
                "checkpoint; this program trains adapters. For a LoRA add network: {type: lora, linear: 16"},
        Refusal{job(model + data + "adapter: {type: redux, train: true}"),
                "adapter: not supported: this program trains LoRA and its kin"},
        Refusal{job(train("gradient_accumulation_steps: 4")),
                "train.gradient_accumulation_steps: there it makes a step of one batch"},
        Refusal{job(train("lr_scheduler: linear")), "train.lr_scheduler: linear rises there"},
        Refusal{job(train("content_or_style: neither")), "train.content_or_style: must be balanced, content, style"},
        Refusal{job(train("timestep_type: next_sample")),
                "train.timestep_type: next_sample trains on steps of the model's own sampling"},
        Refusal{job(network + model + "datasets: [{folder_path: d}, {folder_path: e, square_crop: perhaps}]"),
                "datasets[1].square_crop: expected true or false, found perhaps"},
        Refusal{job(train("noise_scheduler: lcm")), "train.noise_scheduler: must be flowmatch, ddpm, found lcm"},
        Refusal{job(network + data + "model: {name_or_path: m, quantize: true, qtype: fp4}"),
                "model.qtype: expected qfloat8, float8"},
        Refusal{job(network + data + "model: {name_or_path: m, text_encoder_bits: 5}"),
                "model.text_encoder_bits: must be 4, 8 or 16, found"},
        Refusal{job(network + data + "model: {name_or_path: m, quantize: perhaps}"),
                "model.quantize: expected true or false, found perhaps"},
        Refusal{job(network + data + "model: {name_or_path: m, model_kwargs: {a: 1}}"), "lora-host plugins --verbose"},
        Refusal{job(network + model + "datasets: [{folder_path: d, mask_min_value: 2}]"), "mask_min_value: must be"},
        Refusal{job(network + model + "datasets: [{folder_path: d, controls: [depth]}]"),
                "datasets[0].controls: not supported: make control images beforehand"},
        Refusal{job(network + model + "datasets: [{folder_path: d, num_frames: 0}]"), "num_frames: must be 1 to 10000"},
        Refusal{
            "job: generate\nconfig: {name: a, process: [{type: to_folder}]}\n",
            "job.yaml:1:6: job: must be extension or train, found generate. For images from prompts: lora-host sample"},
        Refusal{"job: mod\nconfig: {name: a, process: [{type: rescale_lora}]}\n",
                "job.yaml:1:6: job: must be extension or train, found mod. For a LoRA at another strength: lora-host "
                "merge"},
        Refusal{"job: train\nconfig: {name: a, process: [{type: slider, slider: {}}]}\n",
                "type: this process is not for training a LoRA of images, found slider"}));

// Keys that mean nothing here are named once, and are no warnings (a warning fails a test).
TEST(AiToolkit, AnotherKindOfJobGetsOneLine) {
  EXPECT_THAT(error_of("job: mod\nconfig: {name: a, process: [{type: rescale_lora, input_path: x}]}\n"),
              Not(HasSubstr("\n")));
  EXPECT_THAT(error_of("job: train\nconfig: {name: a, device: cuda, process: [{type: slider, slider: {x: 1}}]}\n"),
              Not(HasSubstr("\n")));
}

TEST(SamplePrompts, FlagsOfAPromptSayHowItIsMade) {
  const auto item = [](const std::string& prompt) {
    Config config = read(network + model + data + flow + "sample: {prompts: [\"" + prompt + "\"]}");
    return value_of(config, "sample.prompts");
  };
  EXPECT_EQ(item("a cat"), "[\"a cat\"]");
  EXPECT_EQ(item("a cat --w 768 --h 512 --d 42 --l 3.5 --s 12 --n bad, ugly --m -5"),
            "[{prompt: \"a cat\", neg: \"bad, ugly\", width: 768, height: 512, seed: 42, guidance_scale: 3.5, "
            "sample_steps: 12, network_multiplier: -5}]");
  EXPECT_EQ(item("a cat --seed 1 --cfg 2 --steps 3 --network_multiplier 0.5"),
            "[{prompt: \"a cat\", seed: 1, guidance_scale: 2, sample_steps: 3, network_multiplier: 0.5}]");
  EXPECT_EQ(item("a cat --gr 0.7 --do_cfg_norm true --rcfg 1 --ctr 0.25"),
            "[{prompt: \"a cat\", guidance_rescale: 0.7, do_cfg_norm: true, renorm_cfg: 1, cfg_trunc_ratio: 0.25}]");
  EXPECT_EQ(item("smile  --ctrl_img /a b.jpg"), "[{prompt: \"smile\", images: {\"control\": \"/a b.jpg\"}}]");
  EXPECT_EQ(item("a hat --ctrl_img a.png --ctrl_img_2 b.png --ctrl_img_3 c.png"),
            "[{prompt: \"a hat\", images: {\"control\": \"a.png\", \"control_2\": \"b.png\", \"control_3\": "
            "\"c.png\"}}]");
  EXPECT_EQ(item("a hat --image a.png --mask b.png"),
            "[{prompt: \"a hat\", images: {\"image\": \"a.png\", \"mask\": \"b.png\"}}]");
  EXPECT_EQ(item("x-ray -- a cat--dog --2"), "[\"x-ray -- a cat--dog --2\"]");  // no flags
  EXPECT_EQ(item(""), "[\"\"]");
}

// What is said twice of one image: the same is no mistake, but for a flag that is given again.
TEST(SamplePrompts, WhatDisagreesIsRefused) {
  const auto said = [](const std::string& prompts) {
    return error_of("model: {name_or_path: m}\ndatasets: [{folder_path: d}]\nsample: {prompts: " + prompts + "}\n");
  };
  EXPECT_EQ(said("[a --w 64 --w 128]"), "job.yaml:3:20: sample.prompts: --w: given twice. Keep one of them");
  EXPECT_EQ(said("[a --w 64 --h 64 --w 64]"), "job.yaml:3:20: sample.prompts: --w: given twice. Keep one of them");
  EXPECT_EQ(said("[a --d 1 --seed 2]"),
            "job.yaml:3:20: sample.prompts: --seed: \"2\", and --d: \"1\" in line 3, say two things of one image. Keep "
            "one of them");
  EXPECT_THAT(said("[{prompt: a, ctrl_img: a.png, ctrl_img_1: b.png}]"), HasSubstr("ctrl_img_1: \"b.png\", and ctrl"));
  for (const char* agree :
       {"{prompt: a --w 64, width: 64}", "{prompt: a --l 3.0, guidance_scale: 3}", "a --d 7 --seed 7",
        "{prompt: a --ctrl_img a.png, images: {control: a.png}}", "{prompt: a --w 64, width: null}"}) {
    Config config = read(network + model + data + flow + "sample: {prompts: [" + agree + ", a --w 96]}");
    EXPECT_EQ(config.sample.prompts.size(), 2u) << agree;
  }
}

TEST(SamplePrompts, FlagsCountOverFieldsOfTheirMapping) {
  const Config config = read(network + model + data + flow +
                             "sample: {prompts: [{prompt: a --w 64 --n bad --ctrl_img a.png, width: 128, neg: worse, "
                             "images: {control: b.png}}]}");
  ASSERT_EQ(config.sample.prompts.size(), 1u);
  const SampleItem& item = config.sample.prompts[0];
  EXPECT_EQ(item.width, 64);
  EXPECT_EQ(item.neg, "bad");
  EXPECT_TRUE(item.images.at("control").text.ends_with("a.png"));
}

TEST(SamplePrompts, MistakesAreNamed) {
  const auto error = [](const std::string& prompts) {
    return error_of("model: {name_or_path: m}\ndatasets: [{folder_path: d}]\nsample: {prompts: " + prompts + "}\n");
  };
  EXPECT_EQ(error("[a --w many]"), "job.yaml:3:20: sample.prompts: --w: expected an integer, found many");
  EXPECT_EQ(error("[a --w 7]"), "job.yaml:3:20: sample.prompts: --w: must be 32 to 16384, found 7");
  EXPECT_THAT(error("[a --ar 16:9]"),
              StartsWith("job.yaml:3:20: sample.prompts: --ar: unknown flag. Known: --n, --w, --h"));
  EXPECT_THAT(error("[{prompt: a, with: 7}]"),
              StartsWith("job.yaml:3:32: sample.prompts: with: unknown key. Known: neg, width"));
  EXPECT_THAT(error("[{width: 64}]"), HasSubstr("expected a mapping with the text `prompt`"));
  EXPECT_THAT(error("[{prompt: a, num_frames: 0}]"), HasSubstr("num_frames: must be 1 to 10000, found 0"));
  EXPECT_THAT(error("[[a]]"), HasSubstr("expected a prompt, or a mapping with one, found a list"));
}

}  // namespace
}  // namespace lh::ai_toolkit_test
