// Jobs as people have them on disk, run by the command: with the keys of ai-toolkit's example files and of what its
// interface writes for each model, and small models in the place of the paths. What there is a plugin for is planned
// and trained for two steps; all else is refused in a line that says what to do. Sizes and numbers of steps are small;
// they are the only values that differ from what people have.
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "support/anima_shapes.h"
#include "support/auraflow_shapes.h"
#include "support/ernie_image_shapes.h"
#include "support/flux2_shapes.h"
#include "support/hidream_o1_shapes.h"
#include "support/hidream_shapes.h"
#include "support/ideogram4_shapes.h"
#include "support/image_files.h"
#include "support/krea2_shapes.h"
#include "support/ltx2_shapes.h"
#include "support/lumina2_shapes.h"
#include "support/model_shapes.h"
#include "support/omnigen2_shapes.h"
#include "support/paths.h"
#include "support/qwen_image21_shapes.h"
#include "support/qwen_image_shapes.h"
#include "support/run_host.h"
#include "support/sd15_shapes.h"
#include "support/wan_shapes.h"
#include "support/z_image_shapes.h"

namespace lh::test::ai_toolkit_jobs_test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using testing::HasSubstr;
using testing::Not;

using Keys = std::vector<std::pair<std::string, Json>>;  // "train.lr"; "datasets.x": of the first one

void set(Json& process, const Keys& keys) {
  for (const auto& [path, value] : keys) {
    Json* at = &process;
    size_t from = 0;
    for (size_t dot; (dot = path.find('.', from)) != path.npos; from = dot + 1) {
      at = &(*at)[path.substr(from, dot - from)];
      if (at->is_array()) at = &(*at)[0];
    }
    (*at)[path.substr(from)] = value;
  }
}

void drop(Json& process, const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    const size_t dot = path.find('.');
    Json& section = process.at(path.substr(0, dot));
    (section.is_array() ? section[0] : section).erase(path.substr(dot + 1));
  }
}

// What all example files have.
Json example() {
  Json process = {{"type", "sd_trainer"}, {"training_folder", "FOLDER/[name]"}, {"device", "cpu"}};
  set(process, {{"network", {{"type", "lora"}, {"linear", 16}, {"linear_alpha", 16}}},
                {"save", {{"dtype", "float16"}, {"save_every", 250}, {"max_step_saves_to_keep", 4}}},
                {"datasets", Json::array({{{"folder_path", "FOLDER/photos"},
                                           {"caption_ext", "txt"},
                                           {"caption_dropout_rate", 0.05},
                                           {"shuffle_tokens", false},
                                           {"cache_latents_to_disk", true},
                                           {"resolution", {48, 64}}}})},
                {"train",
                 {{"batch_size", 1},
                  {"steps", 2},
                  {"train_unet", true},
                  {"train_text_encoder", false},
                  {"gradient_checkpointing", true},
                  {"noise_scheduler", "flowmatch"},
                  {"optimizer", "adamw8bit"},
                  {"lr", 1e-4},
                  {"dtype", "bf16"}}},
                {"model", {{"quantize", true}}},
                {"sample",
                 {{"sampler", "flowmatch"},
                  {"sample_every", 250},
                  {"sample_start_step", 0},
                  {"width", 64},
                  {"height", 48},
                  {"prompts", {"photo of [trigger]"}},
                  {"neg", ""},
                  {"seed", 42},
                  {"walk_seed", true},
                  {"guidance_scale", 4},
                  {"sample_steps", 2}}}});
  return process;
}
const Keys averaged = {{"train.ema_config", {{"use_ema", true}, {"ema_decay", 0.99}}}},
           by_steps = {{"train.gradient_accumulation_steps", 1}, {"save.push_to_hub", false}},
           by_batches = {{"train.gradient_accumulation", 1}, {"save.push_to_hub", false}};

// What the interface writes for a new job.
Json of_interface() {
  return {{"type", "diffusion_trainer"},
          {"training_folder", "FOLDER/[name]"},
          {"sqlite_db_path", "./db"},
          {"device", "cpu"},
          {"trigger_word", nullptr},
          {"performance_log_every", 10},
          {"network",
           {{"type", "lora"},
            {"linear", 32},
            {"linear_alpha", 32},
            {"conv", 16},
            {"conv_alpha", 16},
            {"lokr_full_rank", true},
            {"lokr_factor", -1},
            {"network_kwargs", {{"ignore_if_contains", Json::array()}}}}},
          {"save",
           {{"dtype", "bf16"},
            {"save_every", 250},
            {"max_step_saves_to_keep", 4},
            {"save_format", "diffusers"},
            {"push_to_hub", false}}},
          {"datasets", Json::array({{{"folder_path", "FOLDER/photos"},
                                     {"mask_path", nullptr},
                                     {"mask_min_value", 0.1},
                                     {"default_caption", ""},
                                     {"caption_ext", "txt"},
                                     {"caption_dropout_rate", 0.05},
                                     {"cache_latents_to_disk", false},
                                     {"is_reg", false},
                                     {"network_weight", 1},
                                     {"resolution", {48, 64}},
                                     {"controls", Json::array()},
                                     {"shrink_video_to_frames", true},
                                     {"num_frames", 1},
                                     {"flip_x", false},
                                     {"flip_y", false},
                                     {"num_repeats", 1}}})},
          {"train",
           {{"batch_size", 1},
            {"bypass_guidance_embedding", false},
            {"steps", 2},
            {"gradient_accumulation", 1},
            {"train_unet", true},
            {"train_text_encoder", false},
            {"gradient_checkpointing", true},
            {"noise_scheduler", "flowmatch"},
            {"optimizer", "adamw8bit"},
            {"timestep_type", "sigmoid"},
            {"content_or_style", "balanced"},
            {"optimizer_params", {{"weight_decay", 1e-4}}},
            {"unload_text_encoder", false},
            {"cache_text_embeddings", false},
            {"lr", 1e-4},
            {"ema_config", {{"use_ema", false}, {"ema_decay", 0.99}}},
            {"skip_first_sample", false},
            {"force_first_sample", false},
            {"disable_sampling", false},
            {"dtype", "bf16"},
            {"diff_output_preservation", false},
            {"diff_output_preservation_multiplier", 1.0},
            {"diff_output_preservation_class", "person"},
            {"switch_boundary_every", 1},
            {"loss_type", "mse"}}},
          {"logging", {{"log_every", 1}, {"use_ui_logger", true}}},
          {"model",
           {{"quantize", true},
            {"qtype", "qfloat8"},
            {"quantize_te", true},
            {"qtype_te", "qfloat8"},
            {"low_vram", false},
            {"model_kwargs", Json::object()},
            {"compile", false}}},
          {"sample",
           {{"sampler", "flowmatch"},
            {"sample_every", 250},
            {"width", 64},
            {"height", 64},
            {"samples", {{{"prompt", "a cat"}}}},
            {"neg", ""},
            {"seed", 42},
            {"walk_seed", true},
            {"guidance_scale", 4},
            {"sample_steps", 2},
            {"num_frames", 1},
            {"fps", 1}}}};
}

std::string job_of(const Json& process, const fs::path& folder, const std::string& name = "my_lora") {
  const Json job = {{"job", "extension"},
                    {"config", {{"name", name}, {"process", Json::array({process})}}},
                    {"meta", {{"name", "[name]"}, {"version", "1.0"}}}};
  std::string text = job.dump(1);
  for (size_t at; (at = text.find("FOLDER")) != text.npos;) text.replace(at, 6, folder.string());
  return text;
}

// Small models, each written once.
class SmallModels {
 public:
  fs::path folder() const { return dir_.path(); }

  // The keys of `model` that have its paths.
  Keys keys(const std::string& name) {
    if (name == "schnell") return flux(toy_folder() / "flux_toy.safetensors");
    if (name == "dev") return flux(file(name, write_small_flux_dev));
    if (name == "chroma") return {{"model.name_or_path", file(name, write_small_chroma)}, short_text(32)};
    if (name == "chroma_radiance")
      return {{"model.name_or_path", file(name, [](const fs::path& path) { write_small_radiance(path); })},
              short_text(32)};
    if (name == "sdxl")
      return {{"model.name_or_path", file(name, [](const fs::path& path) { write_small_sdxl(path); })}};
    if (name == "sd15")
      return {{"model.name_or_path", file(name, [](const fs::path& path) { write_small_sd15(path); })}};
    if (name == "sd35")
      return {{"model.name_or_path", file(name, [](const fs::path& path) { write_small_sd35(path, small_large); })},
              short_text(32)};
    if (name == "qwen_image")
      return {{"model.name_or_path", file(name, write_small_qwen_image)}, short_text(96), words("qwen_small")};
    if (name == "qwen_image_edit")
      return {{"model.name_or_path", file(name, write_small_qwen_image)}, short_text(192), words("qwen_small")};
    if (name == "qwen_image21") return {{"model.name_or_path", file(name, write_small_qwen_image21)}, short_text(96)};
    if (name == "krea2") return {{"model.name_or_path", file(name, write_small_krea2)}, short_text(96)};
    if (name == "ideogram4") return {{"model.name_or_path", file(name, write_small_ideogram4)}, short_text(96)};
    if (name == "anima") return {{"model.name_or_path", file(name, write_small_anima)}, words("qwen_small")};
    if (name == "lumina2") return {{"model.name_or_path", file(name, write_small_lumina2)}, words("gemma_small")};
    if (name == "omnigen2")
      return {{"model.name_or_path", file(name, write_small_omnigen2)}, short_text(160), words("qwen_small")};
    if (name == "auraflow")
      return {{"model.name_or_path", file(name, write_small_auraflow)}, short_text(32), words("pile_t5_small")};
    if (name == "hidream_o1") return {{"model.name_or_path", file(name, write_small_hidream_o1)}, short_text(32)};
    if (name == "hidream")
      return {{"model.name_or_path", file(name, write_small_hidream)}, short_text(32), words("llama_small")};
    if (name == "ernie_image")
      return {{"model.name_or_path", file(name, write_small_ernie_image)}, words("mistral_small")};
    if (name == "wan")
      return {{"model.name_or_path", file(name, write_small_wan)},
              {"model.tokenizer_path", std::string(source_dir()) + "/share/tokenizers/t5"}};
    if (name == "wan21_i2v")
      return {{"model.name_or_path", file(name, write_small_wan21_i2v)},
              {"model.tokenizer_path", std::string(source_dir()) + "/share/tokenizers/t5"}};
    if (name == "ti2v")
      return {{"model.name_or_path", file(name, write_small_ti2v)},
              {"model.tokenizer_path", std::string(source_dir()) + "/share/tokenizers/t5"}};
    if (name == "ltx2")
      return {{"model.name_or_path", file(name, write_small_ltx2)},
              {"model.tokenizer_path", std::string(source_dir()) + "/tests/data/gemma_small"}};
    if (name == "ltx25")
      return {{"model.name_or_path", file(name, write_small_ltx25)},
              {"model.tokenizer_path", std::string(source_dir()) + "/tests/data/gemma_small"}};
    if (name == "flux2")
      return {
          {"model.name_or_path", file(name, [](const fs::path& path) { write_small_flux2(path, small_flux2_dev); })},
          words("mistral_small")};
    if (name == "klein")
      return {{"model.name_or_path", file(name, [](const fs::path& path) { write_small_flux2(path, small_klein); })},
              words("qwen_small")};
    if (name == "z_image") return {{"model.name_or_path", file(name, z_image)}, words("qwen_small")};
    return apart();
  }

  // A LoRA of a model, for jobs that begin with one.
  std::string lora(const std::string& model) {
    std::string& made = loras_[model];
    if (!made.empty()) return made;
    Json process = example();
    set(process, keys(model));
    set(process, {{"training_folder", "FOLDER/loras"},
                  {"datasets.folder_path", std::string(source_dir()) + "/examples/demo/photos"},
                  {"train.steps", 1},
                  {"model.quantize", false}});
    process.erase("sample");
    put(dir_ / "lora.json", job_of(process, dir_.path(), model));
    expect_trained(run_host({"train", "--config", (dir_ / "lora.json").string()}));
    return made = (dir_ / "loras" / model / (model + ".safetensors")).string();
  }

 private:
  static void z_image(const fs::path& path) { write_small_z_image(path); }
  static std::pair<std::string, Json> words(const std::string& folder) {
    return {"model.tokenizer_path", std::string(test_data()) + "/" + folder};
  }
  static std::pair<std::string, Json> short_text(int64_t tokens) { return {"model.max_sequence_length", tokens}; }
  static Keys flux(const fs::path& denoiser) {
    return {{"model.name_or_path", denoiser.string()},
            {"model.vae_path", (toy_folder() / "ae.safetensors").string()},
            {"model.clip_path", (toy_folder() / "clip_l.safetensors").string()},
            {"model.t5_path", (toy_folder() / "t5xxl.safetensors").string()},
            short_text(64)};
  }
  std::string file(const std::string& name, const std::function<void(const fs::path&)>& write) {
    const fs::path path = dir_ / (name + ".safetensors");
    if (!fs::exists(path)) write(path);
    return path.string();
  }

  // A denoiser in one folder of diffusers, and all else of the model in another.
  Keys apart() {
    const fs::path own = dir_ / "apart", extras = dir_ / "extras";
    if (!fs::exists(own)) {
      const fs::path whole = file("z_image", z_image);
      const CheckpointSpec spec = spec_of("z_image");
      std::map<std::string, std::vector<Given>> components;
      for (const Given& given : tensors_of(whole))
        for (const ComponentSpec& component : spec.components)
          for (const std::string& prefix : component.prefixes)
            if (!prefix.empty() && given.name.starts_with(prefix)) {
              components[component.name].push_back({given.name.substr(prefix.size()), given.tensor});
              break;
            }
      const auto denoiser = components.extract("denoiser");
      write_directory(own, spec, {{"denoiser", denoiser.mapped()}}, {"denoiser"}, "", as_is);
      write_directory(extras, spec, components, {"vae"}, "", as_is);
      fs::copy(fs::path(test_data()) / "qwen_small", extras / "tokenizer");
    }
    return {{"model.name_or_path", own.string()}, {"model.extras_name_or_path", extras.string()}};
  }

  TempDir dir_;
  std::map<std::string, std::string> loras_;
};

struct Job {
  const char *name, *model;
  bool interface;  // or an example file
  std::vector<Keys> keys;
  std::vector<std::string> without = {};
  std::vector<const char*> expected = {};  // parts of the effective configuration and of its notes
  const char* lora_of = "";                // whose LoRA is the assistant's
};

void PrintTo(const Job& job, std::ostream* out) { *out << job.name; }

class Jobs : public testing::TestWithParam<Job> {
 protected:
  static SmallModels& models() {
    static SmallModels all;
    return all;
  }
};

TEST_P(Jobs, AreTrained) {
  const Job& job = GetParam();
  Json process = job.interface ? of_interface() : example();
  set(process, models().keys(job.model));
  for (const Keys& keys : job.keys) set(process, keys);
  drop(process, job.without);
  if (*job.lora_of != 0) set(process, {{"model.assistant_lora_path", models().lora(job.lora_of)}});
  const TempDir dir;
  for (const char* folder : {"photos", "control"})
    for (const char* name : {"a", "b"}) {
      fs::create_directories(dir / folder);
      write_file(dir / folder / (std::string(name) + ".png"), encode_png(test_picture(*name == 'a' ? 64 : 72, 64)));
    }
  for (const char* name : {"a.txt", "b.txt"}) put(dir / "photos" / name, "a [trigger], red");
  put(dir / "job.json", job_of(process, dir.path()));
  const std::vector<std::string> command{"train", "--config", (dir / "job.json").string()};

  std::vector<std::string> dry = command;
  dry.insert(dry.end(), {"--dry-run", "--verbose"});
  const HostResult plan = expect_trained(run_host(dry));
  EXPECT_THAT(plan.output, Not(HasSubstr("warning")));
  for (const char* part : job.expected) EXPECT_THAT(plan.output, HasSubstr(part));
  const HostResult run = expect_trained(run_host(command));
  EXPECT_THAT(run.output, Not(HasSubstr("warning")));
  const fs::path output = dir / "my_lora" / "my_lora";
  EXPECT_GT(tensors_of(output / "my_lora.safetensors").size(), 0u);
  const std::string rows = get(output / "metrics.csv");
  EXPECT_EQ(std::ranges::count(rows, '\n'), 3) << rows;  // a header, and two steps
  const auto samples = fs::directory_iterator(output / "samples");
  EXPECT_EQ(std::distance(begin(samples), end(samples)), 2) << "before the first step and after the last";
}

INSTANTIATE_TEST_SUITE_P(
    ExampleFiles, Jobs,
    testing::Values(
        Job{"flux", "dev", false, {averaged, by_steps, {{"model.is_flux", true}}}, {}, {"plugin: \"flux\""}},
        Job{"flux_on_modal", "dev", false, {averaged, by_steps, {{"model.is_flux", true}}}, {"save.push_to_hub"}},
        Job{"schnell",
            "schnell",
            false,
            {averaged, by_steps, {{"model.is_flux", true}, {"sample.guidance_scale", 1}}},
            {},
            {"assistant_lora_path: "},
            "schnell"},
        Job{"flex",
            "dev",
            false,
            {averaged,
             by_batches,
             {{"model.is_flux", true},
              {"model.quantize_kwargs", {{"exclude", {"*time_text_embed*"}}}},
              {"train.bypass_guidance_embedding", true}}},
            {},
            {"bypass_guidance_embedding: true"}},
        Job{"kontext",
            "dev",
            false,
            {by_steps,
             {{"model.arch", "flux_kontext"},
              {"datasets.control_path", "FOLDER/control"},
              {"train.timestep_type", "weighted"},
              {"sample.prompts", {"make it blue  --ctrl_img FOLDER/control/a.png"}}}},
            {},
            {"variant: \"kontext\"", "timestep_type: \"weighted\""}},
        Job{"chroma", "chroma", false, {averaged, by_batches, {{"model.arch", "chroma"}}}, {}, {"plugin: \"chroma\""}},
        Job{"chroma_radiance",
            "chroma_radiance",
            false,
            {{{"model.arch", "chroma_radiance"}}},
            {},
            {"plugin: \"chroma\""}},
        Job{"qwen_image",
            "qwen_image",
            false,
            {{{"model.arch", "qwen_image"},
              {"model.quantize_te", true},
              {"model.qtype", "uint3|org/adapters/a.safetensors"},
              {"model.qtype_te", "qfloat8"},
              {"model.low_vram", true},
              {"train.cache_text_embeddings", true},
              {"train.gradient_accumulation", 1},
              {"sample.guidance_scale", 3}}},
            {},
            {"dtype: \"nf4\"", "the adapter, which makes up for the rounding of another type, is left out"}},
        Job{"sd35_large",
            "sd35",
            false,
            {averaged, by_steps, {{"model.is_v3", true}, {"train.timestep_type", "linear"}}},
            {},
            {"plugin: \"sd35\""}}),
    [](const auto& info) { return info.param.name; });

const Keys whole = {{"model.quantize", false}, {"model.quantize_te", false}},
           tight = {{"model.low_vram", true}, {"model.qtype", "qfloat8"}, {"train.timestep_type", "weighted"}},
           discrete = {{"sample.sampler", "ddpm"}, {"train.noise_scheduler", "ddpm"}, {"sample.guidance_scale", 6}};

INSTANTIATE_TEST_SUITE_P(
    OfTheInterface, Jobs,
    testing::Values(
        Job{"flex1",
            "dev",
            true,
            {{{"model.arch", "flex1"}, {"train.bypass_guidance_embedding", true}}},
            {},
            {"dtype: \"float8_e4m3\"", "linear: 32", "optimizer: \"adamw8bit\"", "bypass_guidance_embedding: true",
             "network.conv: 16 is not used"}},
        Job{"flux", "dev", true, {{{"model.arch", "flux"}}}, {}, {"noise_scheduler: \"flowmatch\""}},
        Job{"flux_kontext",
            "dev",
            true,
            {{{"model.arch", "flux_kontext"},
              {"datasets.control_path", "FOLDER/control"},
              {"train.timestep_type", "weighted"},
              {"sample.samples", {{{"prompt", "make it blue"}, {"ctrl_img", "FOLDER/control/b.png"}}}}}},
            {},
            {"variant: \"kontext\""}},
        Job{"flux2_klein_edit",
            "klein",
            true,
            {tight,
             {{"model.arch", "flux2_klein_4b"},
              {"datasets.control_path_1", "FOLDER/control"},
              {"datasets.control_path_2", "FOLDER/control"},
              {"sample.samples",
               {{{"prompt", "make it blue"},
                 {"ctrl_img_1", "FOLDER/control/b.png"},
                 {"ctrl_img_2", "FOLDER/control/a.png"}}}}}},
            {},
            {"control_2"}},
        Job{"chroma", "chroma", true, {{{"model.arch", "chroma"}}}},
        Job{"qwen_image_2512", "qwen_image", true, {tight, {{"model.arch", "qwen_image:2512"}}}},
        Job{"qwen_image_edit",
            "qwen_image_edit",
            true,
            {tight,
             {{"model.arch", "qwen_image_edit"},
              {"datasets.control_path", "FOLDER/control"},
              {"sample.samples", {{{"prompt", "make it blue"}, {"ctrl_img", "FOLDER/control/b.png"}}}}}},
            {},
            {"variant: \"edit\""}},
        Job{"qwen_image_edit_2509",
            "qwen_image_edit",
            true,
            {tight,
             {{"model.arch", "qwen_image_edit_plus:2509"},
              {"datasets.control_path", {"FOLDER/control", "FOLDER/control"}},
              {"sample.samples",
               {{{"prompt", "make it blue"},
                 {"ctrl_img_1", "FOLDER/control/b.png"},
                 {"ctrl_img_2", "FOLDER/control/a.png"}}}}}},
            {},
            {"variant: \"edit-2509\""}},
        Job{"qwen_image_edit_2511",
            "qwen_image_edit",
            true,
            {tight,
             {{"model.arch", "qwen_image_edit_plus:2511"},
              {"datasets.control_path_1", "FOLDER/control"},
              {"sample.samples", {{{"prompt", "make it blue"}, {"ctrl_img_1", "FOLDER/control/b.png"}}}}}},
            {},
            {"variant: \"edit-2511\""}},
        Job{"qwen_image21",
            "qwen_image21",
            true,
            {tight, {{"model.arch", "qwen_image_2"}, {"sample.guidance_scale", 1}}},
            {},
            {"plugin: \"qwen_image21\""}},
        Job{"krea2_turbo",
            "krea2",
            true,
            {tight, {{"model.arch", "krea2:turbo"}, {"sample.guidance_scale", 1}}},
            {},
            {"plugin: \"krea2\"", "variant: \"turbo\""}},
        Job{"krea2_edit",
            "krea2",
            true,
            {tight,
             {{"model.arch", "krea2:o_edit"},
              {"model.model_kwargs", {{"edit", true}, {"match_target_res", true}, {"kv_cache", true}}},
              {"datasets.control_path_1", "FOLDER/control"},
              {"sample.samples", {{{"prompt", "make it blue"}, {"ctrl_img_1", "FOLDER/control/b.png"}}}}}},
            {},
            {"plugin: \"krea2\"", "edit: \"true\"", "isolate_references: \"true\""}},
        Job{"ideogram4",
            "ideogram4",
            true,
            {tight,
             {{"model.arch", "ideogram4"},
              {"model.unconditional_lora_path", "somebody/lora.safetensors"},
              {"train.timestep_type", "linear"},
              {"sample.guidance_scale", 4}}},
            {},
            {"plugin: \"ideogram4\"", "model.unconditional_lora_path: not used"}},
        Job{"anima",
            "anima",
            true,
            {tight, {{"model.arch", "anima"}, {"sample.guidance_scale", 4}}},
            {},
            {"plugin: \"anima\""}},
        Job{"lumina2",
            "lumina2",
            true,
            {tight, {{"model.is_lumina2", true}, {"train.timestep_type", "lumina2_shift"}}},
            {},
            {"plugin: \"lumina2\"", "timestep_type: \"linear_shift\""}},
        Job{"omnigen2",
            "omnigen2",
            true,
            {tight,
             {{"model.arch", "omnigen2"},
              {"train.timestep_type", "sigmoid"},
              {"datasets.control_path", "FOLDER/control"},
              {"sample.samples", {{{"prompt", "make it blue"}, {"ctrl_img", "FOLDER/control/b.png"}}}}}},
            {},
            {"plugin: \"omnigen2\"", "timestep_type: \"sigmoid\""}},
        Job{"auraflow",
            "auraflow",
            true,
            {tight, {{"model.arch", "auraflow"}, {"train.timestep_type", "sigmoid"}, {"sample.guidance_scale", 3.5}}},
            {},
            {"plugin: \"auraflow\"", "timestep_type: \"sigmoid\""}},
        Job{"is_auraflow",
            "auraflow",
            true,
            {tight, {{"model.is_auraflow", true}, {"train.timestep_type", "shift"}}},
            {},
            {"plugin: \"auraflow\"", "timestep_type: \"linear_shift\""}},
        Job{"hidream",
            "hidream",
            true,
            {tight,
             {{"model.arch", "hidream"},
              {"train.timestep_type", "shift"},
              {"network.network_kwargs", {{"ignore_if_contains", {"ff_i.experts", "ff_i.gate"}}}},
              {"sample.guidance_scale", 4}}},
            {},
            {"plugin: \"hidream\"", "timestep_type: \"linear_shift\"", "ff_i.experts"}},
        Job{"hidream_o1",
            "hidream_o1",
            true,
            {tight,
             {{"model.arch", "hidream_o1"},
              {"model.model_kwargs", {{"noise_scale", 8.0}, {"noise_scale_inference", 8}}},
              {"network.transformer_only", false},
              {"network.network_kwargs", {{"ignore_if_contains", {"lm_head", "patch_embed", "visual"}}}},
              {"train.max_loss", 1.0},
              {"train.timestep_type", "linear"}}},
            {},
            {"plugin: \"hidream_o1\"", "timestep_type: \"linear\"", "target_modules: [\".*\"]", "max_loss: 1"}},
        Job{"ernie_image",
            "ernie_image",
            true,
            {tight, {{"model.arch", "ernie_image"}, {"sample.guidance_scale", 4}}},
            {},
            {"plugin: \"ernie_image\""}},
        Job{"wan21",
            "wan",
            true,
            {tight, {{"model.arch", "wan21:14b"}, {"sample.num_frames", 1}, {"sample.guidance_scale", 5}}},
            {},
            {"plugin: \"wan\""}},
        Job{"wan21_i2v",
            "wan21_i2v",
            true,
            {tight,
             {{"model.arch", "wan21_i2v:14b480p"},
              {"sample.num_frames", 1},
              {"sample.guidance_scale", 5},
              {"sample.samples", {{{"prompt", "it moves"}, {"ctrl_img", "FOLDER/control/b.png"}}}}}},
            {},
            {"plugin: \"wan\"", "variant: \"wan2.1\""}},
        Job{"wan22_5b",
            "ti2v",
            true,
            {tight, {{"model.arch", "wan22_5b"}, {"sample.num_frames", 1}, {"sample.guidance_scale", 5}}},
            {},
            {"plugin: \"wan\"", "variant: \"wan2.2-ti2v-5b\""}},
        Job{"ltx2",
            "ltx2",
            true,
            {tight, {{"model.arch", "ltx2"}, {"sample.num_frames", 1}, {"sample.guidance_scale", 4}}},
            {},
            {"plugin: \"ltx2\""}},
        Job{"ltx2_3",
            "ltx2",
            true,
            {tight, {{"model.arch", "ltx2.3"}, {"sample.num_frames", 1}, {"sample.guidance_scale", 4}}},
            {},
            {"plugin: \"ltx2\""}},
        Job{"ltx2_5",
            "ltx25",
            true,
            {tight, {{"model.arch", "ltx2.5"}, {"sample.num_frames", 1}, {"sample.guidance_scale", 4}}},
            {},
            {"plugin: \"ltx2\""}},
        Job{"sdxl",
            "sdxl",
            true,
            {whole, discrete, {{"model.arch", "sdxl"}}},
            {},
            {"plugin: \"sdxl\"", "noise_scheduler: \"ddpm\"", "format: \"kohya\""}},
        Job{"sdxl_v_pred",  // a name that several plugins have, before the one that chooses
            "sdxl",
            true,
            {whole, discrete, {{"model.is_v_pred", true}, {"model.is_xl", true}}},
            {},
            {"plugin: \"sdxl\"", "variant: \"v_pred\""}},
        Job{"concept_slider",
            "dev",
            true,
            {whole,
             {{"type", "concept_slider"},
              {"model.arch", "flux"},
              {"train.timestep_type", "weighted"},
              {"train.diff_output_preservation", true},
              {"slider",
               {{"guidance_strength", 3.0},
                {"anchor_strength", 1.0},
                {"positive_prompt", "person who is happy"},
                {"negative_prompt", "person who is sad"},
                {"target_class", "person"},
                {"anchor_class", ""}}},
              {"sample.samples", {{{"prompt", "a person"}, {"network_multiplier", -2}}}}}},
            {},
            {"anchor_class: \"\"", "\"person\" to \"person who is happy\" at 1",
             "train.diff_output_preservation is not used"}},
        Job{"sd15", "sd15", true, {whole, discrete, {{"model.arch", "sd15"}}}, {}, {"plugin: \"sd15\""}},
        Job{"flux2",
            "flux2",
            true,
            {tight, {{"model.arch", "flux2"}, {"model.model_kwargs", {{"match_target_res", false}}}}}},
        Job{"flux2_klein_9b",
            "klein",
            true,
            {tight,
             {{"model.arch", "flux2_klein_9b"},
              {"model.layer_offloading", true},
              {"model.layer_offloading_transformer_percent", 0.5}}},
            {},
            {"stream: \"50%\""}},
        Job{"zimage_turbo",
            "z_image",
            true,
            {tight, {{"model.arch", "zimage:turbo"}, {"sample.guidance_scale", 1}}},
            {},
            {"variant: \"turbo\"", "assistant_lora_path: "},
            "z_image"},
        Job{"zimage", "z_image", true, {tight, {{"model.arch", "zimage"}}}},
        Job{"zimage_deturbo",
            "apart",
            true,
            {tight, {{"model.arch", "zimage:deturbo"}, {"sample.guidance_scale", 3}}},
            {},
            {"extras_name_or_path: "}}),
    [](const auto& info) { return info.param.name; });

// What there is no plugin for, and jobs that train something else than adapters.
struct Refused {
  const char* name;
  Keys keys;
  const char* error;  // a part of the line
};

TEST(RefusedJobs, AreAnsweredInALineThatSaysWhatToDo) {
  const char* none = "; those that are here train anima, auraflow, chroma, chroma_radiance, ernie_image, flex1, flux, ";
  const Refused rows[] = {
      {"hidream_llama",
       {{"model.arch", "hidream"}, {"model.model_kwargs", {{"llama_model_path", {"l"}}}}},
       "model.model_kwargs: not supported: give settings of the model by their own keys"},
      {"hidream_o1_noise",
       {{"model.arch", "hidream_o1"}, {"model.model_kwargs", {{"noise_scale", 7}}}},
       "model.model_kwargs: noise_scale: 7 is not supported: of this model it may be 8"},
      {"hidream_e1", {{"model.arch", "hidream_e1"}}, none},
      {"wan22",
       {{"model.arch", "wan22_14b"}, {"model.model_kwargs", {{"train_high_noise", false}, {"train_low_noise", false}}}},
       "model.model_kwargs: no expert of the model is left to train"},
      {"flex2", {{"model.arch", "flex2"}, {"datasets.controls", {"depth", "line"}}}, none},
      {"krea2_edit",
       {{"model.arch", "krea2:o_edit"}, {"model.model_kwargs", {{"vlm_max_pixels", 65536}}}},
       "model.model_kwargs: not supported"},
      {"full fine-tuning",
       {{"network", nullptr}, {"model.is_flux", true}},
       "network: missing. Without it ai-toolkit trains all of the model's weights, and saves a checkpoint; this "
       "program trains adapters. For a LoRA add network: {type: lora, linear: 16"},
      {"redux",
       {{"adapter", {{"type", "redux"}, {"train", true}}}, {"model.is_flux", true}},
       "adapter: not supported: this program trains LoRA and its kin: say network: {type: lora, linear: 16}"},
      {"slider",
       {{"type", "slider"}},
       "type: this process is not for training a LoRA of images, found the text \"slider\". Use sd_trainer"},
  };
  const TempDir dir;
  for (const Refused& row : rows) {
    SCOPED_TRACE(row.name);
    Json process = example();
    set(process, {{"model.name_or_path", "m"}});
    set(process, row.keys);
    put(dir / "job.json", job_of(process, dir.path()));
    const HostResult result = run_host({"train", "--config", (dir / "job.json").string(), "--dry-run"});
    EXPECT_EQ(result.code, 2) << result.output;
    EXPECT_THAT(result.output, HasSubstr(row.error));
    EXPECT_EQ(std::ranges::count(result.output, '\n'), 1) << result.output;
  }
}

}  // namespace
}  // namespace lh::test::ai_toolkit_jobs_test
