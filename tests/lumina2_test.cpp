// Lumina 2 beyond its golden cases: every layout of files, refusals, prompts, texts of a batch, and the published model
// by its shapes.
#include <gmock/gmock.h>

#include <cmath>
#include <set>

#include "compile/adapter_selection.h"
#include "encode/text_encoding.h"
#include "io/lora_names.h"
#include "passes/adapt.h"
#include "run/plan.h"
#include "support/device.h"
#include "support/layouts.h"
#include "support/log.h"
#include "support/lumina2_shapes.h"
#include "support/model_shapes.h"
#include "support/paths.h"
#include "support/texts_apart.h"
#include "support/wrong_models.h"

namespace lh::test::lumina2_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const char* const plugin = "lumina2";

// A whole small model whose parts fit each other: native tensors of each component.
const std::map<std::string, std::vector<Given>>& components() {
  static const std::map<std::string, std::vector<Given>> all = [] {
    Shapes gemma;
    add_gemma2(gemma, "", {small_lumina2.text, 3, 2, 96, 384});
    return std::map<std::string, std::vector<Given>>{{"denoiser", filled(small_lumina2.shapes())},
                                                     {"vae", golden_weights("vae_flux_encode")},
                                                     {"gemma2", filled(gemma)}};
  }();
  return all;
}

// A file for each component.
ModelConfig write_separate(const fs::path& folder) {
  fs::create_directories(folder);
  for (const auto& [name, tensors] : components()) write_file(folder / (name + ".safetensors"), tensors);
  ModelConfig config = single(folder / "denoiser.safetensors");
  config.given["vae_path"] = {folder / "vae.safetensors"};
  config.given["gemma2_path"] = {folder / "gemma2.safetensors"};
  config.given["tokenizer_path"] = {std::string(source_dir()) + "/tests/data/gemma_small"};
  return config;
}

// ---- layouts

ModelConfig all_in_one(const fs::path& folder, const std::string& denoiser, const Change& change) {
  std::vector<Given> all;
  for (const auto& [name, prefix] : std::map<std::string, std::string>{
           {"denoiser", denoiser}, {"vae", "vae."}, {"gemma2", "text_encoders.gemma2_2b.transformer."}})
    for (const Given& t : components().at(name)) all.push_back({prefix + t.name, change(t.tensor)});
  all.push_back({denoiser + "norm_final.weight", counting({192})});  // which nothing reads
  all.push_back({"text_encoders.gemma2_2b.logit_scale", counting(Shape{})});
  write_file(folder / "all.safetensors", all);
  return single(folder / "all.safetensors");
}

ModelConfig directory(const fs::path& folder, const std::string& variant, const Change& change) {
  write_directory(folder, spec_of(plugin), components(), {"denoiser", "vae"}, variant, change);
  put(folder / "model_index.json", R"({"_class_name": "Lumina2Pipeline"})");
  return single(folder);
}

// The text encoder's file as ComfyUI's, with its tokenizer inside, or without the level above the layers.
ModelConfig with_encoder(const fs::path& folder, const std::string& level, const char* extra) {
  ModelConfig config = write_separate(folder);
  std::vector<Given> tensors = components().at("gemma2");
  for (Given& t : tensors) t.name = level + t.name.substr(std::string("model.").size());
  tensors.push_back({extra, counting({2, 2})});
  write_file(folder / "gemma2.safetensors", tensors);
  return config;
}

const Layout layouts[] = {
    {"all_in_one", [](const fs::path& p) { return all_in_one(p, "model.diffusion_model.", as_is); }},
    {"all_in_one_without_a_prefix", [](const fs::path& p) { return all_in_one(p, "", as_is); }},
    {"all_in_one_half", [](const fs::path& p) { return all_in_one(p, "model.diffusion_model.", as_half); }, as_half},
    {"folder", [](const fs::path& p) { return directory(p, "", as_is); }},
    {"folder_of_a_variant", [](const fs::path& p) { return directory(p, ".fp16", as_half); }, as_half},
    {"encoder_without_its_head_level", [](const fs::path& p) { return with_encoder(p, "", "lm_head.weight"); }},
    {"encoder_with_its_tokenizer", [](const fs::path& p) { return with_encoder(p, "model.", "spiece_model"); }},
};

class Lumina2Layouts : public testing::TestWithParam<Layout> {};

TEST_P(Lumina2Layouts, OpenAsTheSameModel) {
  expect_same_model(plugin, GetParam(), [](const fs::path& folder) { return write_separate(folder); },
                    {{"denoiser", {{"batch", 1}, {"height", 8}, {"width", 12}, {"text_length", 40}}},
                     {"conditioner", {{"batch", 2}, {"gemma2.length", 9}}},
                     {"vae.encode", {{"batch", 1}, {"height", 64}, {"width", 48}}},
                     {"vae.decode", {{"batch", 1}, {"height", 8}, {"width", 6}}}});
}

INSTANTIATE_TEST_SUITE_P(All, Lumina2Layouts, testing::ValuesIn(layouts), layout_name);

// ---- what is not Lumina 2, or not whole

const WrongModel wrongs[] = {
    {"further_channels",
     [](Shapes& s) {
       s["x_embedder.weight"].shape = {192, 132};
     },
     "x_embedder.weight: expected as many columns as final_layer.linear has rows, 64 (patches of 2x2), found 132"},
    {"heads", [](Shapes& s) { s["layers.0.attention.q_norm.weight"].shape = {64}; },
     "layers.0.attention.q_norm.weight: expected a multiple of 6 (pairs on three rotary axes), found 64"},
    {"groups",
     [](Shapes& s) {
       s["layers.0.attention.qkv.weight"].shape = {300, 192};
     },
     "layers.0.attention.qkv.weight: expected 192 rows of q and groups of them for k and v, in heads of 96, found 300"},
    {"no_refiner", [](Shapes& s) { s.erase("noise_refiner.0.attention.qkv.weight"); },
     "missing tensor noise_refiner.0.attention.qkv.weight"},
    {"norm_of_keys", [](Shapes& s) { s["layers.1.attention.k_norm.weight"].shape = {64}; },
     "layers.1.attention.k_norm.weight: expected shape [96], found [64]"},
    {"modulation",
     [](Shapes& s) {
       s["layers.0.adaLN_modulation.1.weight"].shape = {768, 96};
     },
     "layers.0.adaLN_modulation.1.weight: expected shape [768, 64], found [768, 96]"},
    {"text_width",
     [](Shapes& s) {
       add_gemma2(s, "gemma2:", {96, 2, 2, 128, 60});
     },
     "cap_embedder.0.weight takes 64 columns, but gemma2 gives 96: the files do not belong together"},
    {"encoder_of_other_heads",
     [](Shapes& s) {
       add_gemma2(s, "gemma2:", {64, 2, 2, 128, 60});
       s["gemma2:model.layers.1.self_attn.k_proj.weight"].shape = {128, 64};
     },
     "gemma2:model.layers.1.self_attn: 512 rows of q_proj and 128 of k_proj are not groups of heads of 256"},
    {"encoder_without_a_norm",
     [](Shapes& s) {
       add_gemma2(s, "gemma2:", {64, 2, 2, 128, 60});
       s.erase("gemma2:model.layers.0.post_feedforward_layernorm.weight");
     },
     "missing tensor gemma2:model.layers.0.post_feedforward_layernorm.weight"},
};

TEST(Lumina2, WrongTensorsAreNamed) { expect_refused(plugin, small_lumina2.shapes(), wrongs); }

const WrongModel relatives[] = {
    {"z_image",
     [](Shapes& s) {
       s["cap_pad_token"] = {DType::bf16, {1, 192}};
     },
     "this is a Z-Image model"},
    {"newbie", [](Shapes& s) { add_norm(s, "clip_text_pooled_proj.0", 64); }, "this is a NewBie model"},
    {"omnigen_2", [](Shapes& s) { add_norm(s, "ref_image_refiner.0.ffn_norm1", 192); }, "this is an OmniGen2 model"},
};

TEST(Lumina2, RelativesAreRefusedByName) { expect_files_refused({plugin}, small_lumina2.shapes(), relatives); }

// ---- prompts

std::vector<int32_t> ids_of(const ModelConfig& config, const std::string& prompt) {
  const Model model(built_plugins(), config, "");
  const Tokens tokens = *PromptTokens(model).of(prompt);
  const std::span<const int32_t> ids = tokens.at("gemma2.input_ids").as<int32_t>(),
                                 mask = tokens.at("gemma2.attention_mask").as<int32_t>();
  EXPECT_EQ(ids.size(), 256u);
  return {ids.begin(), ids.begin() + std::ranges::count(mask, 1)};
}

// Behind the begin token: the words of the system prompt, its marker, and the prompt's.
TEST(Lumina2, PromptsStandBehindTheSystemPrompt) {
  const TempDir dir;
  ModelConfig config = write_separate(dir.path());
  constexpr int32_t begin = 2, a = 325, space = 260, cat = 357;
  config.given["system_prompt"] = {"none"};
  EXPECT_EQ(ids_of(config, "a cat"), (std::vector<int32_t>{begin, a, space, cat}));
  EXPECT_EQ(ids_of(config, ""), (std::vector<int32_t>{begin}));
  const std::string own = "Say \"it\" \\ so:\n";
  const std::vector<int32_t> with_marker = ids_of(config, own + " <Prompt Start> a cat");
  config.given["system_prompt"] = {own};
  EXPECT_EQ(ids_of(config, "a cat"), with_marker);
  config.given["system_prompt"] = {"none"};
  const std::vector<int32_t> usual =
      ids_of(config,
             "You are an assistant designed to generate superior images with the superior degree of image-text "
             "alignment based on textual prompts or user prompts. <Prompt Start> a cat");
  config.given.erase("system_prompt");
  EXPECT_EQ(ids_of(config, "a cat"), usual);
}

// The other programs have positions for 299 tokens.
TEST(Lumina2, LongerTextsAreRefused) {
  const TempDir dir;
  ModelConfig config = write_separate(dir.path());
  config.max_sequence_length = 300;
  EXPECT_THAT(error_of([&] { const Model model(built_plugins(), config, ""); }),
              HasSubstr("model.max_sequence_length: 'lumina2' takes at most 299 tokens, found 300"));
}

// ---- texts of a batch

// Each sample of a batch is what it is alone, however many rows there are and whatever stands in those that are not
// there. Grids of 4 x 6 and, with odd sides, of 1 x 7 and 5 x 3 patches.
TEST(Lumina2, TextsOfABatchDoNotMeet) {
  const TempDir dir;
  const Model model(built_plugins(), write_separate(dir.path()), "");
  expect_texts_apart(model, {{8, 12}, {2, 14}, {10, 6}});
}

// ---- LoRA files

// Names of diffusers stand for rows of qkv, of which q has more than k and v.
TEST(Lumina2, NamesOfDiffusersAreRowsOfQkv) {
  std::map<std::string, Desc> weights;
  for (const auto& [name, desc] : full_lumina2.shapes()) weights[name] = desc;
  const LoraNameTable names(spec_of(plugin), weights);
  for (const auto& [name, first, rows] :
       {std::tuple{"to_q", 0, 2304}, std::tuple{"to_k", 2304, 768}, std::tuple{"to_v", 3072, 768}}) {
    const LoraPlace* place = names.find(std::string("transformer.layers.0.attn.") + name);
    ASSERT_NE(place, nullptr) << name;
    EXPECT_EQ(place->native, "layers.0.attention.qkv");
    EXPECT_EQ(place->first_row, first) << name;
    EXPECT_EQ(place->rows, rows) << name;
  }
}

// ---- full size

TEST(Lumina2, FullSizeGraphAndLoraModules) {
  const Shapes shapes = full_lumina2.shapes();
  EXPECT_EQ(shapes.size(), 399u);
  EXPECT_EQ(parameters_of(shapes), 2609769152);
  const Described model(plugin, shapes);
  EXPECT_EQ(model.confidence(), 100);
  EXPECT_EQ(model.recipe().sampling.schedule.shift, 6.0);
  EXPECT_EQ(model.recipe().timestep.shift, 6.0);
  Graph graph = model.denoiser({{"batch", 1}, {"height", 128}, {"width", 96}, {"text_length", 256}});
  EXPECT_EQ(graph.desc(graph.outputs.at("output")).shape, (Shape{1, 128, 96, 16}));
  std::set<std::string> used;
  for (const auto& [name, value] : graph.params) used.insert(name);
  for (const auto& [name, desc] : shapes) EXPECT_TRUE(used.contains(name)) << name;
  Graph again = graph;
  EXPECT_EQ(adapt(graph, AdapterSelection({}, model.recipe(), 1), true).size(), 178u);  // 26 + 2 of six, 2 of five
  NetworkConfig as_sd_scripts;
  as_sd_scripts.target_modules = {R"((layers|noise_refiner|context_refiner|final_layer)\..*)"};
  EXPECT_EQ(adapt(again, AdapterSelection(as_sd_scripts, model.recipe(), 1), true).size(), 180u);
}

}  // namespace
}  // namespace lh::test::lumina2_test
