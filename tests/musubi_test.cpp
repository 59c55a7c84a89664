// Files of musubi-tuner: training arguments and datasets as TOML.
#include "config/musubi.h"

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include "config/load.h"
#include "config/musubi_keys.h"
#include "config/schema.h"
#include "config/value.h"
#include "core/error.h"
#include "io/checkpoint.h"
#include "support/io_files.h"
#include "support/model_files.h"

namespace lh::musubi_test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using Rows = std::vector<std::pair<std::string, std::string>>;

class Musubi : public testing::Test {
 protected:
  void SetUp() override { spdlog::set_level(spdlog::level::warn); }

  // Both may be empty.
  Config read(const std::string& training, const std::string& datasets = "") {
    const auto file = [&](const char* name, const std::string& text) {
      if (!text.empty()) test::put(dir_ / name, text);
      return text.empty() ? std::filesystem::path() : dir_ / name;
    };
    return load_config(file("x.toml", training), file("y.toml", datasets),
                       {.model = false, .datasets = !datasets.empty(), .plugins = &plugins_});
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
    if (key.starts_with("given."))
      return config.model.given.contains(key.substr(6)) ? config.model.given.at(key.substr(6)).text : "none";
    const schema::Key* row = schema::find(key);
    DatasetConfig none;
    return row == nullptr
               ? "there is no such key"
               : schema::print_value(row->field(config, config.datasets.empty() ? none : config.datasets[dataset]));
  }
  void expect(const std::string& training, const Rows& rows) {
    SCOPED_TRACE(training);
    Config config = read(training);
    for (const auto& [key, value] : rows) EXPECT_EQ(value_of(config, key), value) << key;
  }
  void expect_clips(const std::string& dataset, const std::vector<Rows>& all) {
    SCOPED_TRACE(dataset);
    Config config = read("", "[[datasets]]\ncaption_extension = '.txt'\n" + dataset);
    ASSERT_EQ(config.datasets.size(), all.size());
    for (size_t i = 0; i < all.size(); ++i)
      for (const auto& [key, value] : all[i]) EXPECT_EQ(value_of(config, "datasets[]." + key, i), value) << i << key;
  }

  test::TempDir dir_;
  std::vector<PluginKeys> plugins_ = test::built_plugins().model_keys();
};

TEST_F(Musubi, TrainingArguments) {
  test::put(dir_ / "prompts.txt",
            "# comment\na cat --w 64 --h 128 --f 25 --d 3 --s 8 --l 4 --fs 7.0 --g 2\n\na dog --n bad\n");
  Config config = read(R"(
dit = "wan.safetensors"
vae = "vae.safetensors"
t5 = "t5.pth"
task = "t2v-14B"
fp8_base = true
fp8_t5 = true
blocks_to_swap = 20
output_dir = "out"
output_name = "mine"
[network]
network_module = "networks.lora_wan"
network_dim = 32
network_alpha = 16
network_dropout = 0.1
network_args = ["loraplus_lr_ratio=4", "rank_dropout=0.1", "verbose=True", "exclude_patterns=[r'.*ffn.*', '.*(k|v\\.x).*']"]
scale_weight_norms = 1.0
[training]
learning_rate = 2e-4
max_train_steps = 500
max_train_epochs = 16
gradient_accumulation_steps = 3
gradient_checkpointing = true
max_grad_norm = 0.5
mixed_precision = "bf16"
optimizer_type = "bitsandbytes.optim.PagedAdamW8bit"
optimizer_args = ["weight_decay=0.1", "betas=0.9,0.99"]
lr_scheduler = "cosine_with_restarts"
lr_warmup_steps = 50
lr_scheduler_num_cycles = 3
seed = 7
timestep_sampling = "shift"
discrete_flow_shift = 3.0
save_every_n_epochs = 1
save_last_n_epochs = 5
save_precision = "bf16"
sample_every_n_epochs = 2
sample_every_n_steps = 100
sample_at_first = true
sdpa = true
max_data_loader_n_workers = 2
persistent_data_loader_workers = true
sample_prompts = ")" + (dir_ / "prompts.txt").string() +
                       "\"\n");
  for (const auto& [key, value] : Rows{
           {"plugin", "\"wan\""},
           {"model.name_or_path", "\"wan.safetensors\""},
           {"given.vae_path", "vae.safetensors"},
           {"given.umt5_path", "t5.pth"},
           {"model.dtype", "\"float8_e4m3\""},
           {"model.text_encoder_dtype", "\"float8_e4m3\""},
           {"memory.stream", "\"20\""},
           {"training_folder", "\"out\""},
           {"name", "\"mine\""},
           {"network.type", "\"lora\""},
           {"network.linear", "32"},
           {"network.linear_alpha", "16"},
           {"network.dropout", "0.1"},
           {"network.rank_dropout", "0.1"},
           {"network.scale_weight_norms", "1"},
           {"network.ignore_if_contains", "[\"ffn\", \"k\", \"v.x\"]"},
           {"train.loraplus_lr_ratio", "4"},
           {"train.lr", "0.0002"},
           {"train.steps", "500"},
           {"train.max_train_epochs", "16"},
           {"train.gradient_accumulation", "3"},
           {"train.gradient_checkpointing", "\"true\""},
           {"train.max_grad_norm", "0.5"},
           {"train.dtype", "\"bf16\""},
           {"train.optimizer", "\"adamw8bit\""},
           {"train.optimizer_params", "{\"betas\": [0.9, 0.99], \"weight_decay\": 0.1}"},
           {"train.lr_scheduler", "\"cosine_with_restarts\""},
           {"train.lr_scheduler_params", "{\"num_cycles\": 3, \"warmup_steps\": 50}"},
           {"train.seed", "7"},
           {"train.timestep_type", "\"shift\""},
           {"train.timestep_shift", "3"},
           {"train.sigmoid_scale", "1"},
           {"train.weighting_scheme", "\"none\""},
           {"train.noise_range", ""},
           {"save.save_every_n_epochs", "1"},
           {"save.max_step_saves_to_keep", "5"},
           {"save.dtype", "\"bfloat16\""},
           {"sample.sample_every_n_epochs", "2"},
           {"sample.sample_every", "100"},
           {"sample.sample_at_start", "true"},
           {"sample.prompts",
            "[{prompt: \"a cat\", width: 64, height: 128, num_frames: 25, seed: 3, guidance_scale: 4, sample_steps: "
            "8}, {prompt: \"a dog\", neg: \"bad\"}]"},
       })
    EXPECT_EQ(value_of(config, key), value) << key;
  for (const char* note : {"fp8_base", "--fs", "--g", "PagedAdamW8bit"})
    EXPECT_THAT(config.notes, Contains(HasSubstr(note)));
}

TEST_F(Musubi, WhatIsNotSaidIsAsItHasIt) {
  expect("dit = 'm'\n", {{"network.linear", "4"},
                         {"network.linear_alpha", "1"},
                         {"train.lr", "2e-06"},
                         {"train.steps", "1600"},
                         {"train.dtype", "\"bf16\""},
                         {"train.cfg_scale", "1"},
                         {"train.gradient_checkpointing", "\"false\""},
                         {"train.timestep_type", "\"linear\""},
                         {"train.timestep_shift", "1"},
                         {"train.weighting_scheme", "\"none\""},
                         {"train.noise_range", ""},
                         {"save.dtype", "\"float32\""},
                         {"save.max_step_saves_to_keep", "1000000"},
                         {"sample.width", "256"},
                         {"sample.height", "256"},
                         {"sample.sample_steps", "20"}});
  EXPECT_THAT(read("dit = 'm'\n").notes, Contains(HasSubstr("as musubi-tuner has it")));
  expect("dit = 'm'\nnetwork_dim = 8\nnetwork_alpha = 0\n", {{"network.linear_alpha", "8"}});
}

TEST_F(Musubi, ModelsAreToldByTheirNetworkOrWhatTheirScriptHas) {
  const std::string encoder = "text_encoder = 'e'\n";
  expect("dit = 'm'\nnetwork_module = 'networks.lora_qwen_image'\nfp8_vl = true\n" + encoder,
         {{"plugin", "\"qwen_image\""},
          {"given.qwen2_5_vl_path", "e"},
          {"model.text_encoder_dtype", "\"float8_e4m3\""},
          {"network.ignore_if_contains", ""}});
  for (const auto& [version, variant] :
       Rows{{"original", "none"}, {"edit", "edit"}, {"edit-2509", "edit-2509"}, {"edit-2511", "edit-2511"}})
    expect("dit = 'm'\nmodel_version = '" + version + "'\n" + encoder,
           {{"plugin", "\"qwen_image\""}, {"given.variant", variant}, {"given.qwen2_5_vl_path", "e"}});
  expect("dit = 'm'\nedit = true\n", {{"given.variant", "edit"}});
  expect("dit = 'm'\nedit_plus = true\n", {{"given.variant", "edit-2509"}});
  const std::string flux2 = "dit = 'm'\nnetwork_module = 'networks.lora_flux_2'\n" + encoder;
  expect(flux2, {{"plugin", "\"flux2\""}, {"given.mistral_path", "e"}, {"given.variant", "none"}});
  for (const auto& [version, variant] : Rows{{"klein-4b", "klein"},
                                             {"klein-9b", "klein"},
                                             {"klein-base-4b", "klein-base"},
                                             {"klein-base-9b", "klein-base"}})
    expect(flux2 + "model_version = '" + version + "'\n", {{"given.qwen3_path", "e"}, {"given.variant", variant}});
  expect("dit = 'm'\nnetwork_module = 'networks.lora_zimage'\nfp8_llm = true\n" + encoder,
         {{"plugin", "\"z_image\""},
          {"given.qwen3_path", "e"},
          {"model.text_encoder_dtype", "\"float8_e4m3\""},
          {"network.ignore_if_contains", "[\"adaLN_modulation\", \"refiner\"]"}});
  expect("dit = 'm'\nnetwork_module = 'networks.lora_flux'\ntext_encoder1 = 't'\ntext_encoder2 = 'c'\nfp8_t5 = true\n",
         {{"plugin", "\"flux\""},
          {"given.t5_path", "t"},
          {"given.clip_path", "c"},
          {"given.variant", "kontext"},
          {"network.ignore_if_contains", "[\"img_mod\", \"txt_mod\", \"modulation\"]"}});
  expect("dit = 'm'\nnetwork_module = 'networks.lora_krea2'\n" + encoder,
         {{"plugin", "\"krea2\""}, {"given.qwen3_vl_path", "e"}, {"network.target_modules", "[\".*\"]"}});
  expect("dit = 'm'\nnetwork_module = 'networks.lora_ideogram4'\n" + encoder,
         {{"plugin", "\"ideogram4\""}, {"given.qwen3_vl_path", "e"}});
  const std::string o1 =
      "dit = 'm'\nnetwork_module = 'networks.lora_hidream_o1'\nnoise_scale_start = 7.5\n"
      "noise_scale_end = 7.5\nnoise_clip_std = 2.5\nskip_t2i_visual_dummy = true\n";
  expect(o1 + "model_type = 'dev'\n", {{"plugin", "\"hidream_o1\""}, {"given.variant", "dev"}});
  EXPECT_THAT(error_of("model_type = 'full'\n" + o1),
              HasSubstr("noise_scale_start: 7.5 means variant: dev, but model_type means full: make them agree"));
  // networks.loha is of all of them.
  expect("dit = 'm'\nnetwork_module = 'networks.lokr'\nnetwork_args = ['factor=8']\nt5 = 't'\n",
         {{"plugin", "\"wan\""}, {"network.type", "\"lokr\""}, {"network.network_kwargs", "{\"factor\": 8}"}});
  expect("dit = 'm'\nnetwork_module = 'networks.loha'\nfp8_llm = true\n" + encoder, {{"plugin", "\"z_image\""}});
  expect("dit = 'm'\nnetwork_module = 'networks.loha'\nplugin = 'z_image'\n" + encoder,
         {{"plugin", "\"z_image\""}, {"given.qwen3_path", "e"}});
  EXPECT_THAT(error_of("dit = 'm'\nnetwork_module = 'networks.loha'\n" + encoder),
              HasSubstr("x.toml:3:1: text_encoder: nothing in the file says which model's it is: add plugin = "));
}

TEST_F(Musubi, LawsOfNoiseLevels) {
  struct Row {
    std::string module, text, type, shift;
    Rows more = {};
  };
  const std::string all =
      "logit_mean = 0.5\nlogit_std = 2\nmode_scale = 1.3\nsigmoid_scale = 0.5\ndiscrete_flow_shift = 7\n";
  for (const Row& row : {
           Row{"wan", "", "linear", "1"},  // the shift is one of samples
           Row{"wan", "weighting_scheme = 'cosmap'\n", "linear", "1", {{"train.weighting_scheme", "\"cosmap\""}}},
           Row{"wan",
               "weighting_scheme = 'logit_normal'\n",
               "logit_normal",
               "1",
               {{"train.weighting_scheme", "\"none\""}, {"train.logit_mean", "-0.5"}, {"train.logit_std", "2"}}},
           Row{"wan", "weighting_scheme = 'mode'\n", "mode", "1", {{"train.mode_scale", "1.3"}}},
           Row{"wan", "timestep_sampling = 'uniform'\n", "linear", "1"},
           Row{"wan", "timestep_sampling = 'sigmoid'\n", "sigmoid", "1", {{"train.sigmoid_scale", "0.5"}}},
           Row{"wan", "timestep_sampling = 'shift'\n", "shift", "7", {{"train.sigmoid_scale", "0.5"}}},
           Row{"wan",
               "timestep_sampling = 'shift'\nweighting_scheme = 'logit_normal'\n",
               "shift",
               "7",
               {{"train.weighting_scheme", "\"none\""}}},
           Row{"wan",
               "timestep_sampling = 'logsnr'\n",
               "logit_normal",
               "1",
               {{"train.logit_mean", "-0.25"}, {"train.logit_std", "1"}}},
           Row{"flux", "timestep_sampling = 'flux_shift'\n", "flux_shift", ""},
           Row{"zimage", "timestep_sampling = 'flux_shift'\n", "flux_shift", ""},
           Row{"flux_2", "timestep_sampling = 'flux2_shift'\n", "flux_shift", ""},
           Row{"qwen_image", "timestep_sampling = 'qwen_shift'\n", "flux_shift", "", {{"train.sigmoid_scale", "0.5"}}},
           Row{"krea2", "timestep_sampling = 'krea2_shift'\n", "flux_shift", ""},
           Row{"ideogram4", "timestep_sampling = 'ideogram4_shift'\n", "flux_shift", "", {{"train.sigmoid_scale", ""}}},
       })
    for (const bool given : {true, false}) {
      Rows rows{{"train.timestep_type", '"' + row.type + '"'}};
      if (given) rows.emplace_back("train.timestep_shift", row.shift);
      if (given) rows.insert(rows.end(), row.more.begin(), row.more.end());
      expect("dit = 'm'\nnetwork_module = 'networks.lora_" + row.module + "'\n" + row.text + (given ? all : ""), rows);
    }
  const auto wrong = [&](const std::string& text) {
    return error_of("dit = 'm'\nnetwork_module = 'networks.lora_qwen_image'\n" + text);
  };
  EXPECT_THAT(wrong("timestep_sampling = 'flux_shift'\n"),
              HasSubstr("x.toml:3:1: timestep_sampling: flux_shift is not supported for this model: of shifts by the "
                        "image's size it has qwen_shift. Use shift with discrete_flow_shift"));
  EXPECT_THAT(wrong("timestep_sampling = 'qinglong_qwen'\n"), HasSubstr("draws from three laws in turn"));
  EXPECT_THAT(wrong("timestep_sampling = 'nice'\n"), HasSubstr("must be sigma, uniform, "));
  EXPECT_THAT(wrong("logit_mean = 'much'\ntimestep_sampling = 'logsnr'\n"), HasSubstr("x.toml:3:14: train.logit_mean"));
}

TEST_F(Musubi, RangesOfNoiseLevels) {
  const std::string shift = "dit = 'm'\ntimestep_sampling = 'shift'\n", sigma = "dit = 'm'\n";
  const std::string range = "min_timestep = 875\nmax_timestep = 1000\n";
  expect(shift + range, {{"train.noise_range", "[0.875, 1]"}, {"train.noise_range_fit", "\"scale\""}});
  expect(shift + range + "preserve_distribution_shape = true\n",
         {{"train.noise_range", "[0.875, 1]"}, {"train.noise_range_fit", "\"cut\""}});
  expect(shift + "min_timestep = 0\nmax_timestep = 1000\n", {{"train.noise_range", ""}});
  // Places in a schedule that begins with noise.
  expect(sigma + range + "preserve_distribution_shape = true\n",
         {{"train.noise_range", "[0, 0.125]"}, {"train.noise_range_fit", "\"scale\""}});
  EXPECT_THAT(read(sigma + range).notes, Contains(HasSubstr("count from pure noise")));
  EXPECT_THAT(error_of(shift + "min_timestep = 900\nmax_timestep = 900\n"),
              HasSubstr("x.toml:3:1: min_timestep: must be below max_timestep"));
  EXPECT_THAT(error_of(shift + "max_timestep = 2000\n"), HasSubstr("expected a number from 0 to 1000"));
}

TEST_F(Musubi, ExpertsOfWanAreToldByTheirLevels) {
  const std::string task = "dit = 'm'\nnetwork_module = 'networks.lora_wan'\ntask = 't2v-A14B'\n";
  const std::string law = task + "timestep_sampling = 'shift'\n";
  expect(law + "min_timestep = 875\n", {{"given.variant", "wan2.2-high-noise"}, {"train.noise_range", "[0.875, 1]"}});
  expect(law + "max_timestep = 875\n", {{"given.variant", "wan2.2-low-noise"}, {"train.noise_range", "[0, 0.875]"}});
  expect(law, {{"given.variant", "none"}});
  EXPECT_THAT(read(law).notes, Contains(HasSubstr("dit may be either expert")));
  EXPECT_THAT(
      error_of(law + "dit_high_noise = 'h'\n"),
      HasSubstr("x.toml:5:1: dit_high_noise: not supported: there one LoRA is trained with both experts in turns, here "
                "each has its own. Make two runs: one with dit and max_timestep = 875, and one with this file as dit "
                "and min_timestep = 875"));
}

// Its experts part at another level, and samples begin with a picture.
TEST_F(Musubi, ImageToVideo) {
  test::put(dir_ / "prompts.txt", "a film --f 25 --i start.png\n");
  const std::string task = "dit = 'm'\nnetwork_module = 'networks.lora_wan'\ntask = 'i2v-A14B'\n";
  const std::string law = task + "timestep_sampling = 'shift'\n";
  expect(law + "min_timestep = 900\n", {{"given.variant", "wan2.2-high-noise"}});
  expect(law + "max_timestep = 900\n", {{"given.variant", "wan2.2-low-noise"}});
  EXPECT_THAT(read(law + "min_timestep = 875\n").notes,
              Contains(HasSubstr("min_timestep = 900 or max_timestep = 900")));
  const Config config = read(law + "sample_prompts = '" + (dir_ / "prompts.txt").string() + "'\n");
  EXPECT_EQ(config.sample.prompts.at(0).images.at("control").text, "start.png");
}

// Of 2.1 it has an image encoder; the argument for its file means nothing to other models.
TEST_F(Musubi, ImageToVideoOfAnImageEncoder) {
  test::put(dir_ / "prompts.txt", "a film --f 25 --i start.png\n");
  const std::string job = "dit = 'm'\nnetwork_module = 'networks.lora_wan'\nt5 = 't'\nclip = 'c'\nsample_prompts = '" +
                          (dir_ / "prompts.txt").string() + "'\n";
  const std::string seeing = job + "task = 'i2v-14B'\n";
  expect(seeing, {{"given.umt5_path", "t"}, {"given.clip_vision_path", "c"}, {"given.variant", "none"}});
  EXPECT_EQ(read(seeing).sample.prompts.at(0).images.at("control").text, "start.png");
  const std::string text = "dit = 'm'\nnetwork_module = 'networks.lora_wan'\nclip = 'c'\ntask = 't2v-14B'\n";
  expect(text, {{"given.clip_vision_path", "none"}});
}

// Videos of it have other frames a second.
TEST_F(Musubi, HunyuanVideo15) {
  const std::string training =
      "dit = 'm'\nnetwork_module = 'networks.lora_hv_1_5'\ntask = 't2v'\ntext_encoder = 'q'\nbyt5 = 'b'\n"
      "vae_sample_size = 128\n";
  expect(training, {{"plugin", "\"hunyuan_video\""}, {"given.qwen2_5_vl_path", "q"}, {"given.byt5_path", "b"}});
  std::string seeing = training + "image_encoder = 's'\n";
  seeing.replace(seeing.find("t2v"), 3, "i2v");
  expect(seeing, {{"given.siglip_path", "s"}, {"given.variant", "480p-i2v"}});
  Config config = read(training,
                       "[[datasets]]\nvideo_directory = 'v'\ncaption_extension = '.txt'\ntarget_frames = [25]\n"
                       "source_fps = 30.0\n");
  EXPECT_EQ(value_of(config, "datasets[].fps"), "24");
  EXPECT_THAT(
      error_of(training, "[[datasets]]\nvideo_directory = 'v'\ncaption_extension = '.txt'\nsource_fps = 16.0\n"),
      HasSubstr("expected a number of at least 24"));
}

TEST_F(Musubi, HunyuanVideo) {
  expect(
      "dit = 'm'\nnetwork_module = 'networks.lora'\ntext_encoder1 = 'l'\ntext_encoder2 = 'c'\nfp8_llm = true\n"
      "timestep_sampling = 'shift'\ndiscrete_flow_shift = 7.0\n",
      {{"plugin", "\"hunyuan_video1\""},
       {"given.llama3_path", "l"},
       {"given.clip_path", "c"},
       {"train.timestep_shift", "7"}});
}

TEST_F(Musubi, Datasets) {
  Config config = read("", R"(
[general]
resolution = [960, 544]
caption_extension = ".txt"
batch_size = 2
enable_bucket = true
bucket_no_upscale = false
num_repeats = 2
[[datasets]]
image_directory = "a"
cache_directory = "c"
[[datasets]]
image_directory = "b"
control_directory = "d"
caption_extension = ".caption"
resolution = 512
enable_bucket = false
num_repeats = 3
batch_size = 5
control_resolution = [512, 512]
[[datasets]]
image_jsonl_file = "e/list.jsonl"
resolution = [512, 768]
)");
  ASSERT_EQ(config.datasets.size(), 3u);
  const std::vector<Rows> all = {{{"folder_path", "\"a\""},
                                  {"resolution", "[723]"},
                                  {"caption_ext", "\"txt\""},
                                  {"buckets", "true"},
                                  {"num_repeats", "2"},
                                  {"batch_size", "[2]"},
                                  {"num_frames", "1"},
                                  {"frame_extraction", ""},
                                  {"missing_captions", "\"error\""},
                                  {"caption_lines", "\"whole\""}},
                                 {{"folder_path", "\"b\""},
                                  {"resolution", "[512]"},
                                  {"caption_ext", "\"caption\""},
                                  {"buckets", "false"},
                                  {"batch_size", "[5]"},
                                  {"num_repeats", "3"}},
                                 {{"folder_path", "\".\""},  // paths are those of the working directory
                                  {"metadata_file", "\"e/list.jsonl\""},
                                  {"resolution", "[627]"}}};
  for (size_t i = 0; i < all.size(); ++i)
    for (const auto& [key, value] : all[i]) EXPECT_EQ(value_of(config, "datasets[]." + key, i), value) << i << key;
  EXPECT_EQ(config.datasets[1].images.at("control")[0].text, "d");
  EXPECT_THAT(config.notes, Contains(HasSubstr("keep their own size")));
}

TEST_F(Musubi, ControlImagesOfAList) {
  test::put(dir_ / "l.jsonl",
            "{\"image_path\": \"a.png\", \"control_path_0\": \"b.png\", \"control_path_1\": \"c.png\", \"caption\": "
            "\"c\"}\n");
  const std::string list = (dir_ / "l.jsonl").string();
  const Config config = read("", "[[datasets]]\nenable_bucket = true\nimage_jsonl_file = '" + list + "'\n");
  ASSERT_EQ(config.datasets[0].images.size(), 2u);
  for (const char* key : {"control", "control_2"}) EXPECT_EQ(config.datasets[0].images.at(key)[0].text, list);
  EXPECT_THAT(error_of("", "[[datasets]]\nvideo_jsonl_file = '" + list + "'\n"), HasSubstr("control videos"));
}

TEST_F(Musubi, ClipsOfVideos) {
  // One dataset for each number of frames; what is not said is the first frame.
  expect_clips("video_directory = 'v'\n", {{{"num_frames", "1"},
                                            {"frame_extraction", "\"head\""},
                                            {"folder_path", "\"v\""},
                                            {"resolution", "[723]"},
                                            {"buckets", "true"},
                                            {"source_fps", "0"}}});
  expect_clips("video_directory = 'v'\ntarget_frames = [45, 1, 25, 26]\nnum_repeats = 2\n",
               {{{"num_frames", "1"}, {"num_repeats", "2"}},
                {{"num_frames", "25"}, {"num_repeats", "2"}},
                {{"num_frames", "45"}, {"frame_extraction", "\"head\""}}});
  expect_clips("video_directory = 'v'\ntarget_frames = [25]\nframe_extraction = 'chunk'\n",
               {{{"num_frames", "25"}, {"frame_extraction", "\"chunk\""}}});
  expect_clips("video_directory = 'v'\ntarget_frames = [25]\nframe_extraction = 'slide'\nframe_stride = 10\n",
               {{{"frame_extraction", "\"slide\""}, {"frame_stride", "10"}}});
  expect_clips("video_directory = 'v'\ntarget_frames = [25]\nframe_extraction = 'uniform'\nframe_sample = 4\n",
               {{{"frame_extraction", "\"uniform\""}, {"frame_sample", "4"}}});
  expect_clips("video_directory = 'v'\ntarget_frames = [25]\nframe_extraction = 'uniform'\n",
               {{{"frame_extraction", "\"head\""}}});
  expect_clips("video_directory = 'v'\nframe_extraction = 'full'\n",
               {{{"frame_extraction", "\"full\""}, {"num_frames", "129"}}});
  expect_clips("video_directory = 'v'\nframe_extraction = 'full'\nmax_frames = 45\nsource_fps = 30.0\n",
               {{{"num_frames", "45"}, {"source_fps", "30"}, {"fps", "16"}}});
  expect_clips("video_jsonl_file = 'v/list.jsonl'\ntarget_frames = [5]\n",
               {{{"folder_path", "\".\""}, {"metadata_file", "\"v/list.jsonl\""}, {"num_frames", "5"}}});
}

TEST_F(Musubi, MistakesAreNamedWithTheirPlaces) {
  EXPECT_EQ(error_of("dit = 'm'\nlearning_rat = 1\n"),
            "x.toml:2:1: learning_rat: unknown key. Did you mean learning_rate? docs/from-musubi.md lists those that "
            "are known");
  const std::string model = "dit = 'm'\nnetwork_module = 'networks.lora_wan'\n";
  for (const auto& [text, what] :
       Rows{{"learning_rate = 'fast'\n", "x.toml:3:17: train.lr: expected a number, found the text \"fast\""},
            {"clip_l = 'c'\n", "x.toml:3:1: clip_l: unknown key"},  // of sd-scripts alone
            {"num_timestep_buckets = 5\n", "x.toml:3:1: num_timestep_buckets: not supported: each noise level"},
            {"task = 'flf2v-14B'\n", "x.toml:3:1: task: a clip is shown its first frame alone here: i2v-14B and"},
            {"task = 't2v-14B-FC'\n", "x.toml:3:1: task: Fun Control is not trained here"},
            {"task = 'x'\n", "must be t2v-14B, t2v-1.3B, t2i-14B, t2v-A14B, i2v-A14B, i2v-14B, found the text \"x\""},
            {"model_version = 'dev'\n",
             "x.toml:3:1: model_version: networks.lora_wan has no such argument there, flux2, qwen_image have: remove "
             "it. Its "
             "files are dit, vae, t5"},
            {"text_encoder = 'e'\n", "x.toml:3:1: text_encoder: networks.lora_wan has no such argument there, "},
            {"lr_scheduler = 'rex'\n", "x.toml:3:1: lr_scheduler: rex is not supported"},
            {"log_with = 'wandb'\n", "log_with: not supported"},
            {"one_frame = true\n", "one_frame: not supported: an image is trained as a video of one frame"},
            {"network_args = ['include_patterns=[\".*attn.*\"]']\n", "include_patterns is not supported"},
            {"network_args = ['exclude_patterns=[\".*blocks\\\\.[0-9]\"]']\n", "is not supported: only patterns like"},
            {"optimizer_args = ['weight_decay']\n", "expected \"name=value\""},
            {"sample_prompts = 'p.json'\n", "expected a .txt file"}})
    EXPECT_THAT(error_of(model + text), HasSubstr(what)) << text;
  for (const auto& [module, what] :
       Rows{{"lora_framepack",
             "x.toml:2:1: network_module: no plugin trains the model of networks.lora_framepack; those that are here "
             "train those of networks.lora_flux, networks.lora_flux_2, "},
            {"oft", "networks.oft is not known: networks.lora_flux, "}})
    EXPECT_THAT(error_of("dit = 'm'\nnetwork_module = 'networks." + module + "'\n"), HasSubstr(what));
  EXPECT_THAT(error_of("dit = 'm'\nnetwork_module = 'networks.lora_qwen_image'\nmodel_version = 'layered'\n"),
              HasSubstr("Qwen-Image-Layered is not trained here"));
}

TEST_F(Musubi, MistakesOfDatasetsAreNamedWithTheirPlaces) {
  const std::string images = "[[datasets]]\nimage_directory = 'a'\ncaption_extension = '.txt'\nenable_bucket = true\n";
  const std::string videos = "[[datasets]]\nvideo_directory = 'a'\ncaption_extension = '.txt'\n";
  for (const auto& [text, what] : Rows{
           {images + "num_repeat = 2\n", "y.toml:5:1: num_repeat: unknown key. Did you mean num_repeats?"},
           {images + "multiple_target = true\n", "y.toml:5:1: multiple_target: not supported: pictures in layers"},
           {images + "no_resize_control = true\n", "control images are scaled and cut like their images"},
           {images + "qwen_image_edit_control_resolution = [1024, 1024]\n", "give the same as resolution"},
           {images + "fp_1f_target_index = 9\n", "y.toml:5:1: fp_1f_target_index: not supported"},
           {images + "target_frames = [5]\n", "y.toml:5:1: target_frames: is of videos: this dataset has images"},
           {images + "video_directory = 'v'\n", "y.toml:1:1: datasets: expected one of image_directory"},
           {images + "resolution = [5]\n", "resolution: expected [width, height], found a list"},
           {images + "batch_size = 0\n", "y.toml:5:14: datasets[0].batch_size: must be 1 to 4096, found 0"},
           {"[general]\nbatch_size = -1\n" + images,
            "y.toml:2:14: datasets[0].batch_size: must be 1 to 4096, found -1"},
           {"[[datasets]]\nimage_directory = 'a'\ncaption_extension = '.txt'\n",
            "y.toml:1:1: resolution: 960 x 544 without enable_bucket crops all images to this shape"},
           {"[[datasets]]\nimage_directory = 'a'\nresolution = 512\n",
            "y.toml:2:1: image_directory: caption_extension is missing"},
           {"[general]\ntarget_frames = [1]\nnice = 1\n" + images,
            "y.toml:2:1: target_frames: belongs to a [[datasets]]"},
           {"[general]\nnice = 1\n" + images, "y.toml:2:1: nice: unknown key"},
           {"mine = 1\n" + images, "y.toml:1:1: mine: unknown key"},
           {videos + "control_directory = 'c'\n", "y.toml:4:1: control_directory: not supported: videos"},
           {videos + "frame_extraction = 'tail'\n", "must be head, chunk, slide, uniform or full, found tail"},
           {videos + "target_frames = [0]\n", "y.toml:4:18: target_frames: expected an integer of at least 1"},
           {videos + "source_fps = 12.0\n", "y.toml:4:1: source_fps: expected a number of at least 16"},
       })
    EXPECT_THAT(error_of("", text), HasSubstr(what)) << text;
  test::put(dir_ / "l.jsonl", "{\"image_path_0\": \"a.png\", \"image_path_1\": \"b.png\", \"caption\": \"c\"}\n");
  EXPECT_THAT(
      error_of("", "[[datasets]]\nenable_bucket = true\nimage_jsonl_file = '" + (dir_ / "l.jsonl").string() + "'\n"),
      HasSubstr("y.toml:3:1: image_jsonl_file: its lines have image_path_1: pictures in layers"));
  // Both files in one report.
  EXPECT_EQ(error_of("dit = 'm'\nlearning_rate = 0\n", images + "multiple_target = true\n"),
            "x.toml:2:17: train.lr: must be more than 0 and at most 100, found 0\n"
            "y.toml:5:1: multiple_target: not supported: pictures in layers are not trained here");
}

TEST_F(Musubi, TheArgumentsMayNameTheDatasets) {
  test::put(dir_ / "d.toml", "[[datasets]]\nimage_directory = 'a'\ncaption_extension = '.txt'\nenable_bucket = true\n");
  test::put(dir_ / "x.toml", "dit = 'm'\ndataset_config = '" + (dir_ / "d.toml").string() + "'\n");
  EXPECT_EQ(load_config(dir_ / "x.toml", "", {.model = false, .datasets = true, .plugins = &plugins_})
                .datasets.at(0)
                .folder_path,
            "a");
}

// A model of another plugin, which says itself what files of musubi-tuner mean.
TEST_F(Musubi, ModelsOfOtherPlugins) {
  const std::string checkpoint = R"(
components: {denoiser: {config: name_or_path, marker: a}}
files: {words_path: {help: A file.}}
settings: {variant: {one_of: [small, large], help: Which.}}
)";
  const auto keys_of = [&](const std::string& section) {
    CheckpointSpec spec = CheckpointSpec::parse(checkpoint + section, "mine");
    return PluginKeys{.plugin = "mine", .keys = std::move(spec.keys), .musubi = std::move(spec.musubi)};
  };
  plugins_.push_back(keys_of(R"(
musubi_tuner:
  network_module: networks.lora_mine
  paths: {words: words_path}
  words: {size: {large: {set: {variant: large}}, huge: none is so large}}
  left_out: [norm]
  fps: 30
)"));
  const std::string training = "dit = 'm'\nwords = 'w'\nsize = 'large'\n";
  expect(training, {{"plugin", "\"mine\""},  // told by its arguments
                    {"given.words_path", "w"},
                    {"given.variant", "large"},
                    {"network.ignore_if_contains", "[\"norm\"]"}});
  EXPECT_THAT(error_of("dit = 'm'\nnetwork_module = 'networks.lora_mine'\nsize = 'huge'\n"),
              HasSubstr("x.toml:3:1: size: none is so large"));
  EXPECT_THAT(
      error_of(training, "[[datasets]]\nvideo_directory = 'v'\ncaption_extension = '.txt'\nsource_fps = 24.0\n"),
      HasSubstr("expected a number of at least 30"));
  for (const auto& [section, what] : Rows{
           {"musubi_tuner: {paths: {}}\n", "musubi_tuner"},
           {"musubi_tuner: {network_module: n, nice: 1}\n", "nice"},
           {"musubi_tuner: {network_module: n, paths: {a: b_path}}\n", "`b_path` is no file of this model"},
           {"musubi_tuner: {network_module: n, set: {variant: huge}}\n", "`variant: huge` is no setting of this model"},
           {"musubi_tuner: {network_module: n, words: {a: {b: {boundary: 0.5}}}}\n", "needs `above` and `below`"}})
    try {
      keys_of(section);
      ADD_FAILURE() << section;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("plugin mine: checkpoint YAML:5:"), HasSubstr(what)));
    }
}

// A file of sd-scripts is one of theirs still.
TEST_F(Musubi, FilesOfKohyasScriptsAreTold) {
  EXPECT_EQ(read("learning_rate = 1e-4\n").train.dtype, "fp32");
  EXPECT_THAT(error_of("t5 = 'a'\n"), HasSubstr("docs/from-kohya.md"));
  EXPECT_THAT(error_of("", "[[datasets]]\n[[datasets.subsets]]\nimage_directory = 'a'\n"),
              HasSubstr("docs/from-kohya.md"));
}

// Every name that a row of the table leads to is a key of ours, or one that a plugin may have.
TEST_F(Musubi, NamesLeadToKeys) {
  for (const char* name : {"dit",
                           "output_dir",
                           "output_name",
                           "network_dim",
                           "network_dropout",
                           "network_weights",
                           "learning_rate",
                           "lr_scheduler",
                           "max_train_steps",
                           "max_train_epochs",
                           "save_precision",
                           "sample_prompts",
                           "gradient_checkpointing",
                           "seed",
                           "image_directory",
                           "video_directory",
                           "image_jsonl_file",
                           "video_jsonl_file",
                           "caption_extension",
                           "num_repeats"})
    EXPECT_NE(schema::find(musubi::ours(name)), nullptr) << name;
}

}  // namespace
}  // namespace lh::musubi_test
