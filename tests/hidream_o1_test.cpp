// HiDream-O1-Image beyond its golden cases: layouts of files, refusals, prompts, variants, names in LoRA files, and the
// published model by its shapes.
#include <gmock/gmock.h>

#include <set>

#include "compile/adapter_selection.h"
#include "encode/prompt_tokens.h"
#include "io/lora_names.h"
#include "passes/adapt.h"
#include "support/hidream_o1_shapes.h"
#include "support/layouts.h"
#include "support/paths.h"
#include "support/wrong_models.h"

namespace lh::test::hidream_o1_test {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;

const char* const plugin = "hidream_o1";

const std::vector<Given>& small() {
  static const std::vector<Given> all = filled(small_hidream_o1.shapes());
  return all;
}

ModelConfig alone(const fs::path& folder, const std::string& prefix) {
  std::vector<Given> tensors;
  for (const Given& t : small()) tensors.push_back({prefix + t.name, t.tensor});
  // What it sees pictures with and speaks with, which is read past.
  tensors.push_back({prefix + "visual.merger.norm.weight", small().back().tensor});
  if (prefix == "model.") tensors.push_back({"lm_head.weight", small().back().tensor});
  write_file(folder / "model.safetensors", tensors);
  return single(folder / "model.safetensors");
}

const Layout layouts[] = {
    {"behind_a_prefix", [](const fs::path& p) { return alone(p, "model.diffusion_model."); }},
    {"as_its_authors_name_it", [](const fs::path& p) { return alone(p, "model."); }},
    {"folder_of_its_authors",
     [](const fs::path& p) {
       alone(p, "model.");
       return single(p);
     }},
};

class HiDreamO1Layouts : public testing::TestWithParam<Layout> {};

TEST_P(HiDreamO1Layouts, OpenAsTheSameModel) {
  expect_same_model(plugin, GetParam(),
                    [](const fs::path& folder) {
                      fs::create_directories(folder);
                      return alone(folder, "");
                    },
                    {{"denoiser", {{"batch", 1}, {"height", 64}, {"width", 96}, {"text_length", 7}}},
                     {"conditioner", {{"batch", 2}, {"denoiser.length", 9}}}});
}

INSTANTIATE_TEST_SUITE_P(All, HiDreamO1Layouts, testing::ValuesIn(layouts), layout_name);

void set(Shapes& shapes, const std::string& name, const Shape& shape) { shapes[name] = {DType::bf16, shape}; }

const WrongModel wrongs[] = {
    {"patches",
     [](Shapes& s) {
       set(s, "final_layer2.linear.weight", {768, 64});
     },
     "final_layer2.linear.weight: expected shape [3072, *], found [768, 64]"},
    {"no_words", [](Shapes& s) { s.erase("language_model.embed_tokens.weight"); },
     "missing tensor language_model.embed_tokens.weight"},
    {"heads",
     [](Shapes& s) {
       set(s, "language_model.layers.1.self_attn.k_proj.weight", {192, 64});
     },
     "language_model.layers.1.self_attn: 256 rows of q_proj and 192 of k_proj are not groups of heads of 128"},
    {"norm_of_heads", [](Shapes& s) { set(s, "language_model.layers.0.self_attn.q_norm.weight", {64}); },
     "language_model.layers.0.self_attn.q_norm.weight: expected shape [128], found [64]"},
    {"no_gate", [](Shapes& s) { s.erase("language_model.layers.0.mlp.gate_proj.weight"); },
     "missing tensor language_model.layers.0.mlp.gate_proj.weight"},
};

TEST(HiDreamO1, WrongTensorsAreNamed) { expect_refused(plugin, small_hidream_o1.shapes(), wrongs); }

// The template of the authors' programs; the last token is the place of <|boi_token|>.
TEST(HiDreamO1, APromptEndsWithThePlaceOfTheImage) {
  const TempDir dir;
  const Model model(built_plugins(), alone(dir.path(), ""), "");
  PromptTokens tokens(model);
  const std::shared_ptr<const Tokens> of = tokens.of("a cat");
  const std::span<const int32_t> ids = of->at("denoiser.input_ids").as<int32_t>(),
                                 mask = of->at("denoiser.attention_mask").as<int32_t>();
  constexpr int32_t im_start = 151644, im_end = 151645, vision_start = 151652, pad = 151643, line = 198;
  EXPECT_THAT(std::vector(ids.begin(), ids.begin() + 12),
              ElementsAre(im_start, 872, line, 64, 8251, im_end, line, im_start, 77091, line, vision_start, pad));
  EXPECT_THAT(std::vector(mask.begin() + 10, mask.begin() + 13), ElementsAre(1, 0, 0));
}

TEST(HiDreamO1, VariantsAreSampledAsTheirAuthorsDo) {
  const TempDir dir;
  ModelConfig config = alone(dir.path(), "");
  struct Row {
    const char *variant, *sampler;
    int64_t steps;
    double guidance, noise, clip;
  };
  for (const Row& row :
       {Row{"", "uni_pc", 50, 5, 8, 0}, Row{"full", "uni_pc", 50, 5, 8, 0}, Row{"dev", "lcm", 28, 1, 7.5, 2.5}}) {
    if (*row.variant != '\0') config.given["variant"] = {row.variant};
    const Model model(built_plugins(), config, "");
    const Recipe& recipe = model.recipe();
    EXPECT_EQ(recipe.variant, *row.variant == '\0' ? "full" : row.variant);
    EXPECT_EQ(recipe.sampling.sampler, row.sampler);
    EXPECT_EQ(recipe.sampling.steps, row.steps);
    EXPECT_EQ(recipe.sampling.guidance, row.guidance);
    EXPECT_EQ(recipe.noise.scale, row.noise);
    EXPECT_EQ(recipe.noise.clip, row.clip);
  }
}

// Of ComfyUI, ai-toolkit in both of its spellings, and musubi-tuner.
TEST(HiDreamO1, NamesOfOtherProgramsAreRead) {
  std::map<std::string, Desc> weights;
  for (const auto& [name, desc] : full_hidream_o1.shapes()) weights[name] = desc;
  const LoraNameTable names(spec_of(plugin), weights);
  for (const char* name : {"lora_unet_language_model_layers_35_self_attn_q_proj",
                           "diffusion_model.language_model.layers.35.self_attn.q_proj",
                           "transformer.model.language_model.layers.35.self_attn.q_proj",
                           "lora_unet_model_language_model_layers_35_self_attn_q_proj"}) {
    const LoraPlace* place = names.find(name);
    ASSERT_NE(place, nullptr) << name;
    EXPECT_EQ(place->native, "language_model.layers.35.self_attn.q_proj");
  }
}

TEST(HiDreamO1, FullSizeGraphAndLoraModules) {
  const Shapes shapes = full_hidream_o1.shapes();
  const Described model(plugin, shapes);
  EXPECT_EQ(model.confidence(), 100);
  Graph graph = model.denoiser({{"batch", 1}, {"height", 1024}, {"width", 1536}, {"text_length", 64}});
  EXPECT_EQ(graph.desc(graph.outputs.at("output")).shape, (Shape{1, 1024, 1536, 3}));
  std::set<std::string> used;
  for (const auto& [name, value] : graph.params) used.insert(name);
  for (const auto& [name, desc] : shapes)  // the words are the conditioner's
    EXPECT_EQ(used.contains(name), name != "language_model.embed_tokens.weight") << name;
  Graph again = graph;
  EXPECT_EQ(adapt(graph, AdapterSelection({}, model.recipe(), 1), true).size(), 36u * 7);
  NetworkConfig everything;
  everything.target_modules = {".*"};
  EXPECT_EQ(adapt(again, AdapterSelection(everything, model.recipe(), 1), true).size(), 36u * 7 + 5);
}

}  // namespace
}  // namespace lh::test::hidream_o1_test
