// Presets of the interface kohya_ss: its fields become the arguments that it starts kohya's scripts with.
// tests/data/kohya_ss/all_fields.json has every field of the interface, as it stands when it is opened.
#include "config/kohya_ss.h"

#include <gmock/gmock.h>
#include <spdlog/spdlog.h>

#include <nlohmann/json.hpp>

#include "config/load.h"
#include "config/schema.h"
#include "config/value.h"
#include "plugin/registry.h"
#include "support/image_files.h"
#include "support/io_files.h"
#include "support/model_files.h"
#include "support/model_shapes.h"
#include "support/paths.h"
#include "support/run_host.h"

namespace lh::test::kohya_ss_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

json all_fields() { return json::parse(get(fs::path(source_dir()) / "tests/data/kohya_ss/all_fields.json")); }

class KohyaSs : public testing::Test {
 protected:
  void SetUp() override { spdlog::set_level(spdlog::level::warn); }

  Config read(const json& fields) {
    put(dir_ / "preset.json", fields.dump(2));
    static const std::vector<PluginKeys> plugins = built_plugins().model_keys();
    return load_config(dir_ / "preset.json", "", {.model = false, .datasets = false, .plugins = &plugins});
  }
  // All fields, but for these.
  Config with(const json& changed) {
    json fields = all_fields();
    fields.update(changed);
    return read(fields);
  }
  std::string error_with(const json& changed) {
    return error_of([&] { with(changed); });
  }
  void expect(Config config, std::initializer_list<std::pair<const char*, const char*>> values) {
    DatasetConfig none;
    for (const auto& [name, value] : values) {
      const schema::Key* key = schema::find(name);
      ASSERT_NE(key, nullptr) << name;
      DatasetConfig& dataset = config.datasets.empty() ? none : config.datasets[0];
      EXPECT_EQ(schema::print_value(key->field(config, dataset)), value) << name;
    }
  }
  // Pictures in a folder of folders: "3_dog" with two of them, "2_cat" with one, one that is not used.
  std::string pictures(const std::string& name) {
    for (const char* file : {"3_dog/a.png", "3_dog/b.PNG", "3_dog/a.txt", "2_cat/c.png", "others/d.png"}) {
      fs::create_directories((dir_ / name / file).parent_path());
      write_file(dir_ / name / file, encode_png(test_picture(64, 64)));
    }
    return (dir_ / name).string();
  }

  TempDir dir_;
};

TEST_F(KohyaSs, AllFieldsAreUnderstood) {
  expect(with({{"sdxl", true}}), {{"model.name_or_path", "\"model.safetensors\""},
                                  {"training_folder", "\"out\""},
                                  {"name", "\"last\""},
                                  {"network.type", "\"lora\""},
                                  {"network.linear", "8"},
                                  {"network.linear_alpha", "1"},
                                  {"network.conv", "0"},
                                  {"train.lr", "0.0001"},
                                  {"train.text_encoder_lr", "[0.0001]"},
                                  {"train.train_text_encoder", "true"},
                                  {"train.optimizer", "\"AdamW8bit\""},
                                  {"train.lr_scheduler", "\"cosine\""},
                                  {"train.max_train_epochs", "1"},
                                  {"train.dtype", "\"bf16\""},
                                  {"save.dtype", "\"float16\""},
                                  {"save.save_every_n_epochs", "1"},
                                  {"train.noise_offset", "0"},
                                  {"memory.stream", "\"auto\""}});
  for (const char* other :
       {"flux1_checkbox", "sd3_checkbox", "hunyuan_image_checkbox", "anima_checkbox", "lumina_checkbox"})
    EXPECT_EQ(error_with({{other, true}}), "") << other;
}

// What is of another model than the one that is on is passed over.
TEST_F(KohyaSs, FieldsOfModels) {
  const json of_flow = {{"timestep_sampling", "shift"},
                        {"discrete_flow_shift", 3.1582},
                        {"guidance_scale", 1.0},
                        {"weighting_scheme", "cosmap"},
                        {"blocks_to_swap", 18},
                        {"t5xxl", "t5.safetensors"},
                        {"sd3_t5xxl", "t5_of_3.safetensors"},
                        {"ae", "ae.safetensors"},
                        {"clip_l", "l.safetensors"},
                        {"flux1_cache_text_encoder_outputs", true}};
  json flux = of_flow;
  flux.update({{"flux1_checkbox", true}, {"LoRA_type", "Flux1"}, {"rank_dropout", 0.1}, {"split_qkv", false}});
  Config config = with(flux);
  expect(config, {{"train.timestep_type", "\"shift\""},
                  {"train.timestep_shift", "3.1582"},
                  {"train.cfg_scale", "1"},
                  {"memory.stream", "\"18\""},
                  {"train.train_text_encoder", "false"},
                  {"network.rank_dropout", "0.1"},
                  {"train.weighting_scheme", ""}});
  EXPECT_EQ(config.model.given.at("t5_path").text, "t5.safetensors");
  json sd3 = of_flow;
  sd3.update({{"sd3_checkbox", true}});
  config = with(sd3);
  expect(config,
         {{"train.weighting_scheme", "\"cosmap\""}, {"train.train_text_encoder", "true"}, {"train.cfg_scale", "3.5"}});
  EXPECT_EQ(config.model.given.at("t5_path").text, "t5_of_3.safetensors");
  json xl = of_flow;
  xl.update({{"sdxl", true}, {"sdxl_no_half_vae", true}});
  config = with(xl);
  expect(config, {{"memory.stream", "\"auto\""}, {"train.cfg_scale", "3.5"}, {"train.train_text_encoder", "true"}});
  EXPECT_FALSE(config.model.given.contains("t5_path"));
  // Of this one the interface trains no text encoder.
  expect(with({{"hunyuan_image_checkbox", true}, {"LoRA_type", "HunyuanImage-2.1"}}),
         {{"train.train_text_encoder", "false"}});
  EXPECT_THAT(error_with({{"new_checkbox", true}}), HasSubstr("new_checkbox: a kind of model that no plugin here has"));
}

TEST_F(KohyaSs, Networks) {
  const json left_over = {{"conv_dim", 4},  {"conv_alpha", 2},    {"factor", 6},
                          {"use_cp", true}, {"train_norm", true}, {"module_dropout", 0.25}};
  const auto network = [&](const char* type, json more = {}) {
    json fields = left_over;
    fields["LoRA_type"] = type;
    if (!more.empty()) fields.update(more);
    return with(fields);
  };
  expect(network("Standard"),
         {{"network.type", "\"lora\""}, {"network.conv", "0"}, {"network.module_dropout", "0.25"}});
  expect(network("Kohya LoCon"), {{"network.type", "\"lora\""}, {"network.conv", "4"}, {"network.conv_alpha", "2"}});
  expect(network("LyCORIS/LoHa", {{"train_norm", false}}), {{"network.type", "\"loha\""}, {"network.conv", "4"}});
  const Config lokr = network("LyCORIS/LoKr", {{"train_norm", false}, {"use_cp", false}});
  expect(lokr, {{"network.type", "\"lokr\""}, {"network.conv", "4"}});
  EXPECT_EQ(lokr.network.network_kwargs.at("factor").value.text, "6");
  // Without a rank of their own convolutions have that of the rest, as LyCORIS does it; kohya's are then left alone.
  expect(network("LoCon", {{"train_norm", false}, {"conv_dim", 0}}),
         {{"network.type", "\"locon\""}, {"network.conv", "8"}});
  expect(network("Kohya LoCon", {{"conv_dim", 0}}), {{"network.conv", "0"}});
  for (const auto& [type, what] :
       std::vector<std::pair<const char*, const char*>>{{"Kohya DyLoRA", "networks.dylora is not known"},
                                                        {"LoRA-FA", "say networks.lora"},
                                                        {"Flux1 OFT", "Flux1 OFT is not known"}})
    EXPECT_THAT(error_of([&, t = type] { network(t); }), HasSubstr(what)) << type;
  // Whether there is an adapter of the name is known when the run begins.
  for (const auto& [type, algo] : std::vector<std::pair<const char*, const char*>>{{"LyCORIS/BOFT", "boft"},
                                                                                   {"LyCORIS/Diag-OFT", "diag-oft"},
                                                                                   {"LyCORIS/DyLoRA", "dylora"},
                                                                                   {"LyCORIS/GLoRA", "glora"},
                                                                                   {"LyCORIS/iA3", "ia3"}})
    EXPECT_EQ(network(type, {{"train_norm", false}}).network.type, algo);
  EXPECT_TRUE(network("LyCORIS/LoHa").network.network_kwargs.contains("train_norm")) << "which no adapter has";
}

TEST_F(KohyaSs, LearningRates) {
  expect(with({{"unet_lr", "0.0003"}, {"text_encoder_lr", 5e-5}}),
         {{"train.lr", "0.0003"}, {"train.text_encoder_lr", "[5e-05]"}, {"train.train_text_encoder", "true"}});
  expect(with({{"unet_lr", 3e-4}, {"text_encoder_lr", 0.0}}),
         {{"train.lr", "0.0003"}, {"train.train_text_encoder", "false"}});
  expect(with({{"unet_lr", 0}, {"text_encoder_lr", 0}, {"learning_rate", 2e-4}}),
         {{"train.lr", "0.0002"}, {"train.train_text_encoder", "true"}});
  EXPECT_THAT(error_with({{"unet_lr", 0}}), HasSubstr("network_train_text_encoder_only"));
  EXPECT_THAT(error_with({{"text_encoder_lr", 0}, {"t5xxl_lr", 1e-4}}), HasSubstr("t5xxl_lr: needs a text_encoder_lr"));
}

// As many steps as the interface counts.
TEST_F(KohyaSs, StepsAndWarmUp) {
  const std::string folder = pictures("train");
  const auto counted = [&](json more) {
    more["train_data_dir"] = folder;
    return with(more);
  };
  expect(counted({{"epoch", 5}}), {{"train.steps", "40"}, {"train.max_train_epochs", "0"}});
  expect(counted({{"epoch", "5"}, {"train_batch_size", 3}, {"gradient_accumulation_steps", 2.0}}),
         {{"train.steps", "7"}, {"train.batch_size", "3"}, {"train.gradient_accumulation", "2"}});
  expect(counted({{"reg_data_dir", pictures("reg")}}), {{"train.steps", "16"}});
  expect(counted({{"max_train_steps", 7}, {"epoch", 5}}), {{"train.steps", "7"}});
  expect(counted({{"max_train_epochs", 3}, {"epoch", 5}}), {{"train.max_train_epochs", "3"}});
  expect(with({{"epoch", 5}}), {{"train.max_train_epochs", "5"}});

  const auto warm_up = [&](json more) {
    more.update({{"lr_scheduler", "cosine_with_restarts"}, {"max_train_steps", 200}});
    return with(more).train.lr_scheduler_params;
  };
  EXPECT_EQ(warm_up({{"lr_warmup", 10}}).at("warmup_ratio"), 0.1);
  EXPECT_EQ(warm_up({{"lr_warmup", 10}, {"lr_warmup_steps", 30}}).at("warmup_steps"), 30);
  EXPECT_FALSE(warm_up(json::object()).contains("warmup_ratio"));
}

TEST_F(KohyaSs, NoiseIsOfOneKind) {
  const json both = {{"noise_offset", 0.05}, {"multires_noise_iterations", 6}, {"multires_noise_discount", 0.3}};
  const auto with_type = [&](const char* type) {
    json fields = both;
    fields["noise_offset_type"] = type;
    return fields;
  };
  expect(with(with_type("Original")), {{"train.noise_offset", "0.05"}, {"train.multires_noise_iterations", "0"}});
  expect(with(with_type("Multires")), {{"train.noise_offset", "0"}, {"train.multires_noise_iterations", "6"}});
  EXPECT_THAT(error_with(with_type("Pyramid")), HasSubstr("must be Original or Multires, found Pyramid"));
}

TEST_F(KohyaSs, TextsAreCutAsItCutsThem) {
  const Config config = with({{"optimizer", "AdamW"},
                              {"optimizer_args", "\"weight_decay=0.1\" betas=0.9,0.95"},
                              {"sample_prompts", "# no prompt\na cat --w 64 --h 64\n\na dog"},
                              {"additional_parameters", "--save_every_n_steps \"50\" --log_prefix=mine --seed=5"},
                              {"seed", 9},
                              {"num_processes", 2},
                              {"gpu_ids", "0,1"}});
  expect(config, {{"train.optimizer", "\"AdamW\""}, {"save.save_every", "50"}, {"train.seed", "5"}});
  EXPECT_EQ(config.train.optimizer_params.at("weight_decay").value.text, "0.1");
  ASSERT_EQ(config.sample.prompts.size(), 2u);
  EXPECT_THAT(config.notes, Contains(HasSubstr("--processes 2")));
  EXPECT_THAT(error_with({{"additional_parameters", "save_every 4"}}), HasSubstr("expected --name, found save_every"));
}

TEST_F(KohyaSs, MistakesAreNamed) {
  EXPECT_THAT(error_with({{"optimzer", "AdamW"}}),
              AllOf(HasSubstr("preset.json:"), HasSubstr("optimzer: unknown field. Did you mean optimizer?")));
  EXPECT_THAT(error_with({{"lr_warmupp", 10}}), HasSubstr("Did you mean lr_warmup?"));
  EXPECT_THAT(error_with({{"network_dims", 4}}), HasSubstr("network_dims: unknown key. Did you mean network_dim?"));
  EXPECT_THAT(error_with({{"wholly_new", 4}}), HasSubstr("wholly_new: unknown key"));
}

// What files of older versions have, without the fields that came later.
TEST_F(KohyaSs, OldPresets) {
  const json old = {{"LoRA_type", "Standard"},
                    {"pretrained_model_name_or_path", "stable.safetensors"},
                    {"output_name", "mine"},
                    {"learning_rate", "0.0001"},
                    {"unet_lr", "0.0001"},
                    {"text_encoder_lr", "5e-5"},
                    {"use_8bit_adam", true},
                    {"use_wandb", false},
                    {"lr_scheduler_num_cycles", ""},
                    {"lr_scheduler_power", ""},
                    {"max_train_epochs", ""},
                    {"seed", "1234"},
                    {"xformers", true},
                    {"no_token_padding", false},
                    {"lora_network_weights", "before.safetensors"},
                    {"network_dim", 32},
                    {"epoch", 10},
                    {"stop_text_encoder_training_pct", 0},
                    {"max_resolution", "512,512"},
                    {"noise_offset", ""}};
  expect(read(old), {{"train.optimizer", "\"AdamW8bit\""},
                     {"train.max_train_epochs", "10"},
                     {"train.seed", "1234"},
                     {"network.linear", "32"},
                     {"network.pretrained_lora_path", "\"before.safetensors\""}});
}

TEST_F(KohyaSs, APresetIsTrained) {
  write_small_sdxl(dir_ / "xl.safetensors");
  for (const char* name : {"a", "b"}) {
    fs::create_directories(dir_ / "photos/1_sks dog");
    write_file(dir_ / "photos/1_sks dog" / (std::string(name) + ".png"), encode_png(test_picture(64, 64)));
  }
  json fields = all_fields();
  fields.update({{"sdxl", true},
                 {"pretrained_model_name_or_path", (dir_ / "xl.safetensors").string()},
                 {"train_data_dir", (dir_ / "photos").string()},
                 {"output_dir", (dir_ / "out").string()},
                 {"max_resolution", "64,64"},
                 {"save_every_n_epochs", 0},
                 {"network_dim", 2},
                 {"LoRA_type", "LyCORIS/LoHa"},
                 {"text_encoder_lr", 0},
                 {"epoch", 2},
                 {"lr_warmup", 50},
                 {"sample_prompts", "a dog --w 64 --h 64 --s 2"},
                 {"sample_every_n_steps", 0},
                 {"output_name", "mine"}});
  put(dir_ / "preset.json", fields.dump(2));
  const std::vector<std::string> command{"train", "--config", (dir_ / "preset.json").string(), "--device", "cpu"};
  const std::string output = expect_trained(run_host(command)).output;
  EXPECT_THAT(output, AllOf(HasSubstr("max_train_steps: 4, as the interface counts 2 images of 2 epochs"),
                            HasSubstr("keys without effect here"), Not(HasSubstr("warning"))));
  EXPECT_GT(tensors_of(dir_ / "out/mine/mine.safetensors").size(), 0u);
  EXPECT_EQ(std::ranges::count(get(dir_ / "out/mine/metrics.csv"), '\n'), 5);
}

}  // namespace
}  // namespace lh::test::kohya_ss_test
