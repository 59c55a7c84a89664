// HiDream-I1 beyond its golden cases: every layout of files, refusals, prompts, variants, names in LoRA files, and the
// published model by its shapes.
#include <gmock/gmock.h>

#include <set>

#include "compile/adapter_selection.h"
#include "encode/prompt_tokens.h"
#include "io/lora_names.h"
#include "passes/adapt.h"
#include "support/flux2_shapes.h"
#include "support/hidream_shapes.h"
#include "support/layouts.h"
#include "support/paths.h"
#include "support/wrong_models.h"

namespace lh::test::hidream_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const char* const plugin = "hidream";
const std::string tokenizer = std::string(source_dir()) + "/tests/data/llama_small";

// A whole small model whose parts fit each other: native tensors of each component.
const std::map<std::string, std::vector<Given>>& components() {
  static const std::map<std::string, std::vector<Given>> all = [] {
    std::map<std::string, std::vector<Given>> parts = small_hidream_parts();
    parts["denoiser"] = filled(small_hidream.shapes());
    return parts;
  }();
  return all;
}

// A file for each component, as ComfyUI has them.
ModelConfig write_separate(const fs::path& folder) {
  fs::create_directories(folder);
  for (const auto& [name, tensors] : components()) write_file(folder / (name + ".safetensors"), tensors);
  ModelConfig config = single(folder / "denoiser.safetensors");
  for (const auto& [key, name] : std::map<std::string, std::string>{{"vae_path", "vae"},
                                                                    {"clip_path", "clip_l"},
                                                                    {"clip_g_path", "clip_g"},
                                                                    {"t5_path", "t5"},
                                                                    {"llama3_path", "llama3"}})
    config.given[key] = {folder / (name + ".safetensors")};
  config.given["tokenizer_path"] = {tokenizer};
  return config;
}

// ---- layouts

ModelConfig all_in_one(const fs::path& folder) {
  write_small_hidream(folder / "all.safetensors");
  ModelConfig config = single(folder / "all.safetensors");
  config.given["tokenizer_path"] = {tokenizer};
  return config;
}

// A diffusers directory as published: Llama is not in it, but in a folder of its own, with its tokenizer.
ModelConfig directory(const fs::path& folder, const std::string& variant, const Change& change) {
  std::map<std::string, std::vector<Given>> published = components();
  std::vector<Given> llama = published.extract("llama3").mapped();
  for (Given& t : llama) t.tensor = change(t.tensor);
  write_directory(folder, spec_of(plugin), published, {"vae"}, variant, change);
  put(folder / "model_index.json", R"({"_class_name": "HiDreamImagePipeline"})");
  const fs::path own = folder.parent_path() / "llama";
  write_shards(own, "model", "", llama);
  fs::copy(tokenizer + "/tokenizer.json", own);
  ModelConfig config = single(folder);
  config.given["llama3_path"] = config.given["tokenizer_path"] = {own};
  return config;
}

ModelConfig behind_a_prefix(const fs::path& folder) {
  ModelConfig config = write_separate(folder);
  std::vector<Given> tensors;
  for (const Given& t : components().at("denoiser")) tensors.push_back({"model.diffusion_model." + t.name, t.tensor});
  write_file(folder / "denoiser.safetensors", tensors);
  return config;
}

const Layout layouts[] = {
    {"all_in_one", all_in_one},
    {"behind_a_prefix", behind_a_prefix},
    {"folder", [](const fs::path& p) { return directory(p, "", as_is); }},
    {"folder_of_a_variant", [](const fs::path& p) { return directory(p, ".fp16", as_half); }, as_half},
};

class HiDreamLayouts : public testing::TestWithParam<Layout> {};

TEST_P(HiDreamLayouts, OpenAsTheSameModel) {
  expect_same_model(
      plugin, GetParam(), [](const fs::path& folder) { return write_separate(folder); },
      {{"denoiser", {{"batch", 1}, {"height", 8}, {"width", 12}, {"t5_length", 5}, {"llama3_length", 7}}},
       {"conditioner",
        {{"batch", 2}, {"clip_l.length", 128}, {"clip_g.length", 128}, {"t5.length", 9}, {"llama3.length", 11}}},
       {"vae.encode", {{"batch", 1}, {"height", 64}, {"width", 48}}},
       {"vae.decode", {{"batch", 1}, {"height", 8}, {"width", 6}}}});
}

INSTANTIATE_TEST_SUITE_P(All, HiDreamLayouts, testing::ValuesIn(layouts), layout_name);

// ---- what is not HiDream-I1, or not whole

void set(Shapes& shapes, const std::string& name, const Shape& shape) { shapes[name] = {DType::bf16, shape}; }

const WrongModel wrongs[] = {
    {"heads",
     [](Shapes& s) {
       set(s, "x_embedder.proj.weight", {200, 64});
     },
     "x_embedder.proj.weight: expected a multiple of 128 rows (heads of 128), found 200"},
    {"further_channels",
     [](Shapes& s) {
       set(s, "x_embedder.proj.weight", {128, 128});
     },
     "x_embedder.proj.weight: expected shape [128, 64], found [128, 128]"},
    {"no_text", [](Shapes& s) { s.erase("double_stream_blocks.0.block.ff_t.w3.weight"); },
     "missing tensor double_stream_blocks.0.block.ff_t.w3.weight"},
    {"norm_of_heads", [](Shapes& s) { set(s, "single_stream_blocks.1.block.attn1.q_rms_norm.weight", {64}); },
     "single_stream_blocks.1.block.attn1.q_rms_norm.weight: expected shape [128], found [64]"},
    {"one_expert",
     [](Shapes& s) {
       for (const char* e : {"1", "2", "3"})
         s.erase(std::string("single_stream_blocks.0.block.ff_i.experts.") + e + ".w1.weight");
     },
     "single_stream_blocks.0.block.ff_i.experts.*: expected 2 experts or more, found 1"},
    {"gate",
     [](Shapes& s) {
       set(s, "single_stream_blocks.0.block.ff_i.gate.weight", {6, 128});
     },
     "single_stream_blocks.0.block.ff_i.gate.weight: expected shape [4, 128], found [6, 128]"},
    {"captions", [](Shapes& s) { s.erase("caption_projection.3.linear.weight"); },
     "missing tensor caption_projection.3.linear.weight"},
    {"short_clip", [](Shapes& s) { add_projected_clip(s, "clip_l:", 64, 77); },
     "clip_l:text_model.embeddings.position_embedding.weight: expected 128 rows or more, found 77; give HiDream's own "
     "CLIP, such as clip_l_hidream.safetensors (clip_path)"},
    {"clip_without_projection",
     [](Shapes& s) {
       add_projected_clip(s, "clip_g:", 64);
       s.erase("clip_g:text_projection.weight");
     },
     "missing tensor clip_g:text_projection.weight"},
    {"pooled_width",
     [](Shapes& s) {
       add_projected_clip(s, "clip_l:", 64);
       add_projected_clip(s, "clip_g:", 128);
     },
     "p_embedder.pooled_embedder.linear_1.weight takes 128 columns, but clip_l and clip_g together give 192"},
    {"t5_width", [](Shapes& s) { add_t5(s, "t5:", 128, 1, 60); },
     "caption_projection.3.linear.weight takes 64 columns, but t5 gives 128: the files do not belong together"},
    {"llama_layers",
     [](Shapes& s) {
       add_mistral(s, "llama3:", {64, 2, 2, 64, 60});
       set(s, "llama3:model.norm.weight", {64});
     },
     "llama3:model.layers.*: expected 3 layers or more, found 2"},
};

TEST(HiDream, WrongTensorsAreNamed) { expect_refused(plugin, small_hidream.shapes(), wrongs); }

// The tensors are those of HiDream-I1.
TEST(HiDream, TheEditingModelIsRefusedByItsFolder) {
  const TempDir dir;
  const ModelConfig config = directory(dir / "model", "", as_is);
  put(dir / "model" / "model_index.json", R"({"_class_name": "HiDreamImageEditingPipeline"})");
  EXPECT_THAT(error_of([&] { const Model model(built_plugins(), config, ""); }),
              HasSubstr("this is HiDream-E1, which is shown the image that it changes (model_index.json); HiDream-I1 "
                        "is trained here"));
}

// ---- prompts

TEST(HiDream, FourEncodersReadAPrompt) {
  const TempDir dir;
  const Model model(built_plugins(), write_separate(dir.path()), "");
  PromptTokens tokens(model);
  const std::shared_ptr<const Tokens> of = tokens.of("a cat");
  const auto row = [&](const std::string& name) {
    const std::span<const int32_t> ids = of->at(name).as<int32_t>();
    EXPECT_EQ(ids.size(), 128u) << name;
    return std::vector(ids.begin(), ids.begin() + 6);
  };
  EXPECT_EQ(row("clip_l.input_ids"), (std::vector{49406, 320, 2368, 49407, 49407, 49407}));
  EXPECT_EQ(row("clip_g.input_ids"), (std::vector{49406, 320, 2368, 49407, 0, 0}));
  EXPECT_EQ(row("t5.input_ids"), (std::vector{3, 9, 1712, 1, 0, 0}));
  EXPECT_EQ(row("t5.attention_mask"), (std::vector{1, 1, 1, 1, 0, 0}));
  constexpr int32_t begin = 300, a = 97, cat = 299, pad = 304;  // of the small vocabulary
  EXPECT_EQ(row("llama3.input_ids"), (std::vector{begin, a, cat, pad, pad, pad}));
  EXPECT_EQ(row("llama3.attention_mask"), (std::vector{1, 1, 1, 0, 0, 0}));
}

// ---- variants

TEST(HiDream, VariantsAreSampledAsTheirVendorDoes) {
  const TempDir dir;
  ModelConfig config = write_separate(dir.path());
  struct Row {
    const char *variant, *sampler;
    int64_t steps;
    double guidance, shift;
  };
  for (const Row& row : {Row{"", "uni_pc", 50, 5, 3}, Row{"full", "uni_pc", 50, 5, 3}, Row{"dev", "lcm", 28, 1, 6},
                         Row{"fast", "lcm", 16, 1, 3}}) {
    if (*row.variant != '\0') config.given["variant"] = {row.variant};
    const Model model(built_plugins(), config, "");
    const Recipe& recipe = model.recipe();
    EXPECT_EQ(recipe.variant, *row.variant == '\0' ? "full" : row.variant);
    EXPECT_EQ(recipe.sampling.sampler, row.sampler);
    EXPECT_EQ(recipe.sampling.steps, row.steps);
    EXPECT_EQ(recipe.sampling.guidance, row.guidance);
    EXPECT_EQ(recipe.sampling.schedule.shift, row.shift);
    EXPECT_EQ(recipe.timestep.shift, 3);
  }
}

// ---- LoRA files

// Names of ai-toolkit and ComfyUI, of diffusers, and of SimpleTuner.
TEST(HiDream, NamesOfOtherProgramsAreRead) {
  std::map<std::string, Desc> weights;
  for (const auto& [name, desc] : full_hidream.shapes()) weights[name] = desc;
  const LoraNameTable names(spec_of(plugin), weights);
  for (const auto& [name, native] : {std::pair{"diffusion_model.double_stream_blocks.3.block.attn1.to_q_t",
                                               "double_stream_blocks.3.block.attn1.to_q_t"},
                                     std::pair{"transformer.single_stream_blocks.31.block.ff_i.experts.2.w3",
                                               "single_stream_blocks.31.block.ff_i.experts.2.w3"},
                                     std::pair{"lora_unet_single_stream_blocks_0_block_ff_i_shared_experts_w2",
                                               "single_stream_blocks.0.block.ff_i.shared_experts.w2"},
                                     std::pair{"lycoris_double_stream_blocks_15_block_adaLN_modulation_1",
                                               "double_stream_blocks.15.block.adaLN_modulation.1"}}) {
    const LoraPlace* place = names.find(name);
    ASSERT_NE(place, nullptr) << name;
    EXPECT_EQ(place->native, native);
  }
}

// ---- full size

TEST(HiDream, FullSizeGraphAndLoraModules) {
  const Shapes shapes = full_hidream.shapes();
  EXPECT_EQ(parameters_of(shapes), 17105733184);
  const Described model(plugin, shapes);
  EXPECT_EQ(model.confidence(), 100);
  Graph graph =
      model.denoiser({{"batch", 1}, {"height", 16}, {"width", 24}, {"t5_length", 128}, {"llama3_length", 128}});
  EXPECT_EQ(graph.desc(graph.inputs.at("llama3")).shape, (Shape{1, 128, 32 * 4096}));
  EXPECT_EQ(graph.desc(graph.outputs.at("output")).shape, (Shape{1, 16, 24, 16}));
  std::set<std::string> used;
  for (const auto& [name, value] : graph.params) used.insert(name);
  for (const auto& [name, desc] : shapes) EXPECT_TRUE(used.contains(name)) << name;
  Graph again = graph;
  EXPECT_EQ(adapt(graph, AdapterSelection({}, model.recipe(), 1), true).size(), 16u * 27 + 32 * 20);
  NetworkConfig as_ai_toolkit;
  as_ai_toolkit.ignore_if_contains = {"ff_i.experts", "ff_i.gate"};
  EXPECT_EQ(adapt(again, AdapterSelection(as_ai_toolkit, model.recipe(), 1), true).size(), 16u * 15 + 32 * 8);
}

}  // namespace
}  // namespace lh::test::hidream_test
