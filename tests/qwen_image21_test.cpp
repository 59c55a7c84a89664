// Qwen-Image 2.1 beyond its golden cases: every layout of files, refusals, variants, prompts, levels, sizes and texts
// of a batch, and the published model by its shapes.
#include <gmock/gmock.h>

#include <cmath>
#include <set>

#include "compile/adapter_selection.h"
#include "diffusion/sampler_choice.h"
#include "encode/text_encoding.h"
#include "ops/ops.h"
#include "passes/adapt.h"
#include "passes/fuse.h"
#include "run/plan.h"
#include "support/device.h"
#include "support/graph_run.h"
#include "support/layouts.h"
#include "support/log.h"
#include "support/model_shapes.h"
#include "support/paths.h"
#include "support/qwen_image21_shapes.h"
#include "support/texts_apart.h"
#include "support/wrong_models.h"
#include "support/z_image_shapes.h"

namespace lh::test::qwen_image21_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const char* const plugin = "qwen_image21";

// A whole small model whose parts fit each other: native tensors of each component.
const std::map<std::string, std::vector<Given>>& components() {
  static const std::map<std::string, std::vector<Given>> all = [] {
    Shapes text;
    add_small_qwen3_vl_8b(text, "", 60);
    return std::map<std::string, std::vector<Given>>{{"denoiser", filled(small_qwen_image21.shapes())},
                                                     {"vae", golden_weights("vae_qwen_image21_encode")},
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

ModelConfig all_in_one(const fs::path& folder, const std::string& denoiser) {
  std::vector<Given> all;
  for (const auto& [name, prefix] : std::map<std::string, std::string>{
           {"denoiser", denoiser}, {"vae", "vae."}, {"qwen3_vl", "text_encoders.qwen3vl_8b.transformer."}})
    for (const Given& t : components().at(name)) all.push_back({prefix + t.name, t.tensor});
  all.push_back({"text_encoders.qwen3vl_8b.transformer.visual.patch_embed.proj.weight", counting({2, 2})});
  write_file(folder / "all.safetensors", all);
  return single(folder / "all.safetensors");
}

ModelConfig directory(const fs::path& folder, const std::string& variant, const Change& change) {
  write_directory(folder, spec_of(plugin), components(), {"denoiser", "vae"}, variant, change);
  put(folder / "model_index.json", R"({"_class_name": "QwenImage21Pipeline"})");
  return single(folder);
}

// One component's file with the names of diffusers.
ModelConfig with_other_names(const fs::path& folder, const std::string& component, const Change& change = as_is) {
  ModelConfig config = write_separate(folder);
  std::vector<Given> tensors;
  for (const Given& t : components().at(component))
    for (const Given& part : in_diffusers(*spec_of(plugin).component(component), t, components().at(component)))
      tensors.push_back({part.name, change(part.tensor)});
  write_file(folder / (component + ".safetensors"), tensors);
  return config;
}

// Kernels without the axis of time.
HostTensor flat(HostTensor t) {
  const Shape& shape = t.desc.shape;
  if (shape.rank() == 5) t.desc.shape = Shape{shape[0], shape[1], shape[3], shape[4]};
  return t;
}

const Layout layouts[] = {
    {"all_in_one", [](const fs::path& p) { return all_in_one(p, "model.diffusion_model."); }},
    {"all_in_one_without_a_prefix", [](const fs::path& p) { return all_in_one(p, ""); }},
    {"folder", [](const fs::path& p) { return directory(p, "", as_is); }},
    {"folder_of_a_variant", [](const fs::path& p) { return directory(p, ".fp16", as_half); }, as_half},
    // The mlp's gate and input apart.
    {"denoiser_with_the_names_of_diffusers", [](const fs::path& p) { return with_other_names(p, "denoiser"); }},
    {"autoencoder_with_the_names_of_diffusers", [](const fs::path& p) { return with_other_names(p, "vae", flat); }},
    {"encoder_that_also_sees", [](const fs::path& p) {
       ModelConfig config = write_separate(p);
       std::vector<Given> tensors = components().at("qwen3_vl");
       for (Given& t : tensors) t.name = "model.language_model." + t.name.substr(std::string("model.").size());
       for (const char* name : {"model.visual.patch_embed.proj.weight", "lm_head.weight"})
         tensors.push_back({name, counting({2, 2})});
       write_file(p / "qwen3_vl.safetensors", tensors);
       return config;
     }}};

class QwenImage21Layouts : public testing::TestWithParam<Layout> {};

TEST_P(QwenImage21Layouts, OpenAsTheSameModel) {
  expect_same_model(
      plugin, GetParam(), [](const fs::path& folder) { return write_separate(folder); },
      {{"denoiser", {{"batch", 1}, {"height", 4}, {"width", 6}, {"text_length", 40}}},
       {"conditioner", {{"batch", 2}, {"qwen3_vl.length", 40}, {"qwen3_vl.drop", 14}}},
       {"vae.encode", {{"batch", 1}, {"height", 64}, {"width", 32}}},
       {"vae.decode", {{"batch", 1}, {"height", 4}, {"width", 2}}}},
      "base");
}

INSTANTIATE_TEST_SUITE_P(All, QwenImage21Layouts, testing::ValuesIn(layouts), layout_name);

// ---- what is not whole

void set(Shapes& shapes, const char* name, const Shape& shape) { shapes[name] = {DType::bf16, shape}; }

void with_autoencoder(Shapes& shapes) {
  for (const Given& t : components().at("vae")) shapes["vae:" + t.name] = t.tensor.desc;
}

const WrongModel wrongs[] = {
    {"heads",
     [](Shapes& s) {
       set(s, "img_in.weight", {200, 64});
     },
     "img_in.weight: expected a multiple of 128 rows (heads of 128), found 200"},
    {"further_channels",
     [](Shapes& s) {
       set(s, "img_in.weight", {128, 128});
     },
     "img_in.weight: expected shape [128, 64], found [128, 128]"},
    {"other_latents",
     [](Shapes& s) {
       set(s, "img_in.weight", {128, 16});
       set(s, "proj_out.weight", {16, 128});
     },
     "proj_out.weight: expected 64 rows, the channels of the latents, found 16"},
    {"no_mlp", [](Shapes& s) { s.erase("transformer_blocks.1.img_mlp.out.weight"); },
     "missing tensor transformer_blocks.1.img_mlp.out.weight"},
    {"text_width",
     [](Shapes& s) {
       add_llm(s, "qwen3_vl:", {96, 2, 2, 128, 60});
     },
     "txt_in.in_layer.weight takes 64 columns, but qwen3_vl gives 96: the files do not belong together"},
    {"autoencoder_of_colours_alone",
     [](Shapes& s) {
       with_autoencoder(s);
       set(s, "vae:encoder.conv1.weight", {8, 3, 1, 3, 3});
     },
     "vae:encoder.conv1.weight: expected shape [*, 4, 1, 3, 3], found [8, 3, 1, 3, 3]"},
    {"autoencoder_of_frames",
     [](Shapes& s) {
       with_autoencoder(s);
       set(s, "vae:encoder.conv1.weight", {8, 4, 3, 3, 3});
     },
     "vae:encoder.conv1.weight: expected shape [*, 4, 1, 3, 3], found [8, 4, 3, 3, 3]"},
    {"autoencoder_of_three_halvings",
     [](Shapes& s) {
       with_autoencoder(s);
       s.erase("vae:decoder.upsamples.3.upsamples.3.resample.1.weight");
     },
     "vae:decoder.upsamples.*: expected 4 levels with a resampling (N.upsamples.N.resample.1.weight), found 3"}};

TEST(QwenImage21, WrongTensorsAreNamed) { expect_refused(plugin, small_qwen_image21.shapes(), wrongs); }

// ---- variants

ModelConfig with_variant(ModelConfig config, const char* variant) {
  config.given["variant"] = {variant};
  return config;
}

TEST(QwenImage21, TurboIsToldByItsFolderOrItsUser) {
  const TempDir dir;
  const ModelConfig config = directory(dir / "model", "", as_is);
  put(dir / "model" / "model_index.json", R"({"_class_name": "QwenImage21Pipeline", "sample_sigmas": null})");
  EXPECT_EQ(Model(built_plugins(), config, "").recipe().variant, "base");
  put(dir / "model" / "model_index.json", R"({"_class_name": "QwenImage21Pipeline", "sample_sigmas": [1.0, 0.5]})");
  EXPECT_EQ(Model(built_plugins(), config, "").recipe().variant, "turbo");
  EXPECT_EQ(Model(built_plugins(), with_variant(config, "base"), "").recipe().variant, "base");
  const ModelConfig files = write_separate(dir / "separate");
  EXPECT_EQ(Model(built_plugins(), with_variant(files, "turbo"), "").recipe().variant, "turbo");
}

// ---- prompts

// With the tokenizer files that ship with the program: the template around each prompt, and what of it is left out.
TEST(QwenImage21, PromptsAreTokensOfQwen) {
  const TempDir dir;
  const Model model(built_plugins(), write_separate(dir.path()), "");
  Device device(tested_device());
  TextEncoding text(device, model, DType::f32, {});
  EXPECT_EQ(text.tokens().sizes().at("qwen3_vl.length"), 1038);
  EXPECT_EQ(text.tokens().sizes().at("qwen3_vl.drop"), 14);
  // <|im_start|> system \n Com preh end and analyze the provided prompt . <|im_end|> \n, then the user's turn.
  const Tokens tokens = *text.tokens().of("cat");
  const std::span<const int32_t> ids = tokens.at("qwen3_vl.input_ids").as<int32_t>();
  EXPECT_EQ(std::vector<int32_t>(ids.begin(), ids.begin() + 3), (std::vector<int32_t>{151644, 8948, 198}));
  EXPECT_EQ(std::vector<int32_t>(ids.begin() + 12, ids.begin() + 23),
            (std::vector<int32_t>{151645, 198, 151644, 872, 198, 4616, 151645, 198, 151644, 77091, 198}));
  EXPECT_EQ(std::ranges::count(tokens.at("qwen3_vl.attention_mask").as<int32_t>(), 1), 23);
}

// A prompt that is too long loses its own tail, not the template's: all tokens are there, and the last five are those.
TEST(QwenImage21, LongPromptsKeepTheEndOfTheTemplate) {
  const TempDir dir;
  const Model model(built_plugins(), write_separate(dir.path()), "");
  Device device(tested_device());
  TextEncoding text(device, model, DType::f32, {});
  std::string prompt;
  for (int i = 0; i < 1200; ++i) prompt += "cat ";
  const Tokens tokens = *text.tokens().of(prompt);
  EXPECT_THAT(take_warnings(), testing::ElementsAre(HasSubstr("tokens too long for qwen3_vl and is cut")));
  const std::span<const int32_t> ids = tokens.at("qwen3_vl.input_ids").as<int32_t>();
  ASSERT_EQ(ids.size(), 1038u);
  EXPECT_EQ(std::vector<int32_t>(ids.end() - 5, ids.end()),
            (std::vector<int32_t>{151645, 198, 151644, 77091, 198}));  // <|im_end|> \n <|im_start|> assistant \n
}

// ---- levels of a run, by the recipe alone

// mu between 0.5 at 256 tokens and 0.9 at 8192, of which four are one here; stretched so that the last level is 0.02.
TEST(QwenImage21, LevelsFollowTheSize) {
  const Recipe recipe = Described(plugin, small_qwen_image21.shapes()).recipe();
  EXPECT_EQ(recipe.sampling.steps, 40);
  EXPECT_EQ(recipe.sampling.guidance, 1);
  const SamplerChoice choice = choose_sampler(built_plugins(), recipe, {});
  for (const int64_t tokens : {256, 1024, 4096, 8192}) {
    const double shift = std::exp(0.5 + 0.4 * (static_cast<double>(tokens) - 256) / (8192 - 256));
    const auto shifted = [&](double t) { return shift / (shift + 1 / t - 1); };
    const SamplingSchedule schedule = schedule_of(choice, recipe, 40, tokens / 4);
    ASSERT_EQ(schedule.steps(), 40);
    const double stretch = (1 - shifted(1.0 / 40)) / (1 - 0.02);
    for (int i = 0; i < 40; ++i)
      EXPECT_NEAR(schedule.level(i).sigma, 1 - (1 - shifted(1 - i / 40.0)) / stretch, 1e-7) << tokens << " " << i;
    EXPECT_EQ(schedule.level(40).sigma, 0);
  }
}

TEST(QwenImage21, TurboHasLevelsOfItsOwn) {
  const Recipe recipe = Described(plugin, small_qwen_image21.shapes(), "turbo").recipe();
  EXPECT_EQ(recipe.sampling.steps, 8);
  EXPECT_EQ(recipe.sampling.guidance, 1);
  const SamplerChoice choice = choose_sampler(built_plugins(), recipe, {});
  const std::vector<double> want{1.0, 0.978453, 0.95418, 0.926626, 0.89508, 0.845148, 0.704534, 0.414568, 0};
  for (const int64_t tokens : {64, 2048}) {
    const SamplingSchedule schedule = schedule_of(choice, recipe, 8, tokens);
    ASSERT_EQ(schedule.steps(), 8);
    for (int i = 0; i <= 8; ++i) EXPECT_NEAR(schedule.level(i).sigma, want[static_cast<size_t>(i)], 1e-7) << i;
  }
}

// ---- sizes and texts

// Each sample of a batch is what it is alone, however many rows there are and whatever stands in those that are not
// there: where its image stands follows from its own text. Grids with odd sides among them.
TEST(QwenImage21, TextsOfABatchDoNotMeet) {
  const TempDir dir;
  const Model model(built_plugins(), write_separate(dir.path()), "");
  expect_texts_apart(model, {{4, 6}, {1, 7}, {5, 3}});
}

// ---- full size

TEST(QwenImage21, FullSizeGraphAndLoraModules) {
  const Shapes shapes = full_qwen_image21.shapes();
  EXPECT_EQ(shapes.size(), 265u);
  EXPECT_EQ(parameters_of(shapes), 7115124736);
  const Described model(plugin, shapes);
  EXPECT_EQ(model.confidence(), 100);
  Graph graph = model.denoiser({{"batch", 1}, {"height", 64}, {"width", 48}, {"text_length", 256}});
  EXPECT_EQ(graph.desc(graph.outputs.at("output")).shape, (Shape{1, 64, 48, 64}));
  std::set<std::string> used;
  for (const auto& [name, value] : graph.params) used.insert(name);
  for (const auto& [name, desc] : shapes) EXPECT_TRUE(used.contains(name)) << name;
  Graph again = graph;
  EXPECT_EQ(adapt(graph, AdapterSelection({}, model.recipe(), 1), true).size(), 192u);
  NetworkConfig every;  // the 8 outside of the blocks, too
  every.target_modules = {".*"};
  EXPECT_EQ(adapt(again, AdapterSelection(every, model.recipe(), 1), true).size(), 200u);
}

// The norm and scale of each part of a block are one kernel, the text's of the last block too.
TEST(QwenImage21, NormsAndGatesAreFused) {
  Graph graph = Described(plugin, small_qwen_image21.shapes())
                    .denoiser({{"batch", 1}, {"height", 4}, {"width", 4}, {"text_length", 32}});
  fuse(graph);
  EXPECT_EQ(count_nodes(graph, modulated_norm_op), 4 + 3);
  EXPECT_EQ(count_nodes(graph, gated_residual_op), 4 + 2);
  EXPECT_EQ(count_nodes(graph, rms_norm_rope_op), 2 * 2);
  EXPECT_EQ(count_nodes(graph, gated_activation_op), 2);
}

}  // namespace
}  // namespace lh::test::qwen_image21_test
