// Krea 2 beyond its golden cases: every layout of files, refusals, variants, prompts, levels, sizes and texts of a
// batch, and the published model by its shapes.
#include <gmock/gmock.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "compile/adapter_selection.h"
#include "diffusion/sampler_choice.h"
#include "encode/text_encoding.h"
#include "passes/adapt.h"
#include "run/plan.h"
#include "support/device.h"
#include "support/krea2_shapes.h"
#include "support/layouts.h"
#include "support/log.h"
#include "support/model_shapes.h"
#include "support/paths.h"
#include "support/texts_apart.h"
#include "support/wrong_models.h"
#include "support/z_image_shapes.h"

namespace lh::test::krea2_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const char* const plugin = "krea2";

// A whole small model whose parts fit each other: native tensors of each component.
const std::map<std::string, std::vector<Given>>& components() {
  static const std::map<std::string, std::vector<Given>> all = [] {
    Shapes text;
    add_small_qwen3_vl(text, "", 60);
    add_qwen3_vision(text, "visual.", small_krea2.text);
    return std::map<std::string, std::vector<Given>>{{"denoiser", filled(small_krea2.shapes())},
                                                     {"vae", golden_weights("vae_qwen_image_encode")},
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
           {"denoiser", denoiser}, {"vae", "vae."}, {"qwen3_vl", "text_encoders.qwen3vl_4b.transformer."}})
    for (const Given& t : components().at(name)) all.push_back({prefix + t.name, change(t.tensor)});
  write_file(folder / "all.safetensors", all);
  return single(folder / "all.safetensors");
}

ModelConfig directory(const fs::path& folder, const std::string& variant, const Change& change) {
  write_directory(folder, spec_of(plugin), components(), {"denoiser", "vae"}, variant, change);
  put(folder / "model_index.json", R"({"_class_name": "Krea2Pipeline", "is_distilled": false})");
  return single(folder);
}

// One component's file with the names of diffusers.
ModelConfig with_other_names(const fs::path& folder, const std::string& component) {
  ModelConfig config = write_separate(folder);
  std::vector<Given> tensors;
  for (const Given& t : components().at(component))
    for (const Given& part : in_diffusers(*spec_of(plugin).component(component), t, components().at(component)))
      tensors.push_back(part);
  write_file(folder / (component + ".safetensors"), tensors);
  return config;
}

const Layout layouts[] = {
    {"all_in_one", [](const fs::path& p) { return all_in_one(p, "model.diffusion_model.", as_is); }},
    {"all_in_one_without_a_prefix", [](const fs::path& p) { return all_in_one(p, "", as_is); }},
    {"all_in_one_in_fp8", [](const fs::path& p) { return all_in_one(p, "model.diffusion_model.", as_fp8); }, as_fp8},
    {"folder", [](const fs::path& p) { return directory(p, "", as_is); }},
    {"folder_of_a_variant", [](const fs::path& p) { return directory(p, ".fp16", as_half); }, as_half},
    {"denoiser_with_the_names_of_diffusers", [](const fs::path& p) { return with_other_names(p, "denoiser"); }},
    // A table of each block is a row for each vector there.
    {"tables_in_rows",
     [](const fs::path& p) {
       ModelConfig config = write_separate(p);
       std::vector<Given> tensors = components().at("denoiser");
       for (Given& t : tensors)
         if (t.name.ends_with(".mod.lin")) t.tensor.desc.shape = {6, small_krea2.hidden};
       write_file(p / "denoiser.safetensors", tensors);
       return config;
     }},
    {"autoencoder_with_the_names_of_diffusers", [](const fs::path& p) { return with_other_names(p, "vae"); }},
    {"encoder_of_newer_transformers",
     [](const fs::path& p) {
       ModelConfig config = write_separate(p);
       std::vector<Given> tensors = components().at("qwen3_vl");
       const std::string front = "model.";
       for (Given& t : tensors)
         t.name = t.name.starts_with(front) ? "model.language_model." + t.name.substr(front.size()) : front + t.name;
       tensors.push_back({"lm_head.weight", counting({2, 2})});
       write_file(p / "qwen3_vl.safetensors", tensors);
       return config;
     }},
};

class Krea2Layouts : public testing::TestWithParam<Layout> {};

TEST_P(Krea2Layouts, OpenAsTheSameModel) {
  expect_same_model(
      plugin, GetParam(), [](const fs::path& folder) { return write_separate(folder); },
      {{"denoiser", {{"batch", 1}, {"height", 8}, {"width", 12}, {"text_length", 40}}},
       {"conditioner", {{"batch", 2}, {"qwen3_vl.length", 40}, {"qwen3_vl.drop", 34}}},
       {"vae.encode", {{"batch", 1}, {"height", 64}, {"width", 48}}},
       {"vae.decode", {{"batch", 1}, {"height", 8}, {"width", 6}}}},
      "base");
}

INSTANTIATE_TEST_SUITE_P(All, Krea2Layouts, testing::ValuesIn(layouts), layout_name);

// ---- what is not whole

void set(Shapes& shapes, const char* name, const Shape& shape) { shapes[name] = {DType::bf16, shape}; }

const WrongModel wrongs[] = {
    {"width",
     [](Shapes& s) {
       set(s, "first.weight", {200, 64});
     },
     "last.linear.weight: expected shape [*, 200], found [64, 256]"},
    {"further_channels",
     [](Shapes& s) {
       set(s, "first.weight", {256, 132});
     },
     "first.weight: expected shape [256, 64], found [256, 132]"},
    {"other_latents",
     [](Shapes& s) {
       set(s, "first.weight", {256, 128});
       set(s, "last.linear.weight", {128, 256});
       set(s, "last.linear.bias", {128});
     },
     "last.linear.weight: expected 64 rows (patches of 2x2 of 16 channels), found 128"},
    {"no_mlp", [](Shapes& s) { s.erase("blocks.1.mlp.down.weight"); }, "missing tensor blocks.1.mlp.down.weight"},
    {"no_text_blocks",
     [](Shapes& s) {
       std::erase_if(s, [](const auto& t) { return t.first.starts_with("txtfusion.refiner_blocks."); });
     },
     "missing tensor txtfusion.refiner_blocks.0.attn.qknorm.qnorm.scale"},
    {"groups_of_heads",
     [](Shapes& s) {
       set(s, "blocks.0.attn.wk.weight", {96, 256});
     },
     "blocks.0.attn: 256 rows of wq and 96 of wk are not groups of heads of 64 (qknorm.qnorm)"},
    {"heads_of_one_block",
     [](Shapes& s) {
       set(s, "blocks.1.attn.qknorm.qnorm.scale", {32});
       set(s, "blocks.1.attn.qknorm.knorm.scale", {32});
     },
     "blocks.1.attn.qknorm.qnorm.scale: expected shape [64], found [32]"},
    {"table",
     [](Shapes& s) {
       set(s, "blocks.0.mod.lin", {3, 256});
     },
     "blocks.0.mod.lin: expected shape [6, 256], found [3, 256]"},
    {"states",
     [](Shapes& s) {
       set(s, "txtfusion.projector.weight", {1, 12});
       add_small_qwen3_vl(s, "qwen3_vl:", 60);
     },
     "txtfusion.projector.weight takes 12 columns, but the states that are read of qwen3_vl are 2: the files do not "
     "belong together"},
    {"text_width",
     [](Shapes& s) {
       add_llm(s, "qwen3_vl:", {96, 5, 2, 128, 60});
     },
     "txtmlp.1.weight takes 64 columns, but qwen3_vl gives 96: the files do not belong together"},
    {"autoencoder_of_layers",
     [](Shapes& s) {
       set(s, "vae:encoder.conv1.weight", {8, 4, 3, 3, 3});
     },
     "vae:encoder.conv1.weight: expected shape [*, 3, 3, 3, 3], found [8, 4, 3, 3, 3]"},
};

TEST(Krea2, WrongTensorsAreNamed) { expect_refused(plugin, small_krea2.shapes(), wrongs); }

// ---- variants

ModelConfig with_variant(ModelConfig config, const char* variant) {
  config.given["variant"] = {variant};
  return config;
}

TEST(Krea2, TurboIsToldByItsFolderOrItsUser) {
  const TempDir dir;
  const ModelConfig config = directory(dir / "model", "", as_is);
  put(dir / "model" / "model_index.json", R"({"_class_name": "Krea2Pipeline", "is_distilled": true})");
  EXPECT_EQ(Model(built_plugins(), config, "").recipe().variant, "turbo");
  EXPECT_EQ(Model(built_plugins(), with_variant(config, "base"), "").recipe().variant, "base");
  const ModelConfig files = write_separate(dir / "separate");
  EXPECT_EQ(Model(built_plugins(), with_variant(files, "turbo"), "").recipe().variant, "turbo");
}

// ---- prompts

nlohmann::json table(const char* name) {
  std::ifstream in(fs::path(test_data()) / name);
  return nlohmann::json::parse(in);
}

// With the tokenizer files that ship with the program: the template around each prompt, and what of it is left out.
TEST(Krea2, PromptsAreTokensOfQwen) {
  const TempDir dir;
  const Model model(built_plugins(), write_separate(dir.path()), "");
  Device device(tested_device());
  TextEncoding text(device, model, DType::f32, {});
  const nlohmann::json rows = table("qwen3.json");
  EXPECT_EQ(text.tokens().sizes().at("qwen3_vl.length"), 546);
  EXPECT_EQ(text.tokens().sizes().at("qwen3_vl.drop"),
            static_cast<int64_t>(rows.at("prefix_tokens").at("qwen_image").size()));
  const std::string front = "<|im_start|>user\n", end = "<|im_end|>\n<|im_start|>assistant\n";
  for (const auto& row : rows.at("templates").at("qwen_image")) {
    const auto whole = row.at("text").get<std::string>();
    const size_t begin = whole.find(front) + front.size();
    const std::string prompt = whole.substr(begin, whole.size() - end.size() - begin);
    const Tokens tokens = *text.tokens().of(prompt);
    const auto want = row.at("ids").get<std::vector<int32_t>>();
    const std::span<const int32_t> ids = tokens.at("qwen3_vl.input_ids").as<int32_t>(),
                                   mask = tokens.at("qwen3_vl.attention_mask").as<int32_t>();
    EXPECT_EQ(std::vector<int32_t>(ids.begin(), ids.begin() + static_cast<int64_t>(want.size())), want) << prompt;
    EXPECT_EQ(std::ranges::count(mask, 1), static_cast<int64_t>(want.size())) << prompt;
  }
}

// A prompt that is too long loses its own tail, not the template's: all tokens are there, and the last five are those.
TEST(Krea2, LongPromptsKeepTheEndOfTheTemplate) {
  const TempDir dir;
  const Model model(built_plugins(), write_separate(dir.path()), "");
  Device device(tested_device());
  TextEncoding text(device, model, DType::f32, {});
  std::string prompt;
  for (int i = 0; i < 600; ++i) prompt += "cat ";
  const Tokens tokens = *text.tokens().of(prompt);
  EXPECT_THAT(take_warnings(), testing::ElementsAre(HasSubstr("tokens too long for qwen3_vl and is cut")));
  const std::span<const int32_t> ids = tokens.at("qwen3_vl.input_ids").as<int32_t>();
  ASSERT_EQ(ids.size(), 546u);
  EXPECT_EQ(std::vector<int32_t>(ids.end() - 5, ids.end()),
            (std::vector<int32_t>{151645, 198, 151644, 77091, 198}));  // <|im_end|> \n <|im_start|> assistant \n
  EXPECT_EQ(std::ranges::count(tokens.at("qwen3_vl.attention_mask").as<int32_t>(), 1), 546);
}

// ---- with reference pictures

TEST(Krea2, EditNeedsAnEncoderThatSees) {
  const TempDir dir;
  ModelConfig config = write_separate(dir.path());
  std::vector<Given> blind = components().at("qwen3_vl");
  std::erase_if(blind, [](const Given& t) { return t.name.starts_with("visual."); });
  write_file(dir / "qwen3_vl.safetensors", blind);
  EXPECT_NO_THROW(Model(built_plugins(), config, ""));
  config.given["edit"] = {"true"};
  EXPECT_THAT(
      error_of([&] { const Model model(built_plugins(), config, ""); }),
      HasSubstr("edit is true, and the text encoder is shown the reference pictures, but qwen3_vl has no vision "
                "tower"));
  const auto with = [&](const char* name, const Shape& shape) {
    Shapes text;
    add_small_qwen3_vl(text, "", 60);
    add_qwen3_vision(text, "visual.", small_krea2.text);
    if (name != nullptr) set(text, name, shape);
    write_file(dir / "qwen3_vl.safetensors", filled(text));
    return error_of([&] { const Model model(built_plugins(), config, ""); });
  };
  EXPECT_EQ(with(nullptr, {}), "");
  EXPECT_THAT(with("visual.patch_embed.proj.weight", {64, 3, 2, 14, 14}),
              HasSubstr("qwen3_vl:visual.patch_embed.proj.weight: expected shape [*, 3, 2, 16, 16]"));
  EXPECT_THAT(with("visual.patch_embed.proj.weight", {48, 3, 2, 16, 16}),
              HasSubstr("expected a multiple of 64 rows (16 heads, which two axes turn), found 48"));
  EXPECT_THAT(with("visual.pos_embed.weight", {8, 64}), HasSubstr("expected a square number of rows, found 8"));
  EXPECT_THAT(with("visual.deepstack_merger_list.2.linear_fc2.weight", {60, 256}),
              HasSubstr("qwen3_vl:visual.deepstack_merger_list.2.linear_fc2.weight: expected shape [64, 256]"));
}

TEST(Krea2, OnlyReferencesAreIsolated) {
  const TempDir dir;
  ModelConfig config = write_separate(dir.path());
  config.given["isolate_references"] = {"true"};
  EXPECT_THAT(error_of([&] { const Model model(built_plugins(), config, ""); }),
              HasSubstr("isolate_references is true, but there are no references: set edit: true"));
}

TEST(Krea2, RoomForTheTemplateAlone) {
  const TempDir dir;
  const Model model(built_plugins(), write_separate(dir.path()), "");
  EXPECT_THAT(error_of([&] {
                model.build("conditioner", {{"batch", 1}, {"qwen3_vl.length", 34}, {"qwen3_vl.drop", 34}}, DType::f32);
              }),
              HasSubstr("model.max_sequence_length: the template's first 34 tokens count"));
}

// ---- levels of a run, by the recipe alone

// mu between 0.5 at 256 tokens and 1.15 at 6400, of turbo 1.15: t -> e^mu / (e^mu + 1 / t - 1), t = 1 ... 1 / steps.
TEST(Krea2, LevelsFollowTheSize) {
  for (const auto& [variant, steps, guidance] : {std::tuple{"base", 28, 5.5}, std::tuple{"turbo", 8, 1.0}}) {
    const Recipe recipe = Described(plugin, small_krea2.shapes(), variant).recipe();
    EXPECT_EQ(recipe.variant, variant);
    EXPECT_EQ(recipe.sampling.steps, steps);
    EXPECT_EQ(recipe.sampling.guidance, guidance);
    const SamplerChoice choice = choose_sampler(built_plugins(), recipe, {});
    for (const int64_t tokens : {256, 1024, 4096, 6400}) {
      const double mu =
          recipe.variant == "turbo" ? 1.15 : 0.5 + 0.65 * (static_cast<double>(tokens) - 256) / (6400 - 256);
      const SamplingSchedule schedule = schedule_of(choice, recipe, steps, tokens);
      ASSERT_EQ(schedule.steps(), steps);
      for (int i = 0; i < steps; ++i) {
        const double t = 1 - static_cast<double>(i) / steps, shift = std::exp(mu);
        EXPECT_NEAR(schedule.level(i).sigma, shift / (shift + 1 / t - 1), 1e-12)
            << variant << " " << tokens << " " << i;
      }
      EXPECT_EQ(schedule.level(steps).sigma, 0);
    }
  }
}

// ---- sizes and texts

// Each sample of a batch is what it is alone, however many rows there are and whatever stands in those that are not
// there. Grids of 4 x 6 and, with odd sides, of 1 x 7 and 5 x 3 patches.
TEST(Krea2, TextsOfABatchDoNotMeet) {
  const TempDir dir;
  const Model model(built_plugins(), write_separate(dir.path()), "");
  expect_texts_apart(model, {{8, 12}, {2, 14}, {10, 6}});
}

// ---- full size

TEST(Krea2, FullSizeGraphAndLoraModules) {
  const Shapes shapes = full_krea2.shapes();
  EXPECT_EQ(shapes.size(), 430u);
  EXPECT_EQ(parameters_of(shapes), 12820073036);
  const Described model(plugin, shapes);
  EXPECT_EQ(model.confidence(), 100);
  Graph graph = model.denoiser({{"batch", 1}, {"height", 128}, {"width", 96}, {"text_length", 256}});
  EXPECT_EQ(graph.desc(graph.outputs.at("output")).shape, (Shape{1, 128, 96, 16}));
  std::set<std::string> used;
  for (const auto& [name, value] : graph.params) used.insert(name);
  for (const auto& [name, desc] : shapes) EXPECT_TRUE(used.contains(name)) << name;
  Graph again = graph;
  EXPECT_EQ(adapt(graph, AdapterSelection({}, model.recipe(), 1), true).size(), 256u);
  NetworkConfig every;  // the 8 outside of the blocks, too
  every.target_modules = {".*"};
  EXPECT_EQ(adapt(again, AdapterSelection(every, model.recipe(), 1), true).size(), 264u);
}

// Qwen3-VL's language model has the shapes of Qwen3-4B; its autoencoder is Qwen-Image's.
TEST(Krea2, PublishedKeyLists) {
  if (!fs::exists(key_lists() / "qwen_3_4b.json")) GTEST_SKIP() << "no key lists in " << key_lists();
  Shapes all = full_krea2.shapes();
  for (const auto& [name, desc] : key_list("qwen_3_4b")) all["qwen3_vl:" + name] = desc;
  for (const auto& [name, desc] : key_list("qwen_image_vae")) all["vae:" + name] = desc;
  EXPECT_NO_THROW(Described(plugin, all));
}

}  // namespace
}  // namespace lh::test::krea2_test
