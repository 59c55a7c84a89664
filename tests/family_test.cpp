// Every family from images to a LoRA that people use: a small model is trained by the command, and its file is loaded
// by the programs that it is for, shows what training showed, and is what a resumed run ends with. On the CPU in
// float32, where adapters beside the weights and in them differ by rounding only.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "config/load.h"
#include "data/image.h"
#include "io/lora_file.h"
#include "io/lora_merge.h"
#include "sample/denoiser.h"
#include "support/anima_shapes.h"
#include "support/auraflow_shapes.h"
#include "support/device.h"
#include "support/ernie_image_shapes.h"
#include "support/flux2_shapes.h"
#include "support/flux3_shapes.h"
#include "support/golden.h"
#include "support/hidream_o1_shapes.h"
#include "support/hidream_shapes.h"
#include "support/hunyuan_image_shapes.h"
#include "support/hunyuan_video1_shapes.h"
#include "support/hunyuan_video_shapes.h"
#include "support/ideogram4_shapes.h"
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
#include "train/prepare.h"

namespace lh::test::family_test {
namespace {

namespace fs = std::filesystem;

struct Family {
  const char *name, *plugin, *variant;
  // Path of the checkpoint, which is written into the folder unless it is a shipped one.
  std::function<fs::path(const fs::path& folder)> checkpoint;
  size_t modules;
  const char* diffusers_loads;  // these formats
  // Further lines of the configuration's sections.
  std::string model;
  const char *network = "", *train = "", *sample = "";
  size_t named = 1;  // plugins all of whose layers have such names
  // Of other adapters than plain LoRA: what programs load their files.
  const char* lr = "1e-2";
  const char* formats = "kohya comfyui diffusers";  // that have the adapter
  const char* programs = "all";                     // that load it, where they load the format
  const char* dataset = "";
};

fs::path flux(const fs::path& /*folder*/) { return toy_folder() / "flux_toy.safetensors"; }
fs::path chroma(const fs::path& folder) {
  write_small_chroma(folder / "model.safetensors");
  return folder / "model.safetensors";
}
std::function<fs::path(const fs::path&)> radiance(const Radiance& denoiser) {
  return [&denoiser](const fs::path& folder) {
    write_small_radiance(folder / "model.safetensors", denoiser);
    return folder / "model.safetensors";
  };
}
std::function<fs::path(const fs::path&)> flux2(const Flux2& denoiser) {
  return [&denoiser](const fs::path& folder) {
    write_small_flux2(folder / "model.safetensors", denoiser);
    return folder / "model.safetensors";
  };
}
fs::path flux3(const fs::path& folder) {
  write_small_flux3(folder / "model.safetensors");
  return folder / "model.safetensors";
}
fs::path z_image(const fs::path& folder) {
  write_small_z_image(folder / "model.safetensors");
  return folder / "model.safetensors";
}
fs::path qwen_image(const fs::path& folder) {
  write_small_qwen_image(folder / "model.safetensors");
  return folder / "model.safetensors";
}
fs::path qwen_image21(const fs::path& folder) {
  write_small_qwen_image21(folder / "model.safetensors");
  return folder / "model.safetensors";
}
fs::path krea2(const fs::path& folder) {
  write_small_krea2(folder / "model.safetensors");
  return folder / "model.safetensors";
}
fs::path ideogram4(const fs::path& folder) {
  write_small_ideogram4(folder / "model.safetensors");
  return folder / "model.safetensors";
}
fs::path anima(const fs::path& folder) {
  write_small_anima(folder / "model.safetensors");
  return folder / "model.safetensors";
}
fs::path lumina2(const fs::path& folder) {
  write_small_lumina2(folder / "model.safetensors");
  return folder / "model.safetensors";
}
fs::path omnigen2(const fs::path& folder) {
  write_small_omnigen2(folder / "model.safetensors");
  return folder / "model.safetensors";
}
fs::path auraflow(const fs::path& folder) {
  write_small_auraflow(folder / "model.safetensors");
  return folder / "model.safetensors";
}
fs::path hidream(const fs::path& folder) {
  write_small_hidream(folder / "model.safetensors");
  return folder / "model.safetensors";
}
fs::path hidream_o1(const fs::path& folder) {
  write_small_hidream_o1(folder / "model.safetensors");
  return folder / "model.safetensors";
}
fs::path hunyuan_image(const fs::path& folder) {
  write_small_hunyuan_image(folder / "model.safetensors");
  return folder / "model.safetensors";
}
fs::path hunyuan_video(const fs::path& folder) {
  write_small_hunyuan_video(folder / "model.safetensors");
  return folder / "model.safetensors";
}
fs::path hunyuan_video1(const fs::path& folder) {
  write_small_hunyuan_video1(folder / "model.safetensors");
  return folder / "model.safetensors";
}
fs::path hunyuan_video_i2v(const fs::path& folder) {
  write_small_hunyuan_video_i2v(folder / "model.safetensors");
  return folder / "model.safetensors";
}
fs::path ltx2(const fs::path& folder) {
  write_small_ltx2(folder / "model.safetensors");
  return folder / "model.safetensors";
}
fs::path ltx25(const fs::path& folder) {
  write_small_ltx25(folder / "model.safetensors");
  return folder / "model.safetensors";
}
fs::path ernie_image(const fs::path& folder) {
  write_small_ernie_image(folder / "model.safetensors");
  return folder / "model.safetensors";
}
fs::path wan(const fs::path& folder) {
  write_small_wan(folder / "model.safetensors");
  return folder / "model.safetensors";
}
std::function<fs::path(const fs::path&)> sd35(const Mmdit& denoiser) {
  return [&denoiser](const fs::path& folder) {
    write_small_sd35(folder / "model.safetensors", denoiser);
    return folder / "model.safetensors";
  };
}
std::function<fs::path(const fs::path&)> sdxl(const std::vector<std::string>& markers, const Unet& unet = small_unet) {
  return [markers, &unet](const fs::path& folder) {
    write_small_sdxl(folder / "model.safetensors", markers, unet);
    return folder / "model.safetensors";
  };
}
std::function<fs::path(const fs::path&)> sd15(const std::string& golden_case) {
  return [golden_case](const fs::path& folder) {
    write_small_sd15(folder / "model.safetensors", golden_case);
    return folder / "model.safetensors";
  };
}
fs::path flux_fill(const fs::path& folder) {
  write_small_flux_fill(folder / "model.safetensors");
  return folder / "model.safetensors";
}

const std::string flux_files_of_all_tokens = R"(
  vae_path: TOY/ae.safetensors
  clip_path: TOY/clip_l.safetensors
  t5_path: TOY/t5xxl.safetensors)";
// With fewer tokens than the model has: text is most of a step at 64 x 64.
const std::string flux_files = flux_files_of_all_tokens + "\n  max_sequence_length: 32";
constexpr const char* z_image_files = R"(
  variant: turbo
  tokenizer_path: SOURCE/tests/data/qwen_small)";
constexpr const char* qwen_image_files = R"(
  max_sequence_length: 96
  tokenizer_path: SOURCE/tests/data/qwen_small)";
constexpr const char* qwen_image_edit_files = R"(
  variant: edit-2511
  max_sequence_length: 192
  tokenizer_path: SOURCE/tests/data/qwen_small)";
constexpr const char* anima_files = R"(
  tokenizer_path: SOURCE/tests/data/qwen_small)";
constexpr const char* lumina2_files = R"(
  system_prompt: none
  max_sequence_length: 32
  tokenizer_path: SOURCE/tests/data/gemma_small)";
constexpr const char* omnigen2_files = R"(
  max_sequence_length: 160
  tokenizer_path: SOURCE/tests/data/qwen_small)";
constexpr const char* auraflow_files = R"(
  max_sequence_length: 32
  tokenizer_path: SOURCE/tests/data/pile_t5_small)";
constexpr const char* hidream_files = R"(
  max_sequence_length: 32
  tokenizer_path: SOURCE/tests/data/llama_small)";
constexpr const char* hunyuan_image_files = R"(
  max_sequence_length: 96
  tokenizer_path: SOURCE/tests/data/qwen_small)";
// Of the small tokenizer the template's front has more tokens.
constexpr const char* hunyuan_video_files = R"(
  max_sequence_length: 400
  tokenizer_path: SOURCE/tests/data/qwen_small)";
constexpr const char* hunyuan_video1_files = R"(
  max_sequence_length: 128
  tokenizer_path: SOURCE/tests/data/llama_small)";
constexpr const char* hunyuan_video_i2v_files = R"(
  variant: 480p-i2v
  max_sequence_length: 400
  tokenizer_path: SOURCE/tests/data/qwen_small)";
constexpr const char* first_frame_sample = "\n  images: {control: SOURCE/examples/demo/photos/cat_01.jpg}";
constexpr const char* ltx2_files = R"(
  max_sequence_length: 32
  tokenizer_path: SOURCE/tests/data/gemma_small)";
constexpr const char* ltx25_files = R"(
  variant: distilled
  max_sequence_length: 32
  tokenizer_path: SOURCE/tests/data/gemma_small)";
constexpr const char* ernie_image_files = R"(
  variant: turbo
  tokenizer_path: SOURCE/tests/data/mistral_small)";
constexpr const char* wan_files = R"(
  variant: wan2.2-low-noise
  tokenizer_path: SOURCE/share/tokenizers/t5)";
// What is bright in a photo is painted anew.
constexpr const char* inpaint_sample =
    "\n  images: {image: SOURCE/examples/demo/photos/cat_01.jpg, mask: SOURCE/examples/demo/photos/cat_01.jpg}";
constexpr const char* sd35_sample = "\n  skip_layer_guidance_scale: 0";  // small models have no blocks 7 to 9

// Modules: of the toy flux 10 of a double block and 3 for each of 4 single blocks; of chroma and flux2, whose names are
// flux's too (as are flux's without the modulation), 8 and 2 for each of 2; of flux3 6 for each of 4; of z_image and
// lumina2 6 for each of 3 blocks and 5 for one that is not modulated; of omnigen2 8 for each of 3 and 7 for one; of
// qwen_image 14 for each of 2, less the 4 that nothing reads in the last; of qwen_image21 6 for each of 2; of krea2 8
// for each of 2 and 4 for the text; of ernie_image 7 for each of 2; of auraflow 16 of a double block and 8 for each of
// 2 single ones; of hidream 27 of a double block and 20 for each of 2 single ones, 12 of them of the experts; of
// hidream_o1 7 for each of 2; of hunyuan_image 10 of a double block and 3 for each of 2 single ones; of hunyuan_video
// 10 for each of 2, less the 3 that nothing reads in the last; of hunyuan_video1 8 and 2 for each of 2; of ideogram4 5
// for each of 2; of wan, anima and ltx2 10 for each of 2; of sd35 10 for each of 3 blocks and 2 for a second attention,
// less the 3 that the last context block does not have; of sd15 12 for each of 6 transformers; of sdxl 2 for each of 11
// transformers and 10 for each of their 14 blocks; LoCon as in full size (sdxl_test); text encoders 6 for each layer
// that is reached.
const Family families[] = {
    {"flux", "flux", "schnell", flux, 22, "diffusers", flux_files_of_all_tokens},
    {"flux_fill", "flux", "fill", flux_fill, 22, "diffusers", flux_files, "", "", inpaint_sample},
    {"chroma", "chroma", "chroma1", chroma, 12, "diffusers", "\n  max_sequence_length: 32", "", "", "", 3},
    {"chroma_radiance", "chroma", "radiance", radiance(small_radiance), 12, "", "\n  max_sequence_length: 32", "", "",
     "", 3, "1e-2", "kohya comfyui diffusers", "comfyui"},
    {"chroma_radiance_x0", "chroma", "radiance-x0", radiance(small_radiance_x0), 12, "", "\n  max_sequence_length: 32",
     "", "", "", 3, "1e-2", "kohya comfyui diffusers", "comfyui"},
    {"flux2_klein", "flux2", "klein-4b", flux2(small_klein), 12, "kohya diffusers",
     "\n  variant: klein\n  tokenizer_path: SOURCE/tests/data/qwen_small", "", "", "", 3},
    {"flux2_dev", "flux2", "dev", flux2(small_flux2_dev), 12, "kohya diffusers",
     "\n  tokenizer_path: SOURCE/tests/data/mistral_small", "", "", "", 3},
    {"flux2_references", "flux2", "klein-base-4b", flux2(small_klein), 12, "kohya diffusers",
     "\n  tokenizer_path: SOURCE/tests/data/qwen_small", "", "",
     "\n  images: {control: SOURCE/examples/demo/photos/cat_01.jpg, control_2: SOURCE/examples/demo/photos/cat_02.jpg}",
     3, "1e-2", "kohya comfyui diffusers", "all", "\n    images: {control: PHOTOS, control_2: PHOTOS}"},
    {"flux3", "flux3", "base", flux3, 24, "diffusers", "\n  tokenizer_path: SOURCE/tests/data/qwen_small"},
    {"z_image", "z_image", "turbo", z_image, 23, "kohya diffusers", z_image_files},
    {"qwen_image", "qwen_image", "base", qwen_image, 24, "kohya comfyui diffusers", qwen_image_files},
    {"qwen_image_edit", "qwen_image", "edit-2511", qwen_image, 24, "kohya comfyui diffusers", qwen_image_edit_files, "",
     "",
     "\n  images: {control: SOURCE/examples/demo/photos/cat_01.jpg, control_2: SOURCE/examples/demo/photos/cat_02.jpg}",
     1, "1e-2", "kohya comfyui diffusers", "all", "\n    images: {control: PHOTOS, control_2: PHOTOS}"},
    {"qwen_image21", "qwen_image21", "turbo", qwen_image21, 12, "diffusers",
     "\n  variant: turbo\n  max_sequence_length: 96"},
    {"krea2", "krea2", "turbo", krea2, 48, "diffusers", "\n  variant: turbo\n  max_sequence_length: 96"},
    {"krea2_edit", "krea2", "edit", krea2, 48, "diffusers",
     "\n  edit: true\n  isolate_references: true\n  max_sequence_length: 96", "", "",
     "\n  images: {control: SOURCE/examples/demo/photos/cat_01.jpg, control_2: SOURCE/examples/demo/photos/cat_02.jpg}",
     1, "1e-2", "kohya comfyui diffusers", "all", "\n    images: {control: PHOTOS, control_2: PHOTOS}"},
    {"ernie_image", "ernie_image", "turbo", ernie_image, 14, "diffusers", ernie_image_files},
    {"ideogram4", "ideogram4", "base", ideogram4, 10, "comfyui diffusers", "\n  max_sequence_length: 96"},
    {"wan", "wan", "wan2.2-low-noise", wan, 20, "kohya comfyui diffusers", wan_files},
    {"anima", "anima", "base", anima, 20, "diffusers", anima_files},
    {"lumina2", "lumina2", "base", lumina2, 23, "diffusers", lumina2_files},
    {"omnigen2", "omnigen2", "base", omnigen2, 31, "", omnigen2_files},
    {"omnigen2_references", "omnigen2", "base", omnigen2, 31, "", omnigen2_files, "", "",
     "\n  images: {control: SOURCE/examples/demo/photos/cat_01.jpg, control_2: SOURCE/examples/demo/photos/cat_02.jpg}",
     1, "1e-2", "kohya comfyui diffusers", "all", "\n    images: {control: PHOTOS, control_2: PHOTOS}"},
    {"auraflow", "auraflow", "base", auraflow, 32, "diffusers", auraflow_files},
    {"hidream", "hidream", "full", hidream, 67, "diffusers", hidream_files},
    {"hidream_o1", "hidream_o1", "dev", hidream_o1, 14, "", "\n  variant: dev\n  max_sequence_length: 32"},
    {"hunyuan_image", "hunyuan_image", "base", hunyuan_image, 16, "diffusers", hunyuan_image_files},
    {"hunyuan_video", "hunyuan_video", "480p", hunyuan_video, 17, "diffusers", hunyuan_video_files},
    {"hunyuan_video1", "hunyuan_video1", "t2v", hunyuan_video1, 12, "diffusers", hunyuan_video1_files, "", "", "", 3},
    {"hunyuan_video_i2v", "hunyuan_video", "480p-i2v", hunyuan_video_i2v, 17, "diffusers", hunyuan_video_i2v_files, "",
     "", first_frame_sample},
    {"ltx2", "ltx2", "dev", ltx2, 20, "diffusers", ltx2_files},
    {"ltx25", "ltx2", "distilled", ltx25, 20, "diffusers", ltx25_files},
    {"sd35_medium", "sd35", "medium", sd35(small_medium), 31, "diffusers", "\n  max_sequence_length: 32", "", "",
     sd35_sample},
    {"sd35_large_turbo", "sd35", "large-turbo", sd35(small_large), 27, "diffusers",
     "\n  variant: large-turbo\n  max_sequence_length: 32", "", "", sd35_sample},
    {"sd15_epsilon", "sd15", "epsilon", sd15("sd15_locon_tiny"), 72, "kohya diffusers", "", "", "", "", 2},
    {"sd15_inpaint", "sd15", "inpaint", sd15("sd15_inpaint_tiny"), 72, "kohya diffusers", "", "", "", inpaint_sample,
     2},
    {"sd15_locon_text", "sd15", "v_pred", sd15("sd15_locon_tiny"), 72 + 12 * 3 + 7 + 2 + 12, "kohya diffusers",
     "\n  variant: v_pred", "\n  conv: 2\n  conv_alpha: 1", "\n  train_text_encoder: true\n  text_encoder_lr: 5e-3", "",
     2, "1e-2", "kohya diffusers"},
    {"sd15_clip_skip", "sd15", "epsilon", sd15("sd15_locon_tiny"), 72 + 6, "kohya diffusers", "\n  clip_skip: 2", "",
     "\n  train_text_encoder: true\n  text_encoder_lr: 5e-3", "", 2, "1e-2", "kohya diffusers"},
    {"sdxl_epsilon", "sdxl", "epsilon", sdxl({}), 162, "kohya diffusers", "", "", "", "", 2},
    {"sdxl_inpaint", "sdxl", "inpaint", sdxl({}, small_inpaint_unet), 162, "kohya diffusers", "", "", "",
     inpaint_sample, 2},
    {"sdxl_v_pred_locon", "sdxl", "v_pred_ztsnr", sdxl({"v_pred", "ztsnr"}), 162 + 17 * 3 + 11 + 4, "kohya diffusers",
     "", "\n  conv: 2\n  conv_alpha: 1"},
    {"sdxl_text", "sdxl", "epsilon", sdxl({}), 162 + 18, "kohya diffusers", "", "",
     "\n  train_text_encoder: true\n  text_encoder_lr: 5e-3"},
    {"sdxl_long_captions", "sdxl", "epsilon", sdxl({}), 162, "kohya diffusers", "\n  max_token_length: 150", "", "", "",
     2},
    {"sdxl_text_of_long_captions", "sdxl", "epsilon", sdxl({}), 162 + 18, "kohya diffusers",
     "\n  max_token_length: 225", "", "\n  train_text_encoder: true\n  text_encoder_lr: 5e-3"},
    {"sdxl_text_kept", "sdxl", "epsilon", sdxl({}), 162 + 18, "kohya diffusers", "", "",
     "\n  train_text_encoder: true\n  text_encoder_lr: 5e-3\n  blank_prompt_preservation: true"},
    {"flux_dropouts", "flux", "schnell", flux, 22, "diffusers", flux_files,
     "\n  dropout: 0.1\n  rank_dropout: 0.2\n  module_dropout: 0.2\n  scale_weight_norms: 0.5"},
    {"flux_ranks", "flux", "schnell", flux, 12, "diffusers", flux_files,
     "\n  target_modules: ['(double|single)_blocks.*(proj|qkv|linear1|linear2)']\n"
     "  module_ranks: {'single.*': 3}\n  module_alphas: {'single.*linear1': 1}",
     "", "", 3},
    {"flux_dora", "flux", "schnell", flux, 22, "", flux_files, "\n  type: dora", "", "", 1, "1e-2", "kohya comfyui",
     "comfyui"},
    {"flux_dora_rows", "flux", "schnell", flux, 22, "diffusers", flux_files,
     "\n  type: dora\n  network_kwargs: {wd_on_out: true, detach_norm: true}", "", "", 1, "1e-2",
     "kohya comfyui diffusers", "diffusers"},
    {"flux_loha", "flux", "schnell", flux, 22, "", flux_files, "\n  type: loha\n  rank_dropout: 0.1", "", "", 1, "1e-2",
     "kohya comfyui", "comfyui"},
    {"flux_lokr", "flux", "schnell", flux, 22, "", flux_files,
     "\n  type: lokr\n  lokr_factor: 4\n  module_dropout: 0.1", "", "", 1, "1e-2", "kohya comfyui", "comfyui"},
    {"flux_full", "flux", "schnell", flux, 10, "", flux_files,
     "\n  type: full\n  network_kwargs: {only_if_contains: [double_blocks]}", "", "", 1, "1e-3", "kohya comfyui",
     "comfyui"},
    {"flux_pissa", "flux", "schnell", flux, 22, "diffusers", flux_files, "\n  network_kwargs: {init: pissa}"},
    {"sdxl_olora_conv", "sdxl", "epsilon", sdxl({}), 162 + 17 * 3 + 11 + 4, "kohya diffusers", "",
     "\n  conv: 2\n  init_lora_weights: olora"},
    {"sdxl_loha_conv", "sdxl", "epsilon", sdxl({}), 162 + 17 * 3 + 11 + 4, "", "",
     "\n  type: loha\n  conv: 2\n  network_kwargs: {use_tucker: true}", "", "", 1, "1e-2", "kohya comfyui", "comfyui"},
};

constexpr int all_steps = 12;

constexpr const char* config_text = R"(name: run
training_folder: FOLDER/runs
trigger_word: sks cat
device: cpu
model:
  name_or_path: CHECKPOINTMODEL
network:
  linear: 2
  linear_alpha: 3NETWORK
datasets:
  - folder_path: PHOTOS
    resolution: 64DATASET
train:
  steps: STEPS
  lr: RATE
  dtype: fp32TRAIN
sample:
  prompts: ["a photo of [trigger]"]
  sample_every: EVERY
  sample_at_start: true
  sample_steps: 3
  width: 64
  height: 64SAMPLE
save:
  format: kohya
  dtype: float32
  save_every: 0
)";

void expect_success(const HostResult& result) {
  EXPECT_EQ(result.code, 0) << result.output;
  EXPECT_EQ(result.output.find("warning"), std::string::npos) << result.output;
}

// Two of the demo's, since every family encodes them anew.
const fs::path& photos() {
  static const TempDir dir;
  static const fs::path folder = [] {
    fs::create_directory(dir / "photos");
    for (const char* const name : {"cat_01.jpg", "cat_01.txt", "cat_02.jpg", "cat_02.txt"})
      fs::copy(fs::path(source_dir()) / "examples/demo/photos" / name, dir / "photos");
    return dir / "photos";
  }();
  return folder;
}

// Writes the configuration of a run in this folder.
fs::path write_config(const Family& family, const fs::path& checkpoint, const fs::path& folder, int steps) {
  std::string text = config_text;
  for (const auto& [word, value] :
       std::vector<std::pair<std::string, std::string>>{{"MODEL", family.model},
                                                        {"NETWORK", family.network},
                                                        {"TRAIN", family.train},
                                                        {"DATASET", family.dataset},
                                                        {"SAMPLE", family.sample},
                                                        {"CHECKPOINT", checkpoint},
                                                        {"TOY", toy_folder()},
                                                        {"STEPS", std::to_string(steps)},
                                                        {"EVERY", std::to_string(all_steps)},
                                                        {"PHOTOS", photos()},
                                                        {"RATE", family.lr},
                                                        {"FOLDER", folder},
                                                        {"SOURCE", source_dir()}})
    for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + value.size()))
      text.replace(at, word.size(), value);
  put(folder / "train.yaml", text);
  return folder / "train.yaml";
}

// The adapters of a file beside the weights, as they are while it is trained.
struct Injected {
  HostTensor latents;
  std::vector<LoraModule> modules;
  CheckpointSpec spec;
};

Injected injected(Config config, const fs::path& lora) {
  config.network.pretrained_lora_path = lora;
  if (config.network.network_kwargs.erase("init") > 0) {  // the file of a change from there is a LoRA of twice the rank
    config.network.linear *= 2;
    config.network.conv *= 2;
  }
  Prepared p(built_plugins(), config);
  p.text.prepare(p.prompts());
  const Weights weights(p.device, p.model.checkpoint(), p.plan->largest().graph);
  const Adapters& adapters = *p.plan->adapters;
  p.plan->adapters->allocate(p.device);
  p.plan->adapters->initialise(1, base_weights(p.device, p.model.checkpoint(), weights, p.plan->largest().graph));
  p.warm_start->apply(adapters);
  const int64_t text_arena = p.live_text ? p.live_text->arena_bytes() : 0;
  const DeviceMemory arena(p.device, std::max(p.samples->memory().arena, text_arena), "activations");
  p.samples->bind(arena.data(), weights, &adapters);
  if (p.live_text) {
    p.live_text->bind(arena.data(), weights, adapters);
    p.live_text->encode(prompts_of(p.requests, p.model.recipe()));
  }
  p.latents.prepare(cuts_of(p.requests, p.images));
  Injected all{{}, adapters.modules(), p.model.spec()};
  p.samples->denoise(
      {p.requests.front()}, p.text,
      {.images = [&](const SampleRequest& one) { return p.images.make(one.images, one.cut(), one.posterior()); },
       .stop = [] { return false; },
       .use = {},
       .made = [&](size_t, const HostTensor& latents) { all.latents = latents; }});
  return all;
}

// Latents of the same request with files merged into the weights when these are loaded. What is encoded by weights that
// no file changes is taken from `encoded`, where the first of several puts it.
HostTensor merged(const Config& config, const std::vector<LoraInput>& loras, const fs::path& encoded) {
  Device device(config.device);
  Model model(built_plugins(), config.model, "", keys_of_images(config));
  model.merge(loras);
  const SampleRequest request = requests_of(config, model.recipe()).front();
  TextEncoding text(device, model, DType::f32, encoded / "text");
  text.prepare(prompts_of({request}, model.recipe()));
  const auto no_adapter = [](const std::string&) -> const AdapterSpec* { return nullptr; };
  const SamplerChoice sampler = choose_sampler(built_plugins(), model.recipe(), config.sample);
  Denoiser denoiser(device, model, no_adapter, DType::f32, sampler, request,
                    text.lengths(prompts_of({request}, model.recipe())));
  const Weights weights(device, model.checkpoint(), denoiser.graph());
  const DeviceMemory arena(device, denoiser.memory().arena, "activations");
  denoiser.bind(arena.data(), weights, nullptr);
  const Vae vae{device, model, DType::f32};
  LatentEncoding latents(vae, int64_t{1} << 40, encoded / "latents");
  ImageInputs images(model.recipe(), latents);
  latents.prepare(cuts_of({request}, images));
  return denoiser.sample(request, text, images.make(request.images, request.cut(), request.posterior()),
                         [] { return false; });
}

std::vector<std::string> words(const char* text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

// A run of all steps, and its adapters in every format.
struct Trained {
  TempDir dir;
  std::vector<std::string> formats;
  fs::path checkpoint, config_file;
  HostResult result;
  Config config;
  Injected trained;

  explicit Trained(const Family& family)
      : formats(words(family.formats)),
        checkpoint(family.checkpoint(dir.path())),
        config_file(write_config(family, checkpoint, dir.path(), all_steps)),
        result(run_host({"train", "--config", config_file.string()})),
        config(load_config(config_file, {})) {
    if (result.code != 0) throw std::runtime_error(result.output);
    trained = injected(config, file("kohya"));
    for (const std::string& format : formats)
      if (format != "kohya") write_lora(file(format), trained.modules, trained.spec, format, DType::f32, {});
  }
  fs::path output() const { return dir / "runs" / "run"; }
  fs::path file(const std::string& format) const {
    return format == "kohya" ? output() / "run.safetensors" : dir / (format + ".safetensors");
  }
  fs::path image(int step) const { return output() / "samples" / fmt::format("{:09}_0.png", step); }
};

void PrintTo(const Family& family, std::ostream* out) { *out << family.name; }

class Families : public testing::TestWithParam<Family> {
 protected:
  // Trained once for all tests.
  static const Trained& run() {
    static std::map<std::string, Trained> runs;
    return runs.try_emplace(GetParam().name, GetParam()).first->second;
  }
};

double norm(const HostTensor& tensor) {
  double square = 0;
  for (const float v : tensor.as<float>()) square += double{v} * v;
  return std::sqrt(square);
}

TEST_P(Families, EveryAdapterIsTrained) {
  expect_success(run().result);
  EXPECT_EQ(run().trained.modules.size(), GetParam().modules);
  size_t tensors = 0;
  for (const LoraModule& m : run().trained.modules) {  // each has one that starts at zero
    if (m.has_pair()) {
      EXPECT_GT(norm(m.up), 0) << m.name;
    }
    for (const auto& [key, tensor] : m.others) EXPECT_GT(norm(tensor), 0) << m.name << " " << key;
    tensors += (m.has_pair() ? 2 : 0) + m.others.size() + (m.alpha != 0 ? 1 : 0);
  }
  const Safetensors file(run().file("kohya"));
  EXPECT_EQ(file.tensors().size(), tensors);
  EXPECT_GE(tensors, GetParam().modules);
  EXPECT_EQ(file.metadata().at("lora_host.variant"), GetParam().variant);
  const bool text = std::string(GetParam().train).find("train_text_encoder") != std::string::npos;
  const auto starts = [&](const std::string& prefix) {
    return std::ranges::any_of(file.tensors(), [&](const StoredTensor& t) { return t.name.starts_with(prefix); });
  };
  const bool sd15 = std::string(GetParam().plugin) == "sd15";  // sd-scripts has other names for these
  EXPECT_EQ(starts("lora_te_"), text && sd15);
  EXPECT_EQ(starts("lora_te1_"), text && !sd15);
  EXPECT_EQ(starts("lora_te2_"), text && !sd15);
  EXPECT_EQ(starts("lora_unet_down_blocks_0_attentions_0_proj_in."), sd15);
}

// With the configuration alone, text encoders where they are trained; and what its operations take is named.
TEST_P(Families, BenchTimesTheSameStep) {
  const HostResult result = run_host(
      {"bench", "--config", run().config_file.string(), "--device", tested_device(), "--repeat", "2", "--tune"});
  ASSERT_EQ(result.code, 0) << result.output;
  EXPECT_NE(result.output.find(fmt::format("on {} modules", GetParam().modules)), std::string::npos) << result.output;
  const char* const library = tested_device() == "cpu" ? "OpenBLAS|oneDNN" : "cuBLASLt|product_kernel";
  EXPECT_THAT(result.output, testing::ContainsRegex(
                                 fmt::format("\nchoice +[0-9]+ calls +[0-9.]+ ms, +[0-9.]+ each: .*({})", library)));
}

// All modules are named as this family's. In the spelling of diffusers, layers of several families have the same names.
TEST_P(Families, InspectNamesTheFamily) {
  for (const std::string& format : run().formats) {
    const HostResult result = run_host({"inspect", run().file(format).string(), "--json"});
    ASSERT_EQ(result.code, 0) << result.output;
    const auto report = nlohmann::json::parse(result.output);
    std::vector<std::string> plugins;
    for (const auto& names : report.at("names_of"))
      if (names.at("modules") == report.at("modules").size()) plugins.push_back(names.at("plugin"));
    EXPECT_THAT(plugins, testing::Contains(GetParam().plugin)) << format;
    if (format == "diffusers") continue;
    // The blocks of hunyuan_image and hunyuan_video have the names of flux's and its relatives', those of anima as
    // diffusers spells them ltx2's, those of lumina2 omnigen2's.
    std::erase_if(plugins, [](const std::string& plugin) {
      return plugin.starts_with("hunyuan_") || (plugin == "anima" && GetParam().plugin == std::string("ltx2")) ||
             (plugin == "lumina2" && GetParam().plugin == std::string("omnigen2"));
    });
    EXPECT_EQ(plugins.size(), GetParam().named) << format;
  }
}

// docs/lora-files.md: kohya loads its own format of the models that it knows, ComfyUI all but one, diffusers what the
// row says.
TEST_P(Families, ProgramsLoadEveryKey) {
  const auto knows = [](const char* program) {
    return std::ranges::count(spec_of(GetParam().plugin).lora_loaders, program, &LoraLoader::program) > 0;
  };
  for (const std::string& format : run().formats) {
    std::vector<std::string> programs;
    if (format == "kohya" && knows("kohya")) programs = {"kohya"};
    const std::string plugin = GetParam().plugin;
    // kohya has the original names of their mlp and modulations.
    if (plugin == "hunyuan_image" || plugin == "hunyuan_video1") programs.clear();
    if (knows("comfyui") &&
        (format != "diffusers" ||
         (plugin != "sdxl" && plugin != "sd15" && plugin != "wan" && plugin != "anima" && plugin != "lumina2" &&
          plugin != "omnigen2" && plugin != "ideogram4" && plugin != "hunyuan_image" && plugin != "hunyuan_video" &&
          plugin != "hunyuan_video1" && plugin != "ltx2")))
      programs.push_back("comfyui");
    if (std::string(GetParam().diffusers_loads).find(format) != std::string::npos) programs.push_back("diffusers");
    if (GetParam().programs != std::string("all"))
      std::erase_if(programs, [](const std::string& program) { return program != GetParam().programs; });
    if (programs.empty()) continue;
    const HostResult result = run_host({"verify", run().file(format).string(), "--model", run().checkpoint.string(),
                                        "--for", fmt::format("{}", fmt::join(programs, ",")), "--json"});
    EXPECT_EQ(result.code, 0) << format << result.output.substr(0, 2000);
    const auto report = nlohmann::json::parse(result.output);
    for (const auto& one : report.at("programs")) {
      if (std::ranges::find(programs, one.at("program").get<std::string>()) == programs.end()) continue;
      EXPECT_EQ(one.at("unmatched"), 0) << format << " " << one;
      EXPECT_EQ(one.at("unchecked"), 0) << format << " " << one;
      EXPECT_EQ(one.at("loaded"), report.at("keys")) << format << " " << one;
    }
  }
}

// The same samples to 1e-5; and each component's part is seen in them.
TEST_P(Families, MergedFilesGiveTheSamplesOfTraining) {
  const HostTensor& want = run().trained.latents;
  for (const std::string& format : run().formats) {
    const HostTensor got = merged(run().config, {{run().file(format), 1}}, run().dir / "encoded");
    EXPECT_LE(golden::relative_error(got.as<float>(), want.as<float>()), 1e-5) << format;
  }
  std::set<std::string> components;
  for (const LoraModule& m : run().trained.modules) components.insert(component_of(m.name));
  for (const std::string& component : components) {
    std::vector<LoraModule> others = run().trained.modules;
    std::erase_if(others, [&](const LoraModule& m) { return component_of(m.name) == component; });
    std::vector<LoraInput> loras;
    if (!others.empty()) {
      loras.push_back({run().dir / "others.safetensors"});
      write_lora(loras[0].path, others, run().trained.spec, "kohya", DType::f32, {});
    }
    const HostTensor got = merged(run().config, loras, run().dir / "encoded");
    EXPECT_GT(golden::relative_error(got.as<float>(), want.as<float>()), 1e-3) << component;
  }
}

int largest_difference(const fs::path& a, const fs::path& b) {
  const Image first = decode_image(a), second = decode_image(b);
  EXPECT_EQ(first.rgb.size(), second.rgb.size());
  int largest = 0;
  for (size_t i = 0; i < std::min(first.rgb.size(), second.rgb.size()); ++i)
    largest = std::max(largest, std::abs(int{first.rgb[i]} - int{second.rgb[i]}));
  return largest;
}

// As people see it: `sample --lora` draws the images that the run drew.
TEST_P(Families, SampleDrawsThePicturesOfTheRun) {
  const fs::path plain = run().dir / "plain.png", with = run().dir / "with.png";
  const std::string config = run().config_file;
  expect_success(run_host({"sample", "--config", config, "--out", plain.string()}));
  expect_success(
      run_host({"sample", "--config", config, "--lora", run().file("kohya").string(), "--out", with.string()}));
  EXPECT_LE(largest_difference(plain, run().image(0)), 1);
  EXPECT_LE(largest_difference(with, run().image(all_steps)), 1);
  EXPECT_GT(largest_difference(with, plain), 8) << "training changed nothing to be seen";
}

TEST_P(Families, ResumedRunsEndWithTheSameFile) {
  const TempDir dir;
  fs::create_directory(dir / "runs");
  fs::copy(run().dir / "runs/cache", dir / "runs/cache", fs::copy_options::recursive);
  for (const int steps : {all_steps / 2, all_steps}) {
    const fs::path config = write_config(GetParam(), run().checkpoint, dir.path(), steps);
    expect_success(run_host({"train", "--config", config.string(), "--resume"}));
  }
  EXPECT_TRUE(get(dir / "runs/run/run.safetensors") == get(run().file("kohya")));
}

// A file that no program could load is not what a run should end with.
TEST(FamilyFormats, OneWithoutTheAdapterIsRefusedBeforeTheRun) {
  const Family& loha =
      *std::ranges::find_if(families, [](const Family& f) { return f.name == std::string("flux_loha"); });
  const TempDir dir;
  const fs::path config = write_config(loha, loha.checkpoint(dir.path()), dir.path(), 1);
  std::string text = get(config);
  const std::string format = "format: kohya";
  text.replace(text.find(format), format.size(), "format: diffusers");
  put(config, text);
  const HostResult result = run_host({"train", "--config", config.string(), "--dry-run"});
  EXPECT_EQ(result.code, 2) << result.output;
  EXPECT_NE(result.output.find("diffusers: it has no tensor `hada_w1_a`"), std::string::npos) << result.output;
}

INSTANTIATE_TEST_SUITE_P(All, Families, testing::ValuesIn(families),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace lh::test::family_test
