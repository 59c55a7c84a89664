// Ideogram 4 beyond its golden cases: every layout of files, refusals, prompts, levels, latents, sizes and texts of a
// batch, and the published model by its shapes.
#include <gmock/gmock.h>

#include <cmath>
#include <fstream>
#include <set>

#include "compile/adapter_selection.h"
#include "diffusion/sampler_choice.h"
#include "encode/text_encoding.h"
#include "passes/adapt.h"
#include "run/plan.h"
#include "support/device.h"
#include "support/ideogram4_shapes.h"
#include "support/layouts.h"
#include "support/log.h"
#include "support/model_shapes.h"
#include "support/paths.h"
#include "support/texts_apart.h"
#include "support/wrong_models.h"
#include "support/z_image_shapes.h"

namespace lh::test::ideogram4_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const char* const plugin = "ideogram4";

// A whole small model whose parts fit each other: native tensors of each component.
const std::map<std::string, std::vector<Given>>& components() {
  static const std::map<std::string, std::vector<Given>> all = [] {
    Shapes text;
    add_ideogram4_encoder(text, "", 60);
    return std::map<std::string, std::vector<Given>>{{"denoiser", filled(small_ideogram4.shapes())},
                                                     {"vae", golden_weights("vae_flux2_encode")},
                                                     {"qwen3_vl", filled(text)}};
  }();
  return all;
}

// A file for each component.
ModelConfig write_separate(const fs::path& folder) {
  fs::create_directories(folder);
  for (const auto& [name, tensors] : components()) write_file(folder / (name + ".safetensors"), tensors);
  ModelConfig config = single(folder / "denoiser.safetensors");
  for (const std::string name : {"vae", "qwen3_vl"}) config.given[name + "_path"] = {folder / (name + ".safetensors")};
  return config;
}

// ---- layouts

const Change as_fp8 = [](const HostTensor& t) { return t.desc.shape.rank() == 2 ? as_type(t, DType::f8_e4m3) : t; };

ModelConfig all_in_one(const fs::path& folder, const std::string& denoiser, const Change& change) {
  std::vector<Given> all;
  for (const auto& [name, prefix] : std::map<std::string, std::string>{
           {"denoiser", denoiser}, {"vae", "vae."}, {"qwen3_vl", "text_encoders.qwen3vl_8b.transformer."}})
    for (const Given& t : components().at(name)) all.push_back({prefix + t.name, change(t.tensor)});
  all.push_back({"text_encoders.qwen3vl_8b.transformer.visual.patch_embed.proj.weight", counting({2, 2})});
  write_file(folder / "all.safetensors", all);
  return single(folder / "all.safetensors");
}

ModelConfig directory(const fs::path& folder, const std::string& variant, const Change& change) {
  write_directory(folder, spec_of(plugin), components(), {"denoiser", "vae"}, variant, change);
  return single(folder);
}

// The text encoder in a file whose tensors are called otherwise.
ModelConfig with_encoder(const fs::path& folder, const std::string& in_place_of_model, const std::string& visual) {
  ModelConfig config = write_separate(folder);
  std::vector<Given> tensors = components().at("qwen3_vl");
  for (Given& t : tensors) t.name = in_place_of_model + t.name.substr(std::string("model.").size());
  tensors.push_back({visual + "patch_embed.proj.weight", counting({2, 2})});
  write_file(folder / "qwen3_vl.safetensors", tensors);
  return config;
}

const Layout layouts[] = {
    {"all_in_one", [](const fs::path& p) { return all_in_one(p, "model.diffusion_model.", as_is); }},
    {"all_in_one_without_a_prefix", [](const fs::path& p) { return all_in_one(p, "", as_is); }},
    {"all_in_one_in_fp8", [](const fs::path& p) { return all_in_one(p, "model.diffusion_model.", as_fp8); }, as_fp8},
    {"folder", [](const fs::path& p) { return directory(p, "", as_is); }},
    {"folder_of_a_variant", [](const fs::path& p) { return directory(p, ".fp16", as_half); }, as_half},
    // The vendor's repository: the folders of diffusers, the transformer under its original names.
    {"folder_with_the_original_names",
     [](const fs::path& p) {
       ModelConfig config = directory(p, "", as_is);
       fs::remove_all(p / "transformer");
       fs::create_directories(p / "transformer");
       write_file(p / "transformer" / "diffusion_pytorch_model.safetensors", components().at("denoiser"));
       return config;
     }},
    {"denoiser_with_the_names_of_diffusers",
     [](const fs::path& p) {
       ModelConfig config = write_separate(p);
       std::vector<Given> tensors;
       for (const Given& t : components().at("denoiser"))
         for (const Given& part : in_diffusers(*spec_of(plugin).component("denoiser"), t, components().at("denoiser")))
           tensors.push_back(part);
       write_file(p / "denoiser.safetensors", tensors);
       return config;
     }},
    {"encoder_that_also_sees",
     [](const fs::path& p) { return with_encoder(p, "model.language_model.", "model.visual."); }},
    {"encoder_without_a_head", [](const fs::path& p) { return with_encoder(p, "language_model.", "visual."); }},
};

class Ideogram4Layouts : public testing::TestWithParam<Layout> {};

TEST_P(Ideogram4Layouts, OpenAsTheSameModel) {
  expect_same_model(plugin, GetParam(), [](const fs::path& folder) { return write_separate(folder); },
                    {{"denoiser", {{"batch", 1}, {"height", 3}, {"width", 5}, {"text_length", 40}}},
                     {"conditioner", {{"batch", 2}, {"qwen3_vl.length", 40}}},
                     {"vae.encode", {{"batch", 1}, {"height", 64}, {"width", 48}}},
                     {"vae.decode", {{"batch", 1}, {"height", 3}, {"width", 5}}}});
}

INSTANTIATE_TEST_SUITE_P(All, Ideogram4Layouts, testing::ValuesIn(layouts), layout_name);

// The vendor's fp8 has a factor for each row, ComfyUI's one for each weight.
TEST(Ideogram4, FactorsOfEitherKind) {
  const TempDir dir;
  ModelConfig config = write_separate(dir.path());
  std::vector<Given> tensors;
  for (const Given& t : components().at("denoiser")) {
    const bool weight = t.tensor.desc.shape.rank() == 2 && t.name.starts_with("layers.");
    tensors.push_back({t.name, weight ? as_type(t.tensor, DType::f8_e4m3) : t.tensor});
    if (!weight) continue;
    const std::string layer = t.name.substr(0, t.name.size() - std::string("weight").size());
    const bool rows = t.name.ends_with(".qkv.weight");
    tensors.push_back({layer + "weight_scale", rows ? counting({t.tensor.desc.shape[0]}) : floats({}, {0.5f})});
  }
  write_file(dir / "denoiser.safetensors", tensors);
  const Model model(built_plugins(), config, "");
  EXPECT_EQ(model.id(), plugin);
  for (const char* layer : {"layers.0.attention.qkv", "layers.1.feed_forward.w2"})
    EXPECT_TRUE(model.checkpoint().stored_fp8(std::string(layer) + ".weight")) << layer;
}

TEST(Ideogram4, TheOneThatSeesNoTextIsRefused) {
  const TempDir dir;
  ModelConfig config = write_separate(dir.path());
  write_file(dir / "denoiser.safetensors", components().at("denoiser"), {{"model_type", "ideogram4_cond"}});
  EXPECT_EQ(Model(built_plugins(), config, "").id(), plugin);
  write_file(dir / "denoiser.safetensors", components().at("denoiser"), {{"model_type", "ideogram4_uncond"}});
  EXPECT_THAT(error_of([&] { Model(built_plugins(), config, ""); }),
              HasSubstr("this is the transformer of Ideogram 4 that sees no text"));
}

// ---- what is not whole

void set(Shapes& shapes, const char* name, const Shape& shape) { shapes[name] = {DType::bf16, shape}; }

const WrongModel wrongs[] = {
    {"width",
     [](Shapes& s) {
       set(s, "input_proj.weight", {200, 128});
     },
     "input_proj.bias: expected shape [200], found [256]"},
    {"other_latents",
     [](Shapes& s) {
       set(s, "input_proj.weight", {256, 64});
       set(s, "final_layer.linear.weight", {64, 256});
       set(s, "final_layer.linear.bias", {64});
     },
     "input_proj.weight: expected 128 columns (patches of 2x2 of 32 channels), found 64"},
    {"no_mlp", [](Shapes& s) { s.erase("layers.1.feed_forward.w3.weight"); },
     "missing tensor layers.1.feed_forward.w3.weight"},
    {"small_heads", [](Shapes& s) { set(s, "layers.0.attention.norm_q.weight", {64}); },
     "layers.0.attention.norm_q.weight: expected an even divisor of 256 (input_proj), at least 120, found 64"},
    {"heads_of_one_block", [](Shapes& s) { set(s, "layers.1.attention.norm_k.weight", {64}); },
     "layers.1.attention.norm_k.weight: expected shape [128], found [64]"},
    {"kinds",
     [](Shapes& s) {
       set(s, "embed_image_indicator.weight", {3, 256});
     },
     "embed_image_indicator.weight: expected shape [2, 256], found [3, 256]"},
    {"text_width",
     [](Shapes& s) {
       add_llm(s, "qwen3_vl:", {48, 7, 2, 64, 60});
     },
     "llm_cond_proj.weight takes 96 columns, but 3 states of qwen3_vl give 144: the files do not belong together"},
    {"states",
     [](Shapes& s) {
       add_llm(s, "qwen3_vl:", {32, 8, 2, 64, 60});
     },
     "llm_cond_proj.weight takes 96 columns, but 4 states of qwen3_vl give 128: the files do not belong together"},
};

TEST(Ideogram4, WrongTensorsAreNamed) { expect_refused(plugin, small_ideogram4.shapes(), wrongs); }

// ---- prompts

// With the tokenizer files that ship with the program. A prompt that is too long loses its own tail, not the
// template's.
TEST(Ideogram4, PromptsStandInATemplate) {
  const TempDir dir;
  const Model model(built_plugins(), write_separate(dir.path()), "");
  Device device(tested_device());
  TextEncoding text(device, model, DType::f32, {});
  EXPECT_EQ(text.tokens().sizes().at("qwen3_vl.length"), 2048);
  const std::vector<int32_t> front{151644, 872, 198}, end{151645, 198, 151644, 77091, 198};
  const auto check = [&](const std::string& prompt, int64_t count) {
    const Tokens tokens = *text.tokens().of(prompt);
    const std::span<const int32_t> ids = tokens.at("qwen3_vl.input_ids").as<int32_t>(),
                                   mask = tokens.at("qwen3_vl.attention_mask").as<int32_t>();
    ASSERT_EQ(ids.size(), 2048u);
    EXPECT_EQ(std::ranges::count(mask, 1), count);
    EXPECT_EQ(std::vector<int32_t>(ids.begin(), ids.begin() + 3), front);  // <|im_start|> user \n
    EXPECT_EQ(std::vector<int32_t>(ids.begin() + count - 5, ids.begin() + count),
              end);  // <|im_end|> \n <|im_start|> assistant \n
  };
  check("", 8);
  check("cat", 9);
  std::string prompt;
  for (int i = 0; i < 2100; ++i) prompt += "cat ";
  check(prompt, 2048);
  EXPECT_THAT(take_warnings(), testing::ElementsAre(HasSubstr("tokens too long for qwen3_vl and is cut")));
}

// ---- levels of a run, by the recipe alone

// sigma = sigmoid(mu + 1.75 z), mu = log(sqrt(pixels) / 512), z above which a normal number lies with probability i /
// n.
TEST(Ideogram4, LevelsFollowTheSize) {
  const Recipe recipe = Described(plugin, small_ideogram4.shapes()).recipe();
  constexpr int64_t steps = 20;
  EXPECT_EQ(recipe.sampling.steps, steps);
  EXPECT_EQ(recipe.sampling.guidance, 7);
  const SamplerChoice choice = choose_sampler(built_plugins(), recipe, {});
  for (const int64_t tokens : {256, 1024, 2304, 4096, 16384}) {
    const SamplingSchedule schedule = schedule_of(choice, recipe, steps, tokens);
    ASSERT_EQ(schedule.steps(), steps);
    EXPECT_NEAR(schedule.level(0).sigma, 1 / (1 + std::exp(-9)), 1e-12);
    for (int i = 1; i < steps; ++i) {
      const double sigma = schedule.level(i).sigma, mu = std::log(static_cast<double>(tokens) / 1024) / 2;
      const double z = (std::log(sigma / (1 - sigma)) - mu) / 1.75;
      EXPECT_NEAR(0.5 * std::erfc(z / std::sqrt(2)), static_cast<double>(i) / steps, 1e-12) << tokens << " " << i;
    }
    EXPECT_EQ(schedule.level(steps).sigma, 0);
  }
}

// ---- sizes and texts

// Each sample of a batch is what it is alone, however many rows there are and whatever stands in those that are not
// there. Without a row of text the image sees itself.
TEST(Ideogram4, TextsOfABatchDoNotMeet) {
  const TempDir dir;
  const Model model(built_plugins(), write_separate(dir.path()), "");
  expect_texts_apart(model, {{4, 6}, {1, 7}, {5, 3}}, 1e-4);
}

// ---- full size

TEST(Ideogram4, FullSizeGraphAndLoraModules) {
  const Shapes shapes = full_ideogram4.shapes();
  EXPECT_EQ(shapes.size(), 458u);
  EXPECT_EQ(parameters_of(shapes), 9279288448);
  const Described model(plugin, shapes);
  EXPECT_EQ(model.confidence(), 100);
  Graph graph = model.denoiser({{"batch", 1}, {"height", 64}, {"width", 48}, {"text_length", 256}});
  EXPECT_EQ(graph.desc(graph.outputs.at("output")).shape, (Shape{1, 64, 48, 128}));
  std::set<std::string> used;
  for (const auto& [name, value] : graph.params) used.insert(name);
  for (const auto& [name, desc] : shapes) EXPECT_TRUE(used.contains(name)) << name;
  Graph again = graph;
  EXPECT_EQ(adapt(graph, AdapterSelection({}, model.recipe(), 1), true).size(), 170u);
  NetworkConfig every;  // the modulations of the blocks and the 7 outside of them, too
  every.target_modules = {".*"};
  EXPECT_EQ(adapt(again, AdapterSelection(every, model.recipe(), 1), true).size(), 211u);
}

// Qwen3-VL's language model has the shapes of Qwen3-8B; the autoencoder is Flux.2's.
TEST(Ideogram4, PublishedKeyLists) {
  if (!fs::exists(key_lists() / "qwen_3_8b.json")) GTEST_SKIP() << "no key lists in " << key_lists();
  Shapes all = full_ideogram4.shapes();
  for (const auto& [name, desc] : key_list("qwen_3_8b")) all["qwen3_vl:" + name] = desc;
  for (const auto& [name, desc] : key_list("flux2_ae")) all["vae:" + name] = desc;
  EXPECT_NO_THROW(Described(plugin, all));
}

}  // namespace
}  // namespace lh::test::ideogram4_test
