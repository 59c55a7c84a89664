// HunyuanVideo 1.5 beyond its golden cases: every layout of files, refusals, the template, words in quotes, and the
// published model by its shapes.
#include <gmock/gmock.h>

#include <set>

#include "compile/adapter_selection.h"
#include "encode/check_model.h"
#include "encode/prompt_tokens.h"
#include "io/lora_names.h"
#include "passes/adapt.h"
#include "support/hunyuan_video_shapes.h"
#include "support/layouts.h"
#include "support/model_shapes.h"
#include "support/paths.h"
#include "support/qwen_image_shapes.h"
#include "support/wrong_models.h"

namespace lh::test::hunyuan_video_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const char* const plugin = "hunyuan_video";

// A whole small model whose parts fit each other: native tensors of each component.
const std::map<std::string, std::vector<Given>>& components() {
  static const std::map<std::string, std::vector<Given>> all = [] {
    Shapes text, glyphs, vae;
    add_qwen2_5(text, "", small_hunyuan_video.text, 1626);
    add_t5(glyphs, "", small_hunyuan_video.glyphs, 1, 300);
    add_hunyuan_video_vae(vae, "", small_video_vae_channels);
    return std::map<std::string, std::vector<Given>>{{"denoiser", filled(small_hunyuan_video.shapes())},
                                                     {"vae", filled(vae)},
                                                     {"qwen2_5_vl", filled(text)},
                                                     {"byt5", filled(glyphs)}};
  }();
  return all;
}

// A file for each component.
ModelConfig write_separate(const fs::path& folder) {
  fs::create_directories(folder);
  for (const auto& [name, tensors] : components()) write_file(folder / (name + ".safetensors"), tensors);
  ModelConfig config = single(folder / "denoiser.safetensors");
  for (const std::string name : {"vae", "qwen2_5_vl", "byt5"})
    config.given[name + "_path"] = {folder / (name + ".safetensors")};
  return config;
}

// ---- layouts

ModelConfig all_in_one(const fs::path& folder, const std::string& denoiser) {
  std::vector<Given> all;
  for (const auto& [name, prefix] :
       std::map<std::string, std::string>{{"denoiser", denoiser},
                                          {"vae", "vae."},
                                          {"qwen2_5_vl", "text_encoders.qwen25_7b.transformer."},
                                          {"byt5", "text_encoders.byt5_small.transformer."}})
    for (const Given& t : components().at(name)) all.push_back({prefix + t.name, t.tensor});
  write_file(folder / "all.safetensors", all);
  return single(folder / "all.safetensors");
}

ModelConfig directory(const fs::path& folder, const std::string& variant, const Change& change) {
  write_directory(folder, spec_of(plugin), components(), {"denoiser", "vae"}, variant, change);
  put(folder / "model_index.json", R"({"_class_name": "HunyuanVideo15Pipeline"})");
  return single(folder);
}

// The original names of a tensor, whose q, k and v are three.
std::vector<Given> original(const Given& t) {
  const std::pair<const char*, const char*> parts[] = {{"txt_in.t_embedder.in_layer", "txt_in.t_embedder.mlp.0"},
                                                       {"txt_in.t_embedder.out_layer", "txt_in.t_embedder.mlp.2"},
                                                       {"txt_in.c_embedder.in_layer", "txt_in.c_embedder.linear_1"},
                                                       {"txt_in.c_embedder.out_layer", "txt_in.c_embedder.linear_2"},
                                                       {"_in.in_layer", "_in.mlp.0"},
                                                       {"_in.out_layer", "_in.mlp.2"},
                                                       {"_mod.lin", "_mod.linear"},
                                                       {"_attn.proj", "_attn_proj"},
                                                       {"_attn.norm.query_norm.scale", "_attn_q_norm.weight"},
                                                       {"_attn.norm.key_norm.scale", "_attn_k_norm.weight"},
                                                       {"mlp.0", "mlp.fc1"},
                                                       {"mlp.2", "mlp.fc2"}};
  std::string name = t.name;
  if (const size_t at = name.find("_attn.qkv"); at != name.npos && name.starts_with("double_blocks")) {
    std::vector<Given> apart;
    const int64_t h = small_hunyuan_video.hidden;
    for (int64_t i = 0; i < 3; ++i)
      apart.push_back(
          {std::string(name).replace(at, 9, std::string("_attn_") + "qkv"[i]), rows_of(t.tensor, i * h, h)});
    return apart;
  }
  if (const size_t at = name.find("self_attn.qkv"); at != name.npos) name.replace(at, 13, "self_attn_qkv");
  for (const auto& [from, to] : parts)
    if (const size_t at = name.find(from); at != name.npos && !name.starts_with("time_in.mlp"))
      return {{name.replace(at, std::string(from).size(), to), t.tensor}};
  return {{name, t.tensor}};
}

ModelConfig with_original_names(const fs::path& folder) {
  ModelConfig config = write_separate(folder);
  std::vector<Given> tensors;
  for (const Given& t : components().at("denoiser"))
    for (const Given& part : original(t)) tensors.push_back(part);
  write_file(folder / "denoiser.safetensors", tensors);
  return config;
}

const Layout layouts[] = {
    {"all_in_one", [](const fs::path& p) { return all_in_one(p, "model.diffusion_model."); }},
    {"all_in_one_without_a_prefix", [](const fs::path& p) { return all_in_one(p, ""); }},
    {"original_names", with_original_names},
    {"folder", [](const fs::path& p) { return directory(p, "", as_is); }},
    {"folder_of_a_variant", [](const fs::path& p) { return directory(p, ".fp16", as_half); }, as_half},
};

class HunyuanVideoLayouts : public testing::TestWithParam<Layout> {};

TEST_P(HunyuanVideoLayouts, OpenAsTheSameModel) {
  expect_same_model(
      plugin, GetParam(), [](const fs::path& folder) { return write_separate(folder); },
      {{"denoiser",
        {{"batch", 1}, {"time", 3}, {"height", 4}, {"width", 6}, {"text_length", 40}, {"glyphs_length", 20}}},
       {"conditioner", {{"batch", 2}, {"qwen2_5_vl.length", 140}, {"qwen2_5_vl.drop", 108}, {"byt5.length", 30}}},
       {"vae.encode", {{"batch", 1}, {"time", 9}, {"height", 64}, {"width", 32}}},
       {"vae.decode", {{"batch", 1}, {"time", 3}, {"height", 4}, {"width", 2}}}});
}

INSTANTIATE_TEST_SUITE_P(All, HunyuanVideoLayouts, testing::ValuesIn(layouts), layout_name);

// ---- what is not HunyuanVideo 1.5, or not whole

void set(Shapes& shapes, const std::string& name, const Shape& shape) { shapes[name] = {DType::bf16, shape}; }

const WrongModel wrongs[] = {
    {"heads",
     [](Shapes& s) {
       set(s, "img_in.proj.weight", {200, 65, 1, 1, 1});
     },
     "img_in.proj.weight: expected a multiple of 128 rows (heads of 128), found 200"},
    {"latents_alone",
     [](Shapes& s) {
       set(s, "img_in.proj.weight", {128, 32, 1, 1, 1});
     },
     "img_in.proj.weight: expected shape [128, 65, 1, 1, 1], found [128, 32, 1, 1, 1]"},
    {"kinds",
     [](Shapes& s) {
       set(s, "cond_type_embedding.weight", {2, 128});
     },
     "cond_type_embedding.weight: expected shape [3, 128], found [2, 128]"},
    {"glyphs", [](Shapes& s) { s.erase("byt5_in.fc2.bias"); }, "missing tensor byt5_in.fc2.bias"},
    {"text_width", [](Shapes& s) { add_qwen2_5(s, "qwen2_5_vl:", 64, 60); },
     "txt_in.input_embedder.weight takes 96 columns, but qwen2_5_vl gives 64: the files do not belong together"},
    {"latents_of_the_autoencoder",
     [](Shapes& s) {
       add_hunyuan_video_vae(s, "vae:", small_video_vae_channels);
       set(s, "vae:decoder.conv_in.conv.weight", {64, 16, 3, 3, 3});
     },
     "vae:decoder.conv_in.conv.weight: expected shape [*, 32, 3, 3, 3], found [64, 16, 3, 3, 3]"},
};

TEST(HunyuanVideo, WrongTensorsAreNamed) { expect_refused(plugin, small_hunyuan_video.shapes(), wrongs); }

const WrongModel relatives[] = {
    {"super_resolution",
     [](Shapes& s) {
       set(s, "img_in.proj.weight", {128, 98, 1, 1, 1});
     },
     "this is HunyuanVideo 1.5's super-resolution, which is shown a smaller video (img_in.proj takes 98 channels)"},
    {"mean_flow", [](Shapes& s) { add_linear(s, "time_r_in.in_layer", 128, 256); },
     "this is HunyuanVideo 1.5's super-resolution, which is told where a step ends"},
};

TEST(HunyuanVideo, RelativesAreRefusedByName) {
  expect_files_refused({plugin}, small_hunyuan_video.shapes(), relatives);
}

// ---- image-to-video, which sees its picture by SigLIP

TEST(HunyuanVideo, TheUserSaysWhatItWasMadeFor) {
  HunyuanVideoDit seeing = small_hunyuan_video;
  seeing.seen = 144;
  for (const auto& [variant, shift] :
       {std::pair{"", 5.0}, {"480p", 5.0}, {"720p", 9.0}, {"480p-i2v", 5.0}, {"720p-i2v", 7.0}}) {
    const Recipe recipe = Described(plugin, seeing.shapes(), variant).recipe();
    EXPECT_EQ(recipe.sampling.schedule.shift, shift);
    EXPECT_EQ(recipe.shown_first_frames(), std::string(variant).ends_with("-i2v"));
    EXPECT_TRUE(recipe.image_keys().needed.empty());
  }
}

// By the index of a diffusers directory; with names of the encoder as transformers 5 writes them, and as others do.
TEST(HunyuanVideo, ImageToVideoIsToldByItsFolder) {
  const TempDir dir;
  HunyuanVideoDit seeing = small_hunyuan_video;
  seeing.seen = 144;
  std::map<std::string, std::vector<Given>> all = components();
  Shapes siglip;
  add_siglip_vision(siglip, "", seeing.seen, 1, 96);
  all["denoiser"] = filled(seeing.shapes());
  all["siglip"] = filled(siglip);
  write_directory(dir / "model", spec_of(plugin), all, {"denoiser", "vae"}, "", as_is);
  put(dir / "model" / "model_index.json", R"({"_class_name": "HunyuanVideo15ImageToVideoPipeline"})");
  ModelConfig config = single(dir / "model");
  const Model want(built_plugins(), config, "");
  EXPECT_EQ(want.recipe().variant, "480p-i2v");
  EXPECT_NO_THROW(check_model(want, DType::f32));
  std::vector<Given> bare{{"head.probe", counting({1, 1, 4})}};
  for (const Given& t : all["siglip"]) bare.push_back({t.name.substr(std::string("vision_model.").size()), t.tensor});
  write_file(dir / "model/image_encoder/model.safetensors", bare);
  expect_same(Model(built_plugins(), config, "").checkpoint(), want.checkpoint());
  config.given["variant"] = {"720p-i2v"};
  EXPECT_EQ(Model(built_plugins(), config, "").recipe().variant, "720p-i2v");
  config.given["variant"] = {"720p"};
  EXPECT_THAT(error_of([&] { const Model model(built_plugins(), config, ""); }),
              HasSubstr("model.variant: 720p: this is image-to-video (model_index.json): expected 720p-i2v"));
}

const WrongModel wrong_i2v[] = {
    {"no_rows_of_a_picture", [](Shapes& s) { s.erase("vision_in.proj.3.weight"); },
     "missing tensor vision_in.proj.3.weight"},
    {"siglip_width", [](Shapes& s) { add_siglip_vision(s, "siglip:", 144, 1, 96); },
     "vision_in.proj.1.weight takes 16 columns, but siglip gives 144: the files do not belong together"},
    {"siglip_heads", [](Shapes& s) { add_siglip_vision(s, "siglip:", 100, 1, 96); },
     "siglip:vision_model.embeddings.patch_embedding.weight: expected a multiple of 72 rows (heads of 72), found 100"},
    {"siglip_without_a_norm",
     [](Shapes& s) {
       add_siglip_vision(s, "siglip:", 1152, 1, 96);
       s.erase("siglip:vision_model.post_layernorm.bias");
     },
     "missing tensor siglip:vision_model.post_layernorm.bias"},
};

TEST(HunyuanVideo, WrongTensorsOfImageToVideoAreNamed) {
  for (const WrongModel& wrong : wrong_i2v) {
    Shapes shapes = small_hunyuan_video.shapes();
    wrong.change(shapes);
    EXPECT_THAT(error_of([&] { const Described model(plugin, shapes, "480p-i2v"); }), HasSubstr(wrong.text))
        << wrong.name;
  }
}

// Nothing of the published files is left over but what comes of the last block's text.
TEST(HunyuanVideo, FullSizeGraphOfImageToVideo) {
  const Shapes shapes = full_hunyuan_video.shapes();
  const Described model(plugin, shapes, "720p-i2v");
  const Graph graph = model.denoiser({{"batch", 1},
                                      {"time", 3},
                                      {"height", 45},
                                      {"width", 80},
                                      {"text_length", 256},
                                      {"glyphs_length", 40},
                                      {"image_length", 729}});
  for (const auto& [name, desc] : shapes) {
    const bool dead =
        name.starts_with("double_blocks.53.txt_attn.proj") || name.starts_with("double_blocks.53.txt_mlp");
    EXPECT_EQ(graph.params.contains(name), !dead) << name;
  }
}

// ---- prompts

// The template's front is 108 tokens, of which those of the spaces before each number are two; behind the prompt are
// its end and the begin of an answer.
TEST(HunyuanVideo, TheFrontOfTheTemplateIsLeftOut) {
  const TempDir dir;
  const Model model(built_plugins(), write_separate(dir.path()), "");
  EXPECT_EQ(model.recipe().tokenizers.at("qwen2_5_vl").drop, 108);
  PromptTokens tokens(model);
  const std::shared_ptr<const Tokens> of = tokens.of("a cat");
  const std::span<const int32_t> ids = of->at("qwen2_5_vl.input_ids").as<int32_t>(),
                                 mask = of->at("qwen2_5_vl.attention_mask").as<int32_t>();
  ASSERT_EQ(std::ranges::count(mask, 1), 108 + 2 + 5);
  EXPECT_EQ(std::vector(ids.begin(), ids.begin() + 23),
            (std::vector{151644, 8948,  198, 2610, 525,   264, 10950, 17847, 13, 60785, 279, 2766,
                         553,    44193, 279, 2701, 13566, 25,  260,   220,   16, 13,    576}));
  EXPECT_EQ(std::vector(ids.begin() + 103, ids.begin() + 115),
            (std::vector{151645, 198, 151644, 872, 198, 64, 8251, 151645, 198, 151644, 77091, 198}));
}

TEST(HunyuanVideo, WordsInQuotesAreReadByteByByte) {
  const TempDir dir;
  const Model model(built_plugins(), write_separate(dir.path()), "");
  PromptTokens tokens(model);
  const std::span<const int32_t> ids = tokens.of("a sign: \"no\"")->at("byt5.input_ids").as<int32_t>();
  ASSERT_EQ(ids.size(), 256u);
  std::vector<int32_t> want;  // a byte is its number and 3 more, and 1 is the end
  for (const char c : std::string("Text \"no\". ")) want.push_back(c + 3);
  want.push_back(1);
  EXPECT_EQ(std::vector(ids.begin(), ids.begin() + std::ssize(want)), want);
}

// ---- LoRA files

// Names of musubi-tuner, which has q, k and v apart, and of diffusers.
TEST(HunyuanVideo, NamesOfOtherProgramsAreRead) {
  std::map<std::string, Desc> weights;
  for (const auto& [name, desc] : full_hunyuan_video.shapes()) weights[name] = desc;
  const LoraNameTable names(spec_of(plugin), weights);
  struct Row {
    const char *name, *native;
    int64_t first, rows;
  };
  constexpr int64_t h = 2048;
  for (const Row& row :
       {Row{"lora_unet_double_blocks_3_img_mlp_fc1", "double_blocks.3.img_mlp.0", 0, 4 * h},
        Row{"lora_unet_double_blocks_53_txt_mod_linear", "double_blocks.53.txt_mod.lin", 0, 6 * h},
        Row{"lora_unet_double_blocks_3_txt_attn_k", "double_blocks.3.txt_attn.qkv", h, h},
        Row{"lora_unet_double_blocks_3_img_attn_proj", "double_blocks.3.img_attn.proj", 0, h},
        Row{"transformer.transformer_blocks.3.attn.add_v_proj", "double_blocks.3.txt_attn.qkv", 2 * h, h}}) {
    const LoraPlace* place = names.find(row.name);
    ASSERT_NE(place, nullptr) << row.name;
    EXPECT_EQ(place->native, row.native);
    EXPECT_EQ(place->first_row, row.first) << row.name;
    EXPECT_EQ(place->rows, row.rows) << row.name;
  }
}

// ---- full size

// The published files have 1361 tensors. Text-to-video does without what would see a picture, and the last block
// without what would come of its text.
TEST(HunyuanVideo, FullSizeGraphAndLoraModules) {
  const Shapes shapes = full_hunyuan_video.shapes();
  EXPECT_EQ(shapes.size(), 1361u);
  const Described model(plugin, shapes);
  EXPECT_EQ(model.confidence(), 100);
  Graph graph = model.denoiser(
      {{"batch", 1}, {"time", 3}, {"height", 30}, {"width", 52}, {"text_length", 256}, {"glyphs_length", 40}});
  EXPECT_EQ(graph.desc(graph.outputs.at("output")).shape, (Shape{1, 3, 30, 52, 32}));
  std::set<std::string> used;
  for (const auto& [name, value] : graph.params) used.insert(name);
  for (const auto& [name, desc] : shapes) {
    const bool dead = name.starts_with("vision_in.") || name.starts_with("double_blocks.53.txt_attn.proj") ||
                      name.starts_with("double_blocks.53.txt_mlp");
    EXPECT_EQ(used.contains(name), !dead) << name;
  }
  EXPECT_EQ(adapt(graph, AdapterSelection({}, model.recipe(), 1), true).size(), 537u);
}

}  // namespace
}  // namespace lh::test::hunyuan_video_test
