// ERNIE-Image beyond its golden cases: every layout of files, refusals, variants, prompts, levels, sizes and texts of a
// batch, and the published model by its shapes.
#include <gmock/gmock.h>

#include <cmath>
#include <set>

#include "compile/adapter_selection.h"
#include "diffusion/sampler_choice.h"
#include "encode/check_model.h"
#include "encode/text_encoding.h"
#include "passes/adapt.h"
#include "run/plan.h"
#include "support/device.h"
#include "support/ernie_image_shapes.h"
#include "support/layouts.h"
#include "support/model_shapes.h"
#include "support/paths.h"
#include "support/texts_apart.h"
#include "support/wrong_models.h"

namespace lh::test::ernie_image_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const char* const plugin = "ernie_image";

using Components = std::map<std::string, std::vector<Given>>;

// A whole small model whose parts fit each other: native tensors of each component.
const Components& components() {
  static const Components all = [] {
    Shapes text;
    add_llm(text, "", small_ministral);
    return Components{{"denoiser", filled(small_ernie_image.shapes())},
                      {"vae", golden_weights("vae_flux2_encode")},
                      {"ministral3", filled(text)}};
  }();
  return all;
}

// A file for each component.
ModelConfig write_separate(const fs::path& folder, const Components& all = components()) {
  fs::create_directories(folder);
  for (const auto& [name, tensors] : all) write_file(folder / (name + ".safetensors"), tensors);
  ModelConfig config = single(folder / "denoiser.safetensors");
  for (const std::string name : {"vae", "ministral3"})
    config.given[name + "_path"] = {folder / (name + ".safetensors")};
  config.given["tokenizer_path"] = {fs::path(test_data()) / "mistral_small"};
  return config;
}

// ---- layouts

const Change as_fp8 = [](const HostTensor& t) { return t.desc.shape.rank() == 2 ? as_type(t, DType::f8_e4m3) : t; };

ModelConfig all_in_one(const fs::path& folder, const std::string& denoiser, const Change& change) {
  std::vector<Given> all;
  for (const auto& [name, prefix] : std::map<std::string, std::string>{
           {"denoiser", denoiser}, {"vae", "vae."}, {"ministral3", "text_encoders.ministral3_3b.transformer."}})
    for (const Given& t : components().at(name)) all.push_back({prefix + t.name, change(t.tensor)});
  all.push_back({"text_encoders.ministral3_3b.transformer.tekken_model", counting({4})});
  write_file(folder / "all.safetensors", all);
  return single(folder / "all.safetensors");
}

// The language model inside of one that also sees.
Components with_eyes() {
  Components all = components();
  for (Given& t : all.at("ministral3")) t.name = "language_model." + t.name;
  for (const char* other : {"vision_tower.patch_conv.weight", "multi_modal_projector.norm.weight"})
    all.at("ministral3").push_back({other, counting({4})});
  return all;
}

ModelConfig directory(const fs::path& folder, const std::string& variant, const Change& change) {
  Components all = with_eyes();  // its autoencoder has the quant convolutions at the top
  for (Given& t : all.at("vae"))
    if (const size_t at = t.name.find("quant_conv."); at != t.name.npos)
      t.name = t.name.substr(t.name.starts_with("decoder.") ? at - 5 : at);  // post_
  write_directory(folder, spec_of(plugin), all, {"denoiser", "vae"}, variant, change);
  put(folder / "model_index.json", R"({"_class_name": "ErnieImagePipeline"})");
  return single(folder);
}

const Layout layouts[] = {
    {"all_in_one", [](const fs::path& p) { return all_in_one(p, "model.diffusion_model.", as_is); }},
    {"all_in_one_without_a_prefix", [](const fs::path& p) { return all_in_one(p, "", as_half); }, as_half},
    {"all_in_one_in_fp8", [](const fs::path& p) { return all_in_one(p, "model.diffusion_model.", as_fp8); }, as_fp8},
    {"folder", [](const fs::path& p) { return directory(p, "", as_is); }},
    {"folder_of_a_variant", [](const fs::path& p) { return directory(p, ".fp16", as_half); }, as_half},
    {"encoder_that_also_sees", [](const fs::path& p) { return write_separate(p, with_eyes()); }},
};

class ErnieImageLayouts : public testing::TestWithParam<Layout> {};

TEST_P(ErnieImageLayouts, OpenAsTheSameModel) {
  expect_same_model(
      plugin, GetParam(), [](const fs::path& folder) { return write_separate(folder); },
      {{"denoiser", {{"batch", 1}, {"height", 3}, {"width", 5}, {"text_length", 40}}},
       {"conditioner", {{"batch", 2}, {"ministral3.length", 40}}},
       {"vae.encode", {{"batch", 1}, {"height", 48}, {"width", 80}}},
       {"vae.decode", {{"batch", 1}, {"height", 3}, {"width", 5}}}},
      "base");
}

INSTANTIATE_TEST_SUITE_P(All, ErnieImageLayouts, testing::ValuesIn(layouts), layout_name);

// ---- what is not whole

const WrongModel wrongs[] = {
    {"width",
     [](Shapes& s) {
       s["text_proj.weight"].shape = {200, 32};
     },
     "text_proj.weight: expected a multiple of 128 rows (heads of 128), found 200"},
    {"further_channels",
     [](Shapes& s) {
       s["x_embedder.proj.weight"].shape = {256, 256, 1, 1};
     },
     "x_embedder.proj.weight: expected shape [256, 128, 1, 1], found [256, 256, 1, 1]"},
    {"patches",
     [](Shapes& s) {
       s["x_embedder.proj.weight"].shape = {256, 128, 2, 2};
     },
     "x_embedder.proj.weight: expected shape [256, 128, 1, 1], found [256, 128, 2, 2]"},
    {"modulation",
     [](Shapes& s) {
       s["adaLN_modulation.1.weight"].shape = {768, 256};
     },
     "adaLN_modulation.1.weight: expected shape [1536, 256], found [768, 256]"},
    {"no_layers", [](Shapes& s) { std::erase_if(s, [](const auto& t) { return t.first.starts_with("layers."); }); },
     "missing tensor layers.0.self_attention.to_q.weight"},
    {"no_mlp", [](Shapes& s) { s.erase("layers.1.mlp.linear_fc2.weight"); },
     "missing tensor layers.1.mlp.linear_fc2.weight"},
    {"heads", [](Shapes& s) { s["layers.1.self_attention.norm_k.weight"].shape = {64}; },
     "layers.1.self_attention.norm_k.weight: expected shape [128], found [64]"},
    {"text_width",
     [](Shapes& s) {
       add_llm(s, "ministral3:", {64, 3, 2, 64, 60});
     },
     "text_proj.weight takes 32 columns, but ministral3 gives 64: the files do not belong together"},
};

TEST(ErnieImage, WrongTensorsAreNamed) { expect_refused(plugin, small_ernie_image.shapes(), wrongs); }

// Flux.1's autoencoder has the tensors of the same names with other sizes.
TEST(ErnieImage, AnotherAutoencoderIsRefused) {
  const TempDir dir;
  ModelConfig config = write_separate(dir.path());
  write_file(dir / "ae.safetensors", golden_weights("vae_flux_encode"));
  config.given["vae_path"] = {dir / "ae.safetensors"};
  EXPECT_THAT(error_of([&] { const Model model(built_plugins(), config, ""); }),
              HasSubstr("vae:decoder.conv_in.weight: expected shape [*, 32, 3, 3]"));
}

// ---- variants and levels

// t -> 4 t / (1 + 3 t), t = 1 ... 1 / steps, at every size.
TEST(ErnieImage, LevelsOfBothVariants) {
  for (const auto& [variant, steps, guidance] : {std::tuple{"base", 50, 4.0}, std::tuple{"turbo", 8, 1.0}}) {
    const Recipe recipe = Described(plugin, small_ernie_image.shapes(), variant).recipe();
    EXPECT_EQ(recipe.variant, variant);
    EXPECT_EQ(recipe.sampling.steps, steps);
    EXPECT_EQ(recipe.sampling.guidance, guidance);
    const SamplerChoice choice = choose_sampler(built_plugins(), recipe, {});
    for (const int64_t tokens : {256, 4096}) {
      const SamplingSchedule schedule = schedule_of(choice, recipe, steps, tokens);
      ASSERT_EQ(schedule.steps(), steps);
      for (int i = 0; i < steps; ++i) {
        const double t = 1 - static_cast<double>(i) / steps;
        EXPECT_NEAR(schedule.level(i).sigma, 4 * t / (1 + 3 * t), 1e-12) << variant << " " << tokens << " " << i;
      }
      EXPECT_EQ(schedule.level(steps).sigma, 0);
    }
  }
}

// Every role of both, against the recipe.
TEST(ErnieImage, TurboIsTheWordOfItsUser) {
  const TempDir dir;
  ModelConfig config = write_separate(dir.path());
  EXPECT_NO_THROW(check_model(Model(built_plugins(), config, ""), DType::f32));
  config.given["variant"] = {"turbo"};
  const Model turbo(built_plugins(), config, "");
  EXPECT_EQ(turbo.recipe().variant, "turbo");
  EXPECT_NO_THROW(check_model(turbo, DType::f32));
}

// ---- prompts

// The prompt behind the first token and nothing else; of an empty one that token.
TEST(ErnieImage, PromptsHaveNoTemplate) {
  const TempDir dir;
  const Model model(built_plugins(), write_separate(dir.path()), "");
  Device device(tested_device());
  TextEncoding text(device, model, DType::f32, {});
  EXPECT_EQ(text.tokens().sizes().at("ministral3.length"), 512);
  for (const auto& [prompt, want] :
       {std::pair{"a cat", std::vector<int32_t>{1, 20 + 'a', 20 + ' ', 277}}, std::pair{"", std::vector<int32_t>{1}}}) {
    const Tokens tokens = *text.tokens().of(prompt);
    std::vector<int32_t> ids = want, mask(want.size(), 1);
    ids.resize(512, 11);
    mask.resize(512, 0);
    EXPECT_TRUE(std::ranges::equal(tokens.at("ministral3.input_ids").as<int32_t>(), ids)) << prompt;
    EXPECT_TRUE(std::ranges::equal(tokens.at("ministral3.attention_mask").as<int32_t>(), mask)) << prompt;
  }
  EXPECT_EQ(text.lengths("a cat").at("text_length"), 32);
}

// ---- sizes and texts

// Each sample of a batch is what it is alone, however many rows there are and whatever stands in those that are not
// there: the image follows its own text.
TEST(ErnieImage, TextsOfABatchDoNotMeet) {
  const TempDir dir;
  const Model model(built_plugins(), write_separate(dir.path()), "");
  expect_texts_apart(model, {{4, 6}, {1, 7}, {5, 3}});
}

// ---- full size

TEST(ErnieImage, FullSizeGraphAndLoraModules) {
  const Shapes shapes = full_ernie_image.shapes();
  EXPECT_EQ(shapes.size(), 409u);
  EXPECT_EQ(parameters_of(shapes), 8'033'490'048);
  const Described model(plugin, shapes);
  EXPECT_EQ(model.confidence(), 100);
  Graph graph = model.denoiser({{"batch", 1}, {"height", 64}, {"width", 48}, {"text_length", 256}});
  EXPECT_EQ(graph.desc(graph.outputs.at("output")).shape, (Shape{1, 64, 48, 128}));
  std::set<std::string> used;
  for (const auto& [name, value] : graph.params) used.insert(name);
  for (const auto& [name, desc] : shapes) EXPECT_TRUE(used.contains(name)) << name;
  EXPECT_EQ(adapt(graph, AdapterSelection({}, model.recipe(), 1), true).size(), 252u);
}

}  // namespace
}  // namespace lh::test::ernie_image_test
