// Files of kohya's scripts: training arguments and datasets as TOML.
#include "config/kohya.h"

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include "config/kohya_keys.h"
#include "config/load.h"
#include "config/schema.h"
#include "config/value.h"
#include "core/error.h"
#include "support/io_files.h"

namespace lh::kohya_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class Kohya : public testing::Test {
 protected:
  void SetUp() override { spdlog::set_level(spdlog::level::warn); }

  Config read(const std::string& training, const std::string& datasets = "") {
    test::put(dir_ / "x.toml", training);
    if (!datasets.empty()) test::put(dir_ / "y.toml", datasets);
    return load_config(dir_ / "x.toml", datasets.empty() ? "" : dir_ / "y.toml",
                       {.model = false, .datasets = !datasets.empty()});
  }
  std::string error_of(const std::string& training, const std::string& datasets = "") {
    try {
      read(training, datasets);
    } catch (const Error& error) {
      std::string text = error.what();
      for (size_t at; (at = text.find(dir_.path().string() + "/")) != text.npos;)
        text.erase(at, dir_.path().string().size() + 1);
      return text;
    }
    return "";
  }
  static std::string value_of(Config& config, const std::string& key, size_t dataset = 0) {
    const schema::Key* row = schema::find(key);
    DatasetConfig none;
    return row == nullptr
               ? "there is no such key"
               : schema::print_value(row->field(config, config.datasets.empty() ? none : config.datasets[dataset]));
  }

  test::TempDir dir_;
};

TEST_F(Kohya, TrainingArguments) {
  test::put(dir_ / "prompts.txt", "# comment\na cat --w 64 --h 128 --d 3\n\na dog --n bad\n");
  Config config = read(R"(
pretrained_model_name_or_path = "model.safetensors"
output_dir = "out"
output_name = "mine"
[network]
network_module = "networks.lora"
network_dim = 16
network_alpha = 8
network_args = ["conv_dim=4", "conv_alpha=1", "rank_dropout=0.1", "loraplus_lr_ratio=16"]
network_train_unet_only = true
[training]
learning_rate = 1e-4
max_train_steps = 500
train_batch_size = 2
gradient_accumulation_steps = 3
mixed_precision = "bf16"
optimizer_type = "AdamW8bit"
optimizer_args = ["weight_decay=0.1", "betas=0.9,0.99"]
lr_scheduler = "cosine_with_restarts"
lr_warmup_steps = 50
lr_scheduler_num_cycles = 3
lr_scheduler_power = 2
lr_scheduler_timescale = 10
seed = 7
min_timestep = 100
max_timestep = 900
timestep_sampling = "shift"
discrete_flow_shift = 3.1582
model_prediction_type = "raw"
guidance_scale = 1.0
fp8_base = true
blocks_to_swap = 18
cache_latents = true
save_every_n_steps = 100
save_last_n_steps = 300
save_precision = "bf16"
sample_every_n_steps = 100
sample_at_first = true
sample_prompts = ")" + (dir_ / "prompts.txt").string() +
                       "\"\n");
  const std::pair<const char*, const char*> expected[] = {
      {"model.name_or_path", "\"model.safetensors\""},
      {"model.dtype", "\"float8_e4m3\""},
      {"memory.stream", "\"18\""},
      {"training_folder", "\"out\""},
      {"name", "\"mine\""},
      {"network.type", "\"lora\""},
      {"network.linear", "16"},
      {"network.linear_alpha", "8"},
      {"network.conv", "4"},
      {"network.conv_alpha", "1"},
      {"network.rank_dropout", "0.1"},
      {"train.loraplus_lr_ratio", "16"},
      {"train.train_text_encoder", "false"},
      {"train.lr", "0.0001"},
      {"train.steps", "500"},
      {"train.batch_size", "2"},
      {"train.gradient_accumulation", "3"},
      {"train.dtype", "\"bf16\""},
      {"train.optimizer", "\"AdamW8bit\""},
      {"train.optimizer_params", "{\"betas\": [0.9, 0.99], \"weight_decay\": 0.1}"},
      {"train.lr_scheduler", "\"cosine_with_restarts\""},
      {"train.lr_scheduler_params", "{\"num_cycles\": 3, \"warmup_steps\": 50}"},
      {"train.seed", "7"},
      {"train.min_denoising_steps", "100"},
      {"train.max_denoising_steps", "899"},
      {"train.timestep_type", "\"shift\""},
      {"train.timestep_shift", "3.1582"},
      {"train.cfg_scale", "1"},
      {"save.save_every", "100"},
      {"save.max_step_saves_to_keep", "4"},
      {"save.dtype", "\"bfloat16\""},
      {"sample.sample_every", "100"},
      {"sample.sample_at_start", "true"},
      {"sample.prompts", "[{prompt: \"a cat\", width: 64, height: 128, seed: 3}, {prompt: \"a dog\", neg: \"bad\"}]"},
  };
  for (const auto& [key, value] : expected) EXPECT_EQ(value_of(config, key), value) << key;
  EXPECT_THAT(config.notes, testing::Contains(HasSubstr("fp8_base")));
}

TEST_F(Kohya, WhatIsNotSaidIsAsThoseScriptsHaveIt) {
  Config config = read("timestep_sampling = 'sigmoid'\n");
  const std::pair<const char*, const char*> expected[] = {{"network.linear", "4"},
                                                          {"network.linear_alpha", "1"},
                                                          {"train.lr", "2e-06"},
                                                          {"train.steps", "1600"},
                                                          {"train.dtype", "\"fp32\""},
                                                          {"train.train_text_encoder", "true"},
                                                          {"train.cfg_scale", "3.5"},
                                                          {"save.dtype", "\"float32\""},
                                                          {"train.timestep_type", "\"sigmoid\""},
                                                          {"train.timestep_shift", "1"},
                                                          {"train.gradient_checkpointing", "\"false\""}};
  for (const auto& [key, value] : expected) EXPECT_EQ(value_of(config, key), value) << key;
}

// What the interface kohya_ss writes for every model, whatever it is.
TEST_F(Kohya, FilesOfItsInterface) {
  Config config = read(
      "epoch = 1\nclip_skip = 1\nnoise_offset_type = 'Multires'\nstop_text_encoder_training = 50\nmem_eff_save = true\n"
      "t5xxl_max_token_length = 256\nmax_train_steps = 1600\n");
  EXPECT_EQ(value_of(config, "train.steps"), "1600");
  EXPECT_EQ(value_of(config, "model.max_sequence_length"), "256");
  EXPECT_FALSE(config.model.given.contains("clip_skip"));
  EXPECT_TRUE(read("clip_skip = 2\n").model.given.contains("clip_skip"));
  EXPECT_THAT(error_of("single_blocks_to_swap = 4\n"), HasSubstr("use blocks_to_swap"));
  EXPECT_THAT(test::error_of([] { parse_config("{\"LoRA_type\": \"Flux1\", \"epoch\": 1}", "p.json"); }),
              AllOf(StartsWith("p.json:1:2: this is a preset of the interface kohya_ss: it is read as one where"),
                    Not(HasSubstr("epoch"))));
}

TEST_F(Kohya, WeightsThatAreMergedFirst) {
  Config config = read(
      "base_weights = ['a.safetensors', 'b.safetensors', 'c.safetensors']\n"
      "base_weights_multiplier = [0.5, -1]\n");
  EXPECT_EQ(value_of(config, "model.lora_path"), "[\"a.safetensors:0.5\", \"b.safetensors:-1\", \"c.safetensors:1\"]");
  EXPECT_EQ(value_of(config = read("base_weights = 'a.safetensors'\n"), "model.lora_path"), "[\"a.safetensors:1\"]");
  EXPECT_EQ(value_of(config = read("base_weights_multiplier = [1.0]\n"), "model.lora_path"), "");
  EXPECT_EQ(value_of(config = read("base_weights = []\n"), "model.lora_path"), "");
  EXPECT_THAT(error_of("base_weights = ['a']\nbase_weights_multiplier = ['much']\n"),
              HasSubstr("x.toml:2:28: base_weights_multiplier: expected a number for each of base_weights"));
}

TEST_F(Kohya, ArgumentsThatAreEmptyTexts) {
  Config config = read("network_args = ''\noptimizer_args = ''\nlr_scheduler_args = ''\n");
  EXPECT_EQ(value_of(config, "network.network_kwargs"), "");
  EXPECT_EQ(value_of(config, "train.optimizer_params"), "");
}

TEST_F(Kohya, ShapesOfBucketsAreOfAnArea) {
  const auto dataset = [](const std::string& keys) {
    return "[[datasets]]\n" + keys + "[[datasets.subsets]]\nimage_dir = 'a'\n";
  };
  for (const auto& [keys, side] :
       std::vector<std::pair<std::string, std::string>>{{"enable_bucket = true\nresolution = [1024, 576]\n", "[768]"},
                                                        {"resolution = '1024, 576'\nenable_bucket = true\n", "[768]"},
                                                        {"resolution = '512,512'\n", "[512]"},
                                                        {"resolution = 640\n", "[640]"}}) {
    Config config = read("", dataset(keys));
    EXPECT_EQ(value_of(config, "datasets[].resolution"), side) << keys;
  }
  Config config = read("resolution = '1024,576'\nenable_bucket = true\n", dataset(""));
  EXPECT_EQ(value_of(config, "datasets[].resolution"), "[768]");
  for (const char* odd : {"'512,'", "','", "[512, 'x']", "'0,0'"})
    EXPECT_THAT(error_of("", dataset(fmt::format("resolution = {}\n", odd))), HasSubstr("resolution")) << odd;
}

TEST_F(Kohya, DatasetsMayBeJson) {
  test::put(dir_ / "y.json", R"({"general": {"caption_extension": ".txt", "enable_bucket": true},
    "datasets": [{"resolution": [1024, 576], "subsets": [{"image_dir": "a b", "num_repeats": 2}]}]})");
  Config config = load_config("", dir_ / "y.json", {.model = false});
  ASSERT_EQ(config.datasets.size(), 1u);
  EXPECT_EQ(config.datasets[0].folder_path, "a b");
  EXPECT_EQ(config.datasets[0].num_repeats, 2);
  EXPECT_EQ(config.datasets[0].resolution, std::vector<int64_t>{768});
  EXPECT_TRUE(config.datasets[0].buckets);
  test::put(dir_ / "y.json", R"({"datasets": [{"subsets": [{"image_dirr": "a"}]}]})");
  EXPECT_THAT(test::error_of([&] { load_config("", dir_ / "y.json", {.model = false}); }),
              HasSubstr("y.json:1:29: image_dirr: unknown key"));
}

TEST_F(Kohya, DatasetsInPlaceOfTrainingArguments) {
  EXPECT_EQ(error_of("[general]\nshuffle_caption = true\n[[datasets]]\nresolution = 512\n"),
            "x.toml:3:1: these are datasets: give the file with --dataset_config, beside --config FILE with training "
            "arguments or --model PATH");
}

TEST_F(Kohya, TrainedWeightsStayInFloat32) {
  for (const std::string key : {"full_bf16", "full_fp16"}) {
    EXPECT_THAT(read(key + " = true\n").notes, testing::Contains(HasSubstr(key + ": trained weights")));
    EXPECT_THAT(read(key + " = false\n").notes, Not(testing::Contains(HasSubstr(key))));
  }
}

TEST_F(Kohya, TextIsMaskedAsTheModelHasIt) {
  EXPECT_THAT(read("apply_t5_attn_mask = true\n").notes, testing::Contains(HasSubstr("apply_t5_attn_mask: the pads")));
  EXPECT_THAT(read("apply_t5_attn_mask = false\n").notes, Not(testing::Contains(HasSubstr("attn_mask"))));
}

// All that LyCORIS and lora_flux can be told, as the interface writes it; what is off is not asked for.
TEST_F(Kohya, NetworkArgumentsThatSayNothing) {
  Config config = read(
      "network_module = 'lycoris.kohya'\nnetwork_args = ['preset=full', 'conv_dim=1', 'use_tucker=False', "
      "'rank_dropout=0', 'bypass_mode=False', 'dora_wd=False', 'use_cp=False', 'use_scalar=False', 'algo=lokr', "
      "'train_norm=False', 'train_blocks=all', 'train_single_block_indices=all']\n");
  EXPECT_EQ(value_of(config, "network.type"), "\"lokr\"");
  EXPECT_EQ(value_of(config, "network.network_kwargs"), "{\"use_tucker\": false, \"weight_decompose\": false}");
  config = read("network_args = ['dora_wd=True', 'wd_on_output=True', 'use_scalar=True', 'train_blocks=single']\n");
  EXPECT_EQ(value_of(config, "network.network_kwargs"),
            "{\"train_blocks\": \"single\", \"use_scalar\": true, \"wd_on_out\": true, \"weight_decompose\": true}");
}

TEST_F(Kohya, LycorisAdaptsConvolutionsToo) {
  Config config = read("network_module = 'lycoris.kohya'\nnetwork_dim = 16\nnetwork_args = ['algo=loha']\n");
  EXPECT_EQ(value_of(config, "network.conv"), "16");
  EXPECT_EQ(value_of(config, "network.conv_alpha"), "1");
  config = read("network_module = 'lycoris.kohya'\nnetwork_args = ['algo=loha', 'conv_dim=2', 'conv_alpha=3']\n");
  EXPECT_EQ(value_of(config, "network.conv"), "2");
  EXPECT_EQ(value_of(config, "network.conv_alpha"), "3");
  EXPECT_EQ(value_of(config = read("network_module = 'networks.lora'\nnetwork_dim = 16\n"), "network.conv"), "0");
}

TEST_F(Kohya, NormsOfDoraAreSaid) {
  EXPECT_THAT(error_of("network_args = ['dora_wd=True']\n"), HasSubstr("dora_wd: say wd_on_output as well"));
}

TEST_F(Kohya, ScriptsAreNoConfigurations) {
  for (const char* text : {"accelerate launch a.py --dit x \\\n  --vae y\n", "#!/bin/sh\na: b: c\n"})
    EXPECT_THAT(test::error_of([&] { parse_config(text, "train.sh"); }),
                AllOf(HasSubstr("this is a script"), Not(HasSubstr("missing"))))
        << text;
}

TEST_F(Kohya, LearningRatesOfParts) {
  Config config = read("learning_rate = 1e-4\nunet_lr = 2e-4\n");
  EXPECT_EQ(value_of(config, "train.lr"), "0.0002");
  EXPECT_EQ(value_of(config, "train.text_encoder_lr"), "[0.0001]");
  config = read("unet_lr = 2e-4\ntext_encoder_lr = [1e-5, 2e-5]\n");
  EXPECT_EQ(value_of(config, "train.text_encoder_lr"), "[1e-05, 2e-05]");
}

TEST_F(Kohya, DatasetsTakeWhatASubsetDoesNotSayFromAbove) {
  Config config = read("", R"(
[general]
shuffle_caption = false
caption_extension = ".txt"
keep_tokens = 1
flip_aug = true
batch_size = 3
[[datasets]]
resolution = 1024
batch_size = 4
enable_bucket = true
min_bucket_reso = 256
  [[datasets.subsets]]
  image_dir = "a"
  num_repeats = 10
  class_tokens = "sks dog"
  caption_prefix = "photo,"
  caption_dropout_rate = 0.1
  [[datasets.subsets]]
  image_dir = "b"
  flip_aug = false
[[datasets]]
resolution = [512, 512]
  [[datasets.subsets]]
  image_dir = "c"
  caption_extension = ".caption"
  conditioning_data_dir = "edges"
)");
  ASSERT_EQ(config.datasets.size(), 3u);
  const auto expect = [&](size_t at, std::vector<std::pair<const char*, const char*>> values) {
    for (const auto& [key, value] : values)
      EXPECT_EQ(value_of(config, std::string("datasets[].") + key, at), value) << key;
  };
  expect(0, {{"folder_path", "\"a\""},
             {"num_repeats", "10"},
             {"default_caption", "\"sks dog\""},
             {"caption_prefix", "\"photo,\""},
             {"caption_dropout_rate", "0.1"},
             {"caption_ext", "\"txt\""},
             {"resolution", "[1024]"},
             {"buckets", "true"},
             {"flip_x", "true"},
             {"batch_size", "[4]"},
             {"missing_captions", "\"empty\""}});
  expect(1, {{"batch_size", "[4]"},
             {"folder_path", "\"b\""},
             {"flip_x", "false"},
             {"num_repeats", "1"},
             {"buckets", "true"}});
  expect(2, {{"batch_size", "[3]"}, {"caption_ext", "\"caption\""}, {"resolution", "[512]"}, {"buckets", "false"}});
  EXPECT_EQ(config.datasets[2].images.at("control")[0].text, "edges");
  EXPECT_EQ(config.train.batch_size, 1);
  EXPECT_THAT(config.notes, testing::Contains(HasSubstr("flip_aug")));
}

using Rows = std::vector<std::pair<const char*, const char*>>;

TEST_F(Kohya, PagedOptimizersAreTheOthersWithStatesThatMayGo) {
  for (const auto& [name, id] : Rows{{"PagedAdamW8bit", "adamw8bit"},
                                     {"PagedAdamW", "adamw"},
                                     {"PagedAdamW32bit", "adamw"},
                                     {"PagedLion8bit", "lion8bit"}}) {
    Config config = read(fmt::format("optimizer_type = '{}'\n", name));
    EXPECT_EQ(value_of(config, "train.optimizer"), fmt::format("\"{}\"", id)) << name;
    EXPECT_EQ(value_of(config, "memory.optimizer_states"), "\"auto\"");
    EXPECT_THAT(config.notes, testing::Contains(testing::HasSubstr("(memory.optimizer_states)"))) << name;
  }
}

// What a subset may have, and what the training arguments say for all of them.
TEST_F(Kohya, SubsetsHaveTheWholeSchema) {
  Config config = read("shuffle_caption = true\nkeep_tokens = 3\nresolution = '512,512'\n[t]\nmasked_loss = true\n", R"(
[general]
caption_separator = "."
[[datasets]]
  [[datasets.subsets]]
  image_dir = "a"
  keep_tokens = 1
  keep_tokens_separator = "|||"
  secondary_separator = ";;;"
  enable_wildcard = true
  caption_dropout_every_n_epochs = 2
  caption_tag_dropout_rate = 0.1
  token_warmup_min = 2
  token_warmup_step = 0.5
  color_aug = true
  random_crop = true
  alpha_mask = true
  [[datasets.subsets]]
  metadata_file = "m/meta.jsonl"
  shuffle_caption = false
  [[datasets.subsets]]
  image_dir = "reg"
  is_reg = true
  class_tokens = "dog"
  conditioning_data_dir = "masks"
)");
  ASSERT_EQ(config.datasets.size(), 3u);
  const Rows expected[] = {{{"shuffle_tokens", "\"true\""},
                            {"keep_tokens", "1"},
                            {"keep_tokens_separator", "\"|||\""},
                            {"caption_separator", "\".\""},
                            {"secondary_separator", "\";;;\""},
                            {"enable_wildcard", "true"},
                            {"caption_lines", "\"any\""},
                            {"caption_dropout_every_n_epochs", "2"},
                            {"token_dropout_rate", "0.1"},
                            {"token_warmup_min", "2"},
                            {"token_warmup_step", "0.5"},
                            {"color_aug", "true"},
                            {"random_crop", "true"},
                            {"alpha_mask", "true"},
                            {"resolution", "[512]"},
                            {"mask_path", ""}},
                           {{"folder_path", "\"m\""},
                            {"metadata_file", "\"m/meta.jsonl\""},
                            {"shuffle_tokens", "\"false\""},
                            {"keep_tokens", "3"},
                            {"caption_lines", "\"first\""}},
                           {{"is_reg", "true"}, {"default_caption", "\"dog\""}, {"mask_path", "\"masks\""}}};
  for (size_t i = 0; i < 3; ++i)
    for (const auto& [key, value] : expected[i])
      EXPECT_EQ(value_of(config, std::string("datasets[].") + key, i), value) << i << " " << key;
  EXPECT_TRUE(config.datasets[2].images.empty());
  EXPECT_EQ(config.train.mask_normalization, "none");
}

// Folders "10_sks dog" without a file of datasets.
TEST_F(Kohya, FoldersOfTheTrainingArguments) {
  test::put(dir_ / "x.toml",
            "train_data_dir = 'train'\nreg_data_dir = 'reg'\nresolution = 768\nenable_bucket = true\nflip_aug = true\n"
            "prior_loss_weight = 0.5\n");
  Config config = load_config(dir_ / "x.toml", "", {.model = false, .datasets = true});
  ASSERT_EQ(config.datasets.size(), 2u);
  for (size_t i = 0; i < 2; ++i)
    for (const auto& [key, value] : Rows{{"folder_path", i == 0 ? "\"train\"" : "\"reg\""},
                                         {"class_folders", "true"},
                                         {"is_reg", i == 0 ? "false" : "true"},
                                         {"resolution", "[768]"},
                                         {"buckets", "true"},
                                         {"flip_x", "true"}})
      EXPECT_EQ(value_of(config, std::string("datasets[].") + key, i), value) << i << " " << key;
  EXPECT_EQ(config.train.reg_weight, 0.5);
  test::put(dir_ / "x.toml", "train_data_dir = 'train'\nin_json = 'meta.json'\n");
  config = load_config(dir_ / "x.toml", "", {.model = false, .datasets = true});
  ASSERT_EQ(config.datasets.size(), 1u);
  EXPECT_EQ(config.datasets[0].metadata_file, "meta.json");
  EXPECT_FALSE(config.datasets[0].class_folders);
}

// Of where things lie, of uploads and of what is written beside a LoRA.
TEST_F(Kohya, ArgumentsThatChangeNothingAreTaken) {
  const Config config = read(
      "lowram = true\nmodel_type = 'chroma'\nt5xxl_device = 'cuda'\nt5xxl_dtype = 'bf16'\ntokenizer_cache_dir = 'c'\n"
      "async_upload = true\nhuggingface_repo_type = 'model'\nwandb_api_key = 'k'\nuse_safetensors = true\n"
      "save_state_to_huggingface = false\nclip_l_dropout_rate = 0.0\npos_emb_random_crop_rate = 0\n");
  EXPECT_EQ(to_yaml(config), to_yaml(read("")));
  EXPECT_EQ(
      error_of("clip_l_dropout_rate = 0.1\n"),
      "x.toml:1:1: clip_l_dropout_rate: not supported: use caption_dropout_rate, which leaves out the text of all "
      "encoders at once");
  EXPECT_THAT(error_of("resume_from_huggingface = true\n"), HasSubstr("use --resume"));
  EXPECT_EQ(read("", "[[datasets]]\n[[datasets.subsets]]\nimage_dir = 'a'\ncaption_extention = '.txt'\n")
                .datasets[0]
                .caption_ext,
            "txt");
}

// Presets have the numbers of every law.
TEST_F(Kohya, NumbersOfLawsThatAreNotUsedArePassedOver) {
  const std::string all = "logit_mean = 0.5\nlogit_std = 2\nmode_scale = 1.3\nsigmoid_scale = 0.5\n";
  struct Row {
    const char *law, *scheme, *kept;
  };
  for (const Row& row : {Row{"shift", "logit_normal", "train.sigmoid_scale"},
                         {"flux_shift", "none", "train.sigmoid_scale train.weighting_scheme"},
                         {"uniform", "mode", ""},
                         {"sigma", "mode", "train.mode_scale train.weighting_scheme"},
                         {"sigma", "logit_normal", "train.logit_mean train.logit_std train.weighting_scheme"},
                         {"sigma", "cosmap", "train.weighting_scheme"}}) {
    SCOPED_TRACE(std::string(row.law) + " " + row.scheme);
    Config none,
        config = read(fmt::format("{}timestep_sampling = '{}'\nweighting_scheme = '{}'\n", all, row.law, row.scheme));
    std::vector<std::string> kept;
    for (const char* key :
         {"train.logit_mean", "train.logit_std", "train.mode_scale", "train.sigmoid_scale", "train.weighting_scheme"})
      if (value_of(config, key) != value_of(none, key)) kept.emplace_back(key);
    EXPECT_EQ(fmt::format("{}", fmt::join(kept, " ")), row.kept);
  }
}

// What is drawn is a place in a schedule that begins with noise.
TEST_F(Kohya, AMeanAboveZeroHasLessNoise) {
  Config config = read("timestep_sampling = 'sigma'\nweighting_scheme = 'logit_normal'\nlogit_mean = 0.5\n");
  EXPECT_EQ(value_of(config, "train.logit_mean"), "-0.5");
}

// Their script for Lumina 2 draws by `shift`, 6 unless another one is said, whatever density is named.
TEST_F(Kohya, LevelsOfFilesWithGemma2) {
  struct Row {
    const char *text, *type, *shift;
  };
  for (const Row& row : {Row{"", "\"shift\"", "6"},
                         {"weighting_scheme = 'logit_normal'\nsigmoid_scale = 0.5\n", "\"shift\"", "6"},
                         {"discrete_flow_shift = 4\n", "\"shift\"", "4"},
                         {"timestep_sampling = 'shift'\n", "\"shift\"", "6"},
                         {"timestep_sampling = 'uniform'\n", "\"linear\"", "1"}}) {
    SCOPED_TRACE(row.text);
    Config none, config = read(std::string("gemma2 = 'g'\n") + row.text);
    EXPECT_EQ(value_of(config, "train.timestep_type"), row.type);
    EXPECT_EQ(value_of(config, "train.timestep_shift"), row.shift);
    EXPECT_EQ(value_of(config, "train.weighting_scheme"), value_of(none, "train.weighting_scheme"));
    const bool scaled = std::string(row.text).find("sigmoid_scale") != std::string::npos;
    EXPECT_EQ(value_of(config, "train.sigmoid_scale") != value_of(none, "train.sigmoid_scale"), scaled);
  }
}

// A model whose quoted words byt5 reads has the levels of its script, too.
TEST_F(Kohya, LevelsOfAModelWithGlyphs) {
  Config config = read("byt5 = 'b'\ntext_encoder = 'q'\nfp8_scaled = true\nfp8_vl = true\ntext_encoder_cpu = true\n");
  EXPECT_EQ(config.model.given.at("byt5_path").text, "b");
  EXPECT_EQ(config.model.given.at("qwen2_5_vl_path").text, "q");
  EXPECT_EQ(value_of(config, "model.dtype"), "\"float8_e4m3\"");
  EXPECT_EQ(value_of(config, "model.text_encoder_dtype"), "\"float8_e4m3\"");
  EXPECT_EQ(value_of(config, "train.timestep_type"), "\"linear\"");
  EXPECT_EQ(value_of(config, "train.timestep_shift"), "5");
  config = read("byt5 = 'b'\ndiscrete_flow_shift = 3.5\n");
  EXPECT_EQ(value_of(config, "train.timestep_shift"), "3.5");
  config = read("byt5 = 'b'\ntimestep_sampling = 'flux_shift'\n");
  EXPECT_EQ(value_of(config, "train.timestep_type"), "\"flux_shift\"");
}

TEST_F(Kohya, LevelsThatFollowTheImage) {
  for (const auto& [law, ours] : Rows{{"flux_shift", "\"flux_shift\""}, {"nextdit_shift", "\"linear_flux_shift\""}}) {
    Config none, config = read(fmt::format("timestep_sampling = '{}'\ndiscrete_flow_shift = 6\n", law));
    EXPECT_EQ(value_of(config, "train.timestep_type"), ours);
    EXPECT_EQ(value_of(config, "train.timestep_shift"), value_of(none, "train.timestep_shift")) << law;
  }
}

TEST_F(Kohya, NoSystemPromptIsNone) {
  const auto prompt = [&](const std::string& file) { return read(file).model.given.at("system_prompt").text; };
  EXPECT_EQ(prompt("gemma2 = 'g'\n"), "none");
  EXPECT_EQ(prompt("gemma2 = 'g'\nsystem_prompt = ''\n"), "none");
  EXPECT_EQ(prompt("gemma2 = 'g'\nsystem_prompt = 'Draw this.'\n"), "Draw this.");
  EXPECT_FALSE(read("t5xxl = 't'\n").model.given.contains("system_prompt"));
}

TEST_F(Kohya, LongCaptions) { EXPECT_EQ(read("max_token_length = 225\n").model.max_token_length, 225); }

TEST_F(Kohya, EpochsLossesAndNoise) {
  Config config = read(
      "max_train_epochs = 10\nsave_every_n_epochs = 2\nsave_last_n_epochs = 6\nsample_every_n_epochs = 1\n"
      "loss_type = 'smooth_l1'\nhuber_schedule = 'exponential'\nhuber_c = 0.2\nhuber_scale = 2.0\n"
      "ip_noise_gamma = 0.1\nip_noise_gamma_random_strength = true\n"
      "multires_noise_iterations = 6\nmultires_noise_discount = 0.4\n"
      "validation_split = 0.1\nvalidation_seed = 3\nvalidate_every_n_steps = 50\nvalidate_every_n_epochs = 2\n");
  for (const auto& [key, value] : Rows{{"train.max_train_epochs", "10"},
                                       {"save.save_every_n_epochs", "2"},
                                       {"save.max_step_saves_to_keep", "6"},
                                       {"sample.sample_every_n_epochs", "1"},
                                       {"train.loss", "\"smooth_l1\""},
                                       {"train.huber_schedule", "\"exponential\""},
                                       {"train.huber_c", "0.2"},
                                       {"train.huber_scale", "2"},
                                       {"train.ip_noise_gamma", "0.1"},
                                       {"train.ip_noise_gamma_random_strength", "true"},
                                       {"train.multires_noise_iterations", "6"},
                                       {"train.multires_noise_discount", "0.4"},
                                       {"train.validation_split", "0.1"},
                                       {"train.validation_seed", "3"},
                                       {"train.validate_every_n_steps", "50"},
                                       {"train.validate_every_n_epochs", "2"}})
    EXPECT_EQ(value_of(config, key), value) << key;
}

TEST_F(Kohya, DatasetsSayTogetherWhatIsKeptApart) {
  const std::string one = "[[datasets]]\nvalidation_split = 0.1\n[[datasets.subsets]]\nimage_dir = 'a'\n";
  Config config = read("validation_split = 0.5\n", "[general]\nvalidation_seed = 3\n" + one);
  EXPECT_EQ(value_of(config, "train.validation_split"), "0.1");
  EXPECT_EQ(value_of(config, "train.validation_seed"), "3");
  EXPECT_EQ(error_of("", one + "[[datasets]]\nvalidation_split = 0.2\n[[datasets.subsets]]\nimage_dir = 'b'\n"),
            "y.toml:6:1: validation_split: all datasets have one here, another has 0.1");
  EXPECT_THAT(error_of("", one + "[[datasets]]\n[[datasets.subsets]]\nimage_dir = 'b'\n"),
              HasSubstr("validation_split: the share is that of all datasets here: say it in [general]"));
}

TEST_F(Kohya, MistakesAreNamedWithTheirPlaces) {
  EXPECT_EQ(error_of("learning_rat = 1\n"),
            "x.toml:1:1: learning_rat: unknown key. Did you mean learning_rate? docs/from-kohya.md lists those that "
            "are known");
  EXPECT_EQ(error_of("a = \n"), error_of("a = \n"));
  EXPECT_THAT(error_of("a = \n"), StartsWith("x.toml:1:"));
  EXPECT_EQ(error_of("learning_rate = 'fast'\n"), "x.toml:1:17: train.lr: expected a number, found the text \"fast\"");
  EXPECT_EQ(error_of("\n[t]\nadaptive_noise_scale = 0.1\n"),
            "x.toml:3:1: adaptive_noise_scale: not supported: use noise_offset");
  EXPECT_EQ(
      error_of("network_module = 'networks.oft'\n"),
      "x.toml:1:1: network_module: networks.oft is not known: networks.lora and its kin, networks.loha, networks.lokr "
      "and lycoris.kohya are");
  EXPECT_THAT(error_of("network_module = 'networks.lora_fa'\n"),
              StartsWith("x.toml:1:1: network_module: networks.lora_fa leaves lora_down as it began"));
  EXPECT_EQ(error_of("seed = 1\n[t]\nseed = 2\n"),
            "x.toml:3:1: seed: set twice, first in line 1: sections are only for order, keep one of them");
  EXPECT_EQ(error_of("seed = 1\n[t]\nseed = 1\n"), "");
  EXPECT_THAT(error_of("model_prediction_type = 'sigma_scaled'\n"), HasSubstr("must be raw"));
  EXPECT_THAT(error_of("optimizer_args = ['weight_decay']\n"), HasSubstr("expected \"name=value\""));
  EXPECT_THAT(error_of("sample_prompts = 'p.json'\n"), HasSubstr("expected a .txt file"));
  // Both files in one report.
  EXPECT_EQ(error_of("learning_rate = 0\n",
                     "[[datasets]]\n[[datasets.subsets]]\nimage_dir = 'a'\nface_crop_aug_range = [1, 2]\n"),
            "x.toml:1:17: train.lr: must be more than 0 and at most 100, found 0\n"
            "y.toml:4:1: face_crop_aug_range: not supported: prepare the images beforehand");
  EXPECT_THAT(error_of("", "[[datasets]]\nbatch_size = 1\n"), HasSubstr("expected [[datasets.subsets]]"));
  EXPECT_THAT(error_of("", "[[datasets]]\n[[datasets.subsets]]\nnum_repeats = 1\n"),
              HasSubstr("datasets[0].folder_path: missing"));
  EXPECT_THAT(error_of("", "[[datasets]]\n[[datasets.subsets]]\nimage_dir = 'a'\nresolution = [512, 768]\n"),
              HasSubstr("both sides must be the same"));
}

// Every name that a row of the table leads to is a key of ours, or one that a plugin may have.
TEST_F(Kohya, NamesLeadToKeys) {
  for (const char* name :
       {"learning_rate", "unet_lr", "network_dim", "network_alpha", "max_train_steps", "train_batch_size", "output_dir",
        "output_name", "pretrained_model_name_or_path", "mixed_precision", "optimizer_type", "save_every_n_steps",
        "sample_every_n_steps", "save_precision", "image_dir", "class_tokens", "caption_extension", "flip_aug"}) {
    ASSERT_NE(kohya::ours(name), "") << name;
    EXPECT_NE(schema::find(kohya::ours(name)), nullptr) << name;
    // In a YAML file the name is answered with ours.
    try {
      parse_config(std::string("model: {name_or_path: m}\ndatasets: [{folder_path: d}]\ntrain: {") + name + ": 1}\n",
                   "c.yaml");
      if (schema::find(std::string("train.") + name) == nullptr) ADD_FAILURE() << name << " was accepted";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(),
                  HasSubstr(std::string("a key of kohya's scripts; here it is ") + std::string(kohya::ours(name))))
          << name;
    }
  }
}

}  // namespace
}  // namespace lh::kohya_test
