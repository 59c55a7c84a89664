// The first HunyuanVideo beyond its golden cases: every layout of files, refusals, the template, lengths of videos,
// names in LoRA files, and the published model by its shapes.
#include <gmock/gmock.h>

#include <set>

#include "compile/adapter_selection.h"
#include "encode/prompt_tokens.h"
#include "io/lora_names.h"
#include "passes/adapt.h"
#include "support/flux2_shapes.h"
#include "support/hunyuan_video1_shapes.h"
#include "support/layouts.h"
#include "support/paths.h"
#include "support/wrong_models.h"

namespace lh::test::hunyuan_video1_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const char* const plugin = "hunyuan_video1";
const std::string tokenizer = std::string(source_dir()) + "/tests/data/llama_small";

// A whole small model whose parts fit each other: native tensors of each component.
const std::map<std::string, std::vector<Given>>& components() {
  static const std::map<std::string, std::vector<Given>> all = [] {
    const HunyuanVideo1Dit& size = small_hunyuan_video1;
    Shapes text, clip, vae;
    add_mistral(text, "", {size.text, 3, 2, 64, small_llama3_words});
    add_clip(clip, "", size.pooled, 1, clip_words);
    add_hunyuan_video1_vae(vae, "", small_video1_vae_channels, 1);
    return std::map<std::string, std::vector<Given>>{
        {"denoiser", filled(size.shapes())}, {"vae", filled(vae)}, {"llama3", filled(text)}, {"clip_l", filled(clip)}};
  }();
  return all;
}

// A file for each component.
ModelConfig write_separate(const fs::path& folder) {
  fs::create_directories(folder);
  for (const auto& [name, tensors] : components()) write_file(folder / (name + ".safetensors"), tensors);
  ModelConfig config = single(folder / "denoiser.safetensors");
  for (const auto& [key, name] :
       std::map<std::string, std::string>{{"vae_path", "vae"}, {"llama3_path", "llama3"}, {"clip_path", "clip_l"}})
    config.given[key] = {folder / (name + ".safetensors")};
  config.given["tokenizer_path"] = {tokenizer};
  return config;
}

// ---- layouts

ModelConfig all_in_one(const fs::path& folder) {
  std::vector<Given> all;
  for (const auto& [name, prefix] : std::map<std::string, std::string>{{"denoiser", "model.diffusion_model."},
                                                                       {"vae", "vae."},
                                                                       {"llama3", "text_encoders.llama.transformer."},
                                                                       {"clip_l", "text_encoders.clip_l.transformer."}})
    for (const Given& t : components().at(name)) all.push_back({prefix + t.name, t.tensor});
  write_file(folder / "all.safetensors", all);
  ModelConfig config = single(folder / "all.safetensors");
  config.given["tokenizer_path"] = {tokenizer};
  return config;
}

ModelConfig directory(const fs::path& folder, const std::string& variant, const Change& change) {
  write_directory(folder, spec_of(plugin), components(), {"denoiser"}, variant, change);
  put(folder / "model_index.json", R"({"_class_name": "HunyuanVideoPipeline"})");
  ModelConfig config = single(folder);
  config.given["tokenizer_path"] = {tokenizer};
  return config;
}

// As ComfyUI saves them: names of its own for the autoencoder, a tokenizer in the file of Llama.
ModelConfig comfyui(const fs::path& folder) {
  ModelConfig config = write_separate(folder);
  std::vector<Given> denoiser, vae, text = components().at("llama3");
  for (const Given& t : components().at("denoiser")) denoiser.push_back({"model.model." + t.name, t.tensor});
  const CheckpointSpec spec = spec_of(plugin);
  for (const Given& t : components().at("vae"))
    for (const Given& part : in_diffusers(*spec.component("vae"), t, components().at("vae"))) vae.push_back(part);
  text.push_back({"tokenizer", counting({2, 2})});
  write_file(folder / "denoiser.safetensors", denoiser);
  write_file(folder / "vae.safetensors", vae);
  write_file(folder / "llama3.safetensors", text);
  return config;
}

// The original name of a tensor.
std::string original(std::string name) {
  const std::pair<const char*, const char*> parts[] = {{"txt_in.t_embedder.in_layer", "txt_in.t_embedder.mlp.0"},
                                                       {"txt_in.t_embedder.out_layer", "txt_in.t_embedder.mlp.2"},
                                                       {"txt_in.c_embedder.in_layer", "txt_in.c_embedder.linear_1"},
                                                       {"txt_in.c_embedder.out_layer", "txt_in.c_embedder.linear_2"},
                                                       {"e_in.in_layer", "e_in.mlp.0"},
                                                       {"e_in.out_layer", "e_in.mlp.2"},
                                                       {"_mod.lin.", "_mod.linear."},
                                                       {".modulation.lin.", ".modulation.linear."},
                                                       {"_attn.qkv", "_attn_qkv"},
                                                       {"_attn.proj", "_attn_proj"},
                                                       {"_attn.norm.query_norm.scale", "_attn_q_norm.weight"},
                                                       {"_attn.norm.key_norm.scale", "_attn_k_norm.weight"},
                                                       {".norm.query_norm.scale", ".q_norm.weight"},
                                                       {".norm.key_norm.scale", ".k_norm.weight"},
                                                       {"mlp.0", "mlp.fc1"},
                                                       {"mlp.2", "mlp.fc2"}};
  for (const auto& [from, to] : parts)
    if (const size_t at = name.find(from); at != name.npos) return name.replace(at, std::string(from).size(), to);
  return name;
}

ModelConfig with_original_names(const fs::path& folder) {
  ModelConfig config = write_separate(folder);
  std::vector<Given> tensors;
  for (const Given& t : components().at("denoiser")) tensors.push_back({original(t.name), t.tensor});
  write_file(folder / "denoiser.safetensors", tensors);
  return config;
}

const Layout layouts[] = {
    {"all_in_one", all_in_one},
    {"comfyui", comfyui},
    {"original_names", with_original_names},
    {"folder", [](const fs::path& p) { return directory(p, "", as_is); }},
    {"folder_of_a_variant", [](const fs::path& p) { return directory(p, ".fp16", as_half); }, as_half},
};

class HunyuanVideo1Layouts : public testing::TestWithParam<Layout> {};

TEST_P(HunyuanVideo1Layouts, OpenAsTheSameModel) {
  expect_same_model(
      plugin, GetParam(), [](const fs::path& folder) { return write_separate(folder); },
      {{"denoiser", {{"batch", 1}, {"time", 3}, {"height", 4}, {"width", 6}, {"text_length", 40}}},
       {"conditioner", {{"batch", 2}, {"llama3.length", 120}, {"llama3.drop", 95}, {"clip_l.length", 77}}},
       {"vae.encode", {{"batch", 1}, {"time", 9}, {"height", 32}, {"width", 16}}},
       {"vae.decode", {{"batch", 1}, {"time", 3}, {"height", 4}, {"width", 2}}}});
}

INSTANTIATE_TEST_SUITE_P(All, HunyuanVideo1Layouts, testing::ValuesIn(layouts), layout_name);

// ---- what is not HunyuanVideo's text-to-video, or not whole

void set(Shapes& shapes, const std::string& name, const Shape& shape) { shapes[name] = {DType::bf16, shape}; }

const WrongModel wrongs[] = {
    {"heads",
     [](Shapes& s) {
       set(s, "img_in.proj.weight", {200, 16, 1, 2, 2});
     },
     "img_in.proj.weight: expected a multiple of 128 rows (heads of 128), found 200"},
    {"patches",
     [](Shapes& s) {
       set(s, "img_in.proj.weight", {128, 16, 1, 1, 1});
     },
     "img_in.proj.weight: expected shape [128, 16, 1, 2, 2], found [128, 16, 1, 1, 1]"},
    {"guidance", [](Shapes& s) { s.erase("guidance_in.in_layer.weight"); },
     "missing tensor guidance_in.in_layer.weight"},
    {"single_block", [](Shapes& s) { s.erase("single_blocks.1.linear2.bias"); },
     "missing tensor single_blocks.1.linear2.bias"},
    {"text_width",
     [](Shapes& s) {
       add_mistral(s, "llama3:", {256, 3, 2, 64, 60});
     },
     "txt_in.input_embedder.weight takes 128 columns, but llama3 gives 256: the files do not belong together"},
    {"pooled_width", [](Shapes& s) { add_clip(s, "clip_l:", 128, 1, 60); },
     "vector_in.in_layer.weight takes 64 columns, but clip_l gives 128: the files do not belong together"},
    {"vae_levels",
     [](Shapes& s) {
       add_hunyuan_video1_vae(s, "vae:", small_video1_vae_channels, 1);
       s.erase("vae:decoder.up_blocks.3.resnets.0.norm1.weight");
     },
     "vae:decoder.up_blocks.*: expected 4 levels, found 3"},
    {"vae_groups",
     [](Shapes& s) {
       add_hunyuan_video1_vae(s, "vae:", {32, 48, 64, 64}, 1);
     },
     "vae:encoder.down_blocks.1.resnets.0.conv1.conv.weight: expected a multiple of 32 rows (groups of a norm), found "
     "48"},
    {"vae_shortcut",
     [](Shapes& s) {
       add_hunyuan_video1_vae(s, "vae:", small_video1_vae_channels, 1);
       s.erase("vae:encoder.down_blocks.2.resnets.0.conv_shortcut.conv.weight");
     },
     "missing tensor vae:encoder.down_blocks.2.resnets.0.conv_shortcut.conv.weight"},
    {"vae_of_another",
     [](Shapes& s) {
       add_hunyuan_video1_vae(s, "vae:", small_video1_vae_channels, 1);
       set(s, "vae:decoder.conv_in.conv.weight", {64, 32, 3, 3, 3});
     },
     "vae:decoder.conv_in.conv.weight: expected shape [*, 16, 3, 3, 3], found [64, 32, 3, 3, 3]"},
};

TEST(HunyuanVideo1, WrongTensorsAreNamed) { expect_refused(plugin, small_hunyuan_video1.shapes(), wrongs); }

const WrongModel relatives[] = {
    {"image_to_video",
     [](Shapes& s) {
       set(s, "img_in.proj.weight", {128, 33, 1, 2, 2});
     },
     "this is an image-to-video model of HunyuanVideo or SkyReels, which is shown what a video begins with "
     "(img_in.proj "
     "takes 33 channels instead of 16)"},
    {"framepack",
     [](Shapes& s) {
       set(s, "clean_x_embedder.proj_2x.weight", {128, 16, 2, 4, 4});
     },
     "this is FramePack, which is shown the frames before those that it makes (clean_x_embedder.*)"},
    {"framepack_without_them", [](Shapes& s) { add_linear(s, "image_projection.linear_1", 128, 64); },
     "this is FramePack, which is shown the frames before those that it makes (image_projection.*)"},
};

TEST(HunyuanVideo1, RelativesAreRefusedByName) {
  expect_files_refused({plugin}, small_hunyuan_video1.shapes(), relatives);
}

// Of one kind the tensors are those of text-to-video.
TEST(HunyuanVideo1, ImageToVideoIsRefusedByItsFolder) {
  const TempDir dir;
  const ModelConfig config = directory(dir / "model", "", as_is);
  const auto error = [&] { return error_of([&] { const Model model(built_plugins(), config, ""); }); };
  put(dir / "model" / "transformer" / "config.json", R"({"image_condition_type": "token_replace"})");
  EXPECT_THAT(error(), HasSubstr("this is HunyuanVideo's image-to-video (config.json: image_condition_type "
                                 "\"token_replace\"); HunyuanVideo's text-to-video is trained here"));
  put(dir / "model" / "model_index.json", R"({"_class_name": "HunyuanVideoImageToVideoPipeline"})");
  EXPECT_THAT(error(), HasSubstr("this is HunyuanVideo's image-to-video (model_index.json)"));
}

// ---- prompts

// In the small vocabulary, as in Llama's own, each word of the template is one token: its front is 95 of them.
TEST(HunyuanVideo1, TheFrontOfTheTemplateIsLeftOut) {
  const TempDir dir;
  const Model model(built_plugins(), write_separate(dir.path()), "");
  EXPECT_EQ(model.recipe().tokenizers.at("llama3").drop, 95);
  PromptTokens tokens(model);
  const std::shared_ptr<const Tokens> of = tokens.of("a cat");
  const std::span<const int32_t> ids = of->at("llama3.input_ids").as<int32_t>(),
                                 mask = of->at("llama3.attention_mask").as<int32_t>();
  ASSERT_EQ(ids.size(), 351u);
  ASSERT_EQ(std::ranges::count(mask, 1), 95 + 2 + 1);
  EXPECT_EQ(std::vector(ids.begin(), ids.begin() + 12),
            (std::vector{300, 302, 256, 303, 257, 258, 259, 260, 261, 262, 259, 263}));
  EXPECT_EQ(std::vector(ids.begin() + 88, ids.begin() + 98),
            (std::vector{260, 58, 304, 302, 298, 303, 257, 97, 299, 304}));
  EXPECT_EQ(of->at("clip_l.input_ids").as<int32_t>()[0], 49406);
}

// ---- lengths of videos

TEST(HunyuanVideo1, FramesAreEncodedAndDecoded) {
  const TempDir dir;
  const Model model(built_plugins(), write_separate(dir.path()), "");
  // 16 latents are a window; of 25 the third one would have nothing of its own.
  for (const int64_t time : {1, 16, 17, 25, 26}) {
    const int64_t frames = 4 * (time - 1) + 1;
    const Graph in = model.build("vae.encode", {{"batch", 2}, {"time", frames}, {"height", 16}, {"width", 24}}, {});
    EXPECT_EQ(in.desc(in.outputs.at("posterior")).shape, (Shape{2, time, 2, 3, 32}));
    const Graph out = model.build("vae.decode", {{"batch", 2}, {"time", time}, {"height", 2}, {"width", 3}}, {});
    EXPECT_EQ(out.desc(out.outputs.at("image")).shape, (Shape{2, frames, 16, 24, 3}));
  }
  EXPECT_THAT(error_of([&] {
                model.build("vae.encode", {{"batch", 1}, {"time", 6}, {"height", 16}, {"width", 16}}, {});
              }),
              HasSubstr("a video of 6 frames does not divide into one and 4 for each further latent"));
}

// ---- LoRA files

// Names of musubi-tuner, of diffusion-pipe, which are the original ones, and of diffusers.
TEST(HunyuanVideo1, NamesOfOtherProgramsAreRead) {
  std::map<std::string, Desc> weights;
  for (const auto& [name, desc] : full_hunyuan_video1.shapes()) weights[name] = desc;
  const LoraNameTable names(spec_of(plugin), weights);
  struct Row {
    const char *name, *native;
    int64_t first, rows;
  };
  constexpr int64_t h = 3072;
  for (const Row& row :
       {Row{"lora_unet_double_blocks_3_img_attn_qkv", "double_blocks.3.img_attn.qkv", 0, 3 * h},
        Row{"lora_unet_double_blocks_3_img_mlp_fc1", "double_blocks.3.img_mlp.0", 0, 4 * h},
        Row{"lora_unet_single_blocks_39_linear1", "single_blocks.39.linear1", 0, 7 * h},
        Row{"lora_unet_single_blocks_39_modulation_linear", "single_blocks.39.modulation.lin", 0, 3 * h},
        Row{"transformer.double_blocks.3.txt_attn_proj", "double_blocks.3.txt_attn.proj", 0, h},
        Row{"diffusion_model.double_blocks.3.txt_mlp.fc2", "double_blocks.3.txt_mlp.2", 0, h},
        Row{"transformer.transformer_blocks.3.attn.add_v_proj", "double_blocks.3.txt_attn.qkv", 2 * h, h},
        Row{"transformer.single_transformer_blocks.3.proj_mlp", "single_blocks.3.linear1", 3 * h, 4 * h}}) {
    const LoraPlace* place = names.find(row.name);
    ASSERT_NE(place, nullptr) << row.name;
    EXPECT_EQ(place->native, row.native);
    EXPECT_EQ(place->first_row, row.first) << row.name;
    EXPECT_EQ(place->rows, row.rows) << row.name;
  }
}

// ---- full size

TEST(HunyuanVideo1, FullSizeGraphAndLoraModules) {
  const Shapes shapes = full_hunyuan_video1.shapes();
  EXPECT_EQ(parameters_of(shapes), 12821012544);
  const Described model(plugin, shapes);
  EXPECT_EQ(model.confidence(), 100);
  Graph graph = model.denoiser({{"batch", 1}, {"time", 3}, {"height", 16}, {"width", 16}, {"text_length", 256}});
  EXPECT_EQ(graph.desc(graph.outputs.at("output")).shape, (Shape{1, 3, 16, 16, 16}));
  std::set<std::string> used;
  for (const auto& [name, value] : graph.params) used.insert(name);
  for (const auto& [name, desc] : shapes) EXPECT_TRUE(used.contains(name)) << name;
  EXPECT_EQ(adapt(graph, AdapterSelection({}, model.recipe(), 1), true).size(), 240u);
}

TEST(HunyuanVideo1, FullSizeAutoencoder) {
  Shapes vae, shapes = small_hunyuan_video1.shapes();
  add_hunyuan_video1_vae(vae, "vae:", full_video1_vae_channels, 2);
  EXPECT_EQ(parameters_of(vae), 246478803);
  shapes.insert(vae.begin(), vae.end());
  EXPECT_NO_THROW(Described(plugin, shapes));
}

}  // namespace
}  // namespace lh::test::hunyuan_video1_test
