// Qwen-Image beyond its golden cases: every layout of files, refusals, prompts, sizes and texts of a batch, levels, and
// the published model by its key lists.
#include <gmock/gmock.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "compile/adapter_selection.h"
#include "diffusion/sampler_choice.h"
#include "encode/check_model.h"
#include "encode/text_encoding.h"
#include "passes/adapt.h"
#include "run/plan.h"
#include "support/device.h"
#include "support/layouts.h"
#include "support/model_shapes.h"
#include "support/paths.h"
#include "support/qwen_image_shapes.h"
#include "support/texts_apart.h"
#include "support/wrong_models.h"

namespace lh::test::qwen_image_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const char* const plugin = "qwen_image";

// A whole small model whose parts fit each other: native tensors of each component.
const std::map<std::string, std::vector<Given>>& components() {
  static const std::map<std::string, std::vector<Given>> all = [] {
    Shapes text;
    add_qwen2_5(text, "", small_qwen_image.text, 60);
    add_qwen_vision(text, "visual.", small_qwen_image.text);
    return std::map<std::string, std::vector<Given>>{{"denoiser", filled(small_qwen_image.shapes())},
                                                     {"vae", golden_weights("vae_qwen_image_encode")},
                                                     {"qwen2_5_vl", filled(text)}};
  }();
  return all;
}

// A file for each component.
ModelConfig write_separate(const fs::path& folder) {
  fs::create_directories(folder);
  for (const auto& [name, tensors] : components()) write_file(folder / (name + ".safetensors"), tensors);
  ModelConfig config = single(folder / "denoiser.safetensors");
  for (const std::string name : {"vae", "qwen2_5_vl"})
    config.given[name + "_path"] = {folder / (name + ".safetensors")};
  return config;
}

// ---- layouts

const Change as_fp8 = [](const HostTensor& t) { return t.desc.shape.rank() == 2 ? as_type(t, DType::f8_e4m3) : t; };

ModelConfig all_in_one(const fs::path& folder, const std::string& denoiser, const Change& change) {
  std::vector<Given> all;
  for (const auto& [name, prefix] : std::map<std::string, std::string>{
           {"denoiser", denoiser}, {"vae", "vae."}, {"qwen2_5_vl", "text_encoders.qwen25_7b.transformer."}})
    for (const Given& t : components().at(name)) all.push_back({prefix + t.name, change(t.tensor)});
  write_file(folder / "all.safetensors", all);
  return single(folder / "all.safetensors");
}

ModelConfig directory(const fs::path& folder, const std::string& variant, const Change& change) {
  write_directory(folder, spec_of(plugin), components(), {"vae"}, variant, change);
  put(folder / "model_index.json", R"({"_class_name": "QwenImagePipeline"})");
  return single(folder);
}

// The text encoder with other names in front of its language model's and its tower's.
ModelConfig encoder_renamed(const fs::path& folder, const std::string& language, const std::string& tower) {
  ModelConfig config = write_separate(folder);
  std::vector<Given> tensors = components().at("qwen2_5_vl");
  for (Given& t : tensors)
    t.name = (t.name.starts_with("visual.") ? tower : language) + t.name.substr(t.name.find('.') + 1);
  tensors.push_back({language.empty() ? "lm_head.weight" : "language_model.lm_head.weight", counting({2, 2})});
  write_file(folder / "qwen2_5_vl.safetensors", tensors);
  return config;
}

const Layout layouts[] = {
    {"all_in_one", [](const fs::path& p) { return all_in_one(p, "model.diffusion_model.", as_is); }},
    {"all_in_one_without_a_prefix", [](const fs::path& p) { return all_in_one(p, "", as_is); }},
    {"all_in_one_in_fp8", [](const fs::path& p) { return all_in_one(p, "model.diffusion_model.", as_fp8); }, as_fp8},
    {"folder", [](const fs::path& p) { return directory(p, "", as_is); }},
    {"folder_of_a_variant", [](const fs::path& p) { return directory(p, ".fp16", as_half); }, as_half},
    {"autoencoder_with_the_names_of_diffusers",
     [](const fs::path& p) {
       ModelConfig config = write_separate(p);
       std::vector<Given> tensors;
       for (const Given& t : components().at("vae"))
         for (const Given& part : in_diffusers(*spec_of(plugin).component("vae"), t, components().at("vae")))
           tensors.push_back(part);
       write_file(p / "vae.safetensors", tensors);
       return config;
     }},
    {"encoder_of_newer_transformers",
     [](const fs::path& p) { return encoder_renamed(p, "model.language_model.", "model.visual."); }},
    {"encoder_in_the_other_order_of_levels",
     [](const fs::path& p) { return encoder_renamed(p, "language_model.model.", "visual."); }},
    {"encoder_without_its_head", [](const fs::path& p) { return encoder_renamed(p, "", "visual."); }},
};

class QwenImageLayouts : public testing::TestWithParam<Layout> {};

TEST_P(QwenImageLayouts, OpenAsTheSameModel) {
  expect_same_model(plugin, GetParam(), [](const fs::path& folder) { return write_separate(folder); },
                    {{"denoiser", {{"batch", 1}, {"height", 8}, {"width", 12}, {"text_length", 40}}},
                     {"conditioner", {{"batch", 2}, {"qwen2_5_vl.length", 40}, {"qwen2_5_vl.drop", 34}}},
                     {"vae.encode", {{"batch", 1}, {"height", 64}, {"width", 48}}},
                     {"vae.decode", {{"batch", 1}, {"height", 8}, {"width", 6}}}});
}

INSTANTIATE_TEST_SUITE_P(All, QwenImageLayouts, testing::ValuesIn(layouts), layout_name);

// ---- what is not Qwen-Image, or not whole

void set(Shapes& shapes, const char* name, const Shape& shape) { shapes[name] = {DType::bf16, shape}; }

const WrongModel wrongs[] = {
    {"width",
     [](Shapes& s) {
       set(s, "img_in.weight", {200, 64});
     },
     "img_in.weight: expected a multiple of 128 rows (heads of 128), found 200"},
    {"further_channels",
     [](Shapes& s) {
       set(s, "img_in.weight", {256, 132});
     },
     "img_in.weight: expected as many columns as proj_out has rows, 64 (patches of 2x2), found 132"},
    {"other_latents",
     [](Shapes& s) {
       set(s, "img_in.weight", {256, 128});
       set(s, "proj_out.weight", {128, 256});
       set(s, "proj_out.bias", {128});
     },
     "proj_out.weight: expected 64 rows (patches of 2x2 of 16 channels), found 128"},
    {"no_text_mlp", [](Shapes& s) { s.erase("transformer_blocks.1.txt_mlp.net.2.weight"); },
     "missing tensor transformer_blocks.1.txt_mlp.net.2.weight"},
    {"norm_of_keys", [](Shapes& s) { set(s, "transformer_blocks.0.attn.norm_added_k.weight", {64}); },
     "transformer_blocks.0.attn.norm_added_k.weight: expected shape [128], found [64]"},
    {"modulation",
     [](Shapes& s) {
       set(s, "transformer_blocks.0.img_mod.1.weight", {768, 256});
     },
     "transformer_blocks.0.img_mod.1.weight: expected shape [1536, 256], found [768, 256]"},
    {"text_width", [](Shapes& s) { add_qwen2_5(s, "qwen2_5_vl:", 64, 60); },
     "txt_in.weight takes 96 columns, but qwen2_5_vl gives 64: the files do not belong together"},
    {"autoencoder_of_layers",
     [](Shapes& s) {
       set(s, "vae:encoder.conv1.weight", {8, 4, 3, 3, 3});
     },
     "vae:encoder.conv1.weight: expected shape [*, 3, 3, 3, 3], found [8, 4, 3, 3, 3]"},
};

TEST(QwenImage, WrongTensorsAreNamed) { expect_refused(plugin, small_qwen_image.shapes(), wrongs); }

const WrongModel relatives[] = {
    {"layered",
     [](Shapes& s) {
       set(s, "time_text_embed.addition_t_embedding.weight", {2, 256});
     },
     "this is Qwen-Image-Layered"},
    {"control", [](Shapes& s) { add_linear(s, "controlnet_blocks.0", 8, 8); }, "this is a ControlNet"},
};

TEST(QwenImage, RelativesAreRefusedByName) { expect_files_refused({"", plugin}, small_qwen_image.shapes(), relatives); }

TEST(QwenImage, FoldersOfRelativesAreRefusedByName) {
  for (const auto& [file, content, text] : std::vector<std::array<const char*, 3>>{
           {"model_index.json", R"({"_class_name": "QwenImageLayeredPipeline"})", "this is Qwen-Image-Layered"}}) {
    const TempDir dir;
    directory(dir / "model", "", as_is);
    put(dir / "model" / file, content);
    EXPECT_THAT(error_of([&] { const Model model(built_plugins(), single(dir / "model"), ""); }), HasSubstr(text));
  }
}

// ---- those that edit

// Shapes do not tell the models that edit; their folders do, and the mark of one in single files.
TEST(QwenImage, VariantsAreToldByTheUserTheFolderAndAMark) {
  struct Row {
    const char *setting, *index, *config, *variant;
  };
  for (const auto& [setting, index, config, variant] :
       std::vector<Row>{{"", "QwenImagePipeline", "{}", "base"},
                        {"", "QwenImageEditPipeline", "{}", "edit"},
                        {"", "QwenImageEditPlusPipeline", "{}", "edit-2509"},
                        {"", "QwenImageEditPlusPipeline", R"({"zero_cond_t" :true})", "edit-2511"},
                        {"edit-2511", "QwenImageEditPlusPipeline", "{}", "edit-2511"},
                        {"edit", "QwenImagePipeline", "{}", "edit"}}) {
    const TempDir dir;
    ModelConfig given = directory(dir / "model", "", as_is);
    put(dir / "model" / "model_index.json", fmt::format(R"({{"_class_name": "{}"}})", index));
    put(dir / "model" / "transformer" / "config.json", config);
    if (*setting != '\0') given.given["variant"] = {setting};
    EXPECT_EQ(Model(built_plugins(), given, "").recipe().variant, variant);
  }
  Shapes marked = small_qwen_image.shapes();
  for (const Shape& shape : {Shape{0}, Shape{1}, Shape{}}) {
    set(marked, "__index_timestep_zero__", shape);
    EXPECT_EQ(Described(plugin, marked).recipe().variant, "edit-2511");
  }
  const TempDir dir;
  ModelConfig given = directory(dir / "model", "", as_is);
  put(dir / "model" / "transformer" / "config.json", R"({"zero_cond_t": true})");
  given.given["variant"] = {"edit"};
  EXPECT_THAT(error_of([&] { const Model model(built_plugins(), given, ""); }),
              HasSubstr("variant is edit, but the checkpoint is Edit-2511"));
}

TEST(QwenImage, EditNeedsAnEncoderThatSees) {
  const TempDir dir;
  ModelConfig config = write_separate(dir.path());
  std::vector<Given> blind = components().at("qwen2_5_vl");
  std::erase_if(blind, [](const Given& t) { return t.name.starts_with("visual."); });
  write_file(dir / "qwen2_5_vl.safetensors", blind);
  EXPECT_NO_THROW(Model(built_plugins(), config, ""));
  config.given["variant"] = {"edit"};
  EXPECT_THAT(
      error_of([&] { const Model model(built_plugins(), config, ""); }),
      HasSubstr("variant edit shows the text encoder its reference pictures, but qwen2_5_vl has no vision tower"));
  blind.push_back({"visual.patch_embed.proj.weight", counting({80, 3, 2, 16, 16})});
  write_file(dir / "qwen2_5_vl.safetensors", blind);
  EXPECT_THAT(error_of([&] { const Model model(built_plugins(), config, ""); }),
              HasSubstr("qwen2_5_vl:visual.patch_embed.proj.weight: expected shape [*, 3, 2, 14, 14]"));
}

// The first reference is needed, the others are inputs of runs that have them; LoRA goes where it goes in Qwen-Image.
TEST(QwenImage, ReferencesAreInputsOfThoseThatEdit) {
  const TempDir dir;
  ModelConfig config = write_separate(dir.path());
  const Sizes sizes{{"batch", 1}, {"height", 4}, {"width", 6}, {"text_length", 7}};
  struct Row {
    const char* variant;
    std::set<std::string> images;
    std::vector<std::string> references;
  };
  for (const auto& [variant, images, references] : std::vector<Row>{
           {"edit", {"control"}, {"reference"}},
           {"edit", {"control", "control_2"}, {"reference"}},
           {"edit-2509", {"control"}, {"reference"}},
           {"edit-2509", {"control", "control_2", "control_3"}, {"reference", "reference_2", "reference_3"}},
           {"edit-2511", {"control", "control_3"}, {"reference", "reference_3"}}}) {
    config.given["variant"] = {variant};
    const Model model(built_plugins(), config, "", images);
    check_model(model, DType::f32);
    Graph graph = model.build("denoiser", sizes, DType::f32);
    std::vector<std::string> found;
    for (const auto& [name, value] : graph.inputs)
      if (name.starts_with("reference")) found.push_back(name);
    EXPECT_EQ(found, references) << variant;
    EXPECT_EQ(graph.desc(graph.outputs.at("output")).shape, (Shape{1, 4, 6, 16}));
    EXPECT_EQ(adapt(graph, AdapterSelection({}, model.recipe(), 1), true).size(), 2u * 14 - 4) << variant;
  }
}

// ---- prompts

nlohmann::json table(const char* name) {
  std::ifstream in(fs::path(test_data()) / name);
  return nlohmann::json::parse(in);
}

// With the tokenizer files that ship with the program: the template around each prompt, and what of it is left out.
TEST(QwenImage, PromptsAreTokensOfQwen) {
  const TempDir dir;
  const Model model(built_plugins(), write_separate(dir.path()), "");
  Device device(tested_device());
  TextEncoding text(device, model, DType::f32, {});
  const nlohmann::json rows = table("qwen3.json");
  EXPECT_EQ(text.tokens().sizes().at("qwen2_5_vl.length"), 1058);
  EXPECT_EQ(text.tokens().sizes().at("qwen2_5_vl.drop"),
            static_cast<int64_t>(rows.at("prefix_tokens").at("qwen_image").size()));
  const std::string front = "<|im_start|>user\n", end = "<|im_end|>\n<|im_start|>assistant\n";
  for (const auto& row : rows.at("templates").at("qwen_image")) {
    const auto whole = row.at("text").get<std::string>();
    const size_t begin = whole.find(front) + front.size();
    const std::string prompt = whole.substr(begin, whole.size() - end.size() - begin);
    const Tokens tokens = *text.tokens().of(prompt);
    const auto want = row.at("ids").get<std::vector<int32_t>>();
    const std::span<const int32_t> ids = tokens.at("qwen2_5_vl.input_ids").as<int32_t>(),
                                   mask = tokens.at("qwen2_5_vl.attention_mask").as<int32_t>();
    EXPECT_EQ(std::vector<int32_t>(ids.begin(), ids.begin() + static_cast<int64_t>(want.size())), want) << prompt;
    EXPECT_EQ(std::ranges::count(mask, 1), static_cast<int64_t>(want.size())) << prompt;
  }
}

// The template of those that edit, with a place for each 28 x 28 pixels of a picture: 196 of a square of 2509, 1369 of
// one of the first.
TEST(QwenImage, PicturesHavePlacesAmongTheTokens) {
  const TempDir dir;
  ModelConfig config = write_separate(dir.path());
  const auto front = table("qwen3.json").at("prefix_tokens").at("qwen_image_edit").get<std::vector<int32_t>>();
  struct Row {
    const char* variant;
    std::set<std::string> images;
    int64_t places, first;
  };
  for (const auto& [variant, images, places, first] :
       std::vector<Row>{{"edit", {"control"}, 1369, 65},
                        {"edit-2509", {"control", "control_2"}, 2 * 196, 70},
                        {"edit-2511", {"control", "control_2", "control_3"}, 3 * 196, 70}}) {
    config.given["variant"] = {variant};
    const Model model(built_plugins(), config, "", images);
    Device device(tested_device());
    TextEncoding text(device, model, DType::f32, {});
    EXPECT_EQ(text.tokens().sizes().at("qwen2_5_vl.drop"), static_cast<int64_t>(front.size()));
    const Tokens tokens = *text.tokens().of("a cat");
    const std::span<const int32_t> ids = tokens.at("qwen2_5_vl.input_ids").as<int32_t>();
    EXPECT_EQ(std::vector<int32_t>(ids.begin(), ids.begin() + static_cast<int64_t>(front.size())), front);
    EXPECT_EQ(std::ranges::count(ids, 151655), places) << variant;
    EXPECT_EQ(std::ranges::find(ids, 151655) - ids.begin(), first) << variant;
    for (const int32_t around : {151652, 151653})
      EXPECT_EQ(std::ranges::count(ids, around), static_cast<int64_t>(images.size())) << variant;
  }
}

TEST(QwenImage, RoomForTheTemplateAlone) {
  const TempDir dir;
  const Model model(built_plugins(), write_separate(dir.path()), "");
  EXPECT_THAT(
      error_of([&] {
        model.build("conditioner", {{"batch", 1}, {"qwen2_5_vl.length", 34}, {"qwen2_5_vl.drop", 34}}, DType::f32);
      }),
      HasSubstr("model.max_sequence_length: the template's first 34 tokens count"));
}

// ---- levels of a run, by the recipe alone

TEST(QwenImage, LevelsFollowTheSize) {
  const Recipe recipe = Described(plugin, small_qwen_image.shapes()).recipe();
  const SamplerChoice choice = choose_sampler(built_plugins(), recipe, {});
  const nlohmann::json rows = table("golden/schedules/flow_shift2.json");
  int64_t checked = 0;
  for (const auto& row : rows.at("schedules")) {
    if (row.at("model") != plugin) continue;
    const auto want = row.at("sigmas").get<std::vector<double>>();
    const SamplingSchedule schedule =
        schedule_of(choice, recipe, row.at("steps").get<int64_t>(), row.at("tokens").get<int64_t>());
    ASSERT_EQ(schedule.steps() + 1, static_cast<int64_t>(want.size()));
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_NEAR(schedule.level(static_cast<int64_t>(i)).sigma, want[i], 1e-12) << row.at("tokens") << " " << i;
    ++checked;
  }
  EXPECT_GT(checked, 3);
}

// ---- sizes and texts

// Each sample of a batch is what it is alone, however many rows there are and whatever stands in those that are not
// there. Grids of 4 x 6 and, with odd sides, of 1 x 7 and 5 x 3 patches.
TEST(QwenImage, TextsOfABatchDoNotMeet) {
  const TempDir dir;
  const Model model(built_plugins(), write_separate(dir.path()), "");
  expect_texts_apart(model, {{8, 12}, {2, 14}, {10, 6}});
}

// ---- full size

TEST(QwenImage, FullSizeGraphAndLoraModules) {
  const Shapes shapes = full_qwen_image.shapes();
  EXPECT_EQ(shapes.size(), 1933u);
  EXPECT_EQ(parameters_of(shapes), 20430401088);
  const Described model(plugin, shapes);
  EXPECT_EQ(model.confidence(), 100);
  Graph graph = model.denoiser({{"batch", 1}, {"height", 166}, {"width", 166}, {"text_length", 256}});
  EXPECT_EQ(graph.desc(graph.outputs.at("output")).shape, (Shape{1, 166, 166, 16}));
  std::set<std::string> used, left;
  for (const auto& [name, value] : graph.params) used.insert(name);
  for (const auto& [name, desc] : shapes)
    if (!used.contains(name)) left.insert(name);
  std::set<std::string> dead;  // what nothing reads in the last block
  for (const char* linear : {"attn.add_q_proj", "attn.to_add_out", "txt_mlp.net.0.proj", "txt_mlp.net.2"})
    for (const char* part : {".weight", ".bias"}) dead.insert(fmt::format("transformer_blocks.59.{}{}", linear, part));
  dead.insert("transformer_blocks.59.attn.norm_added_q.weight");
  EXPECT_EQ(left, dead);
  const AdapterSelection selection({}, model.recipe(), 1);
  EXPECT_EQ(adapt(graph, selection, true).size(), 60u * 14 - 4);
}

TEST(QwenImage, PublishedKeyLists) {
  if (!fs::exists(key_lists() / "qwen_image.json")) GTEST_SKIP() << "no key lists in " << key_lists();
  EXPECT_EQ(key_list("qwen_image"), full_qwen_image.shapes());
  EXPECT_EQ(key_list("qwen_image.diffusers-transformer"), full_qwen_image.shapes());
  Shapes all = full_qwen_image.shapes();
  for (const auto& [name, desc] : key_list("qwen_2.5_vl_7b.text")) all["qwen2_5_vl:" + name] = desc;
  for (const auto& [name, desc] : key_list("qwen_image_vae")) all["vae:" + name] = desc;
  EXPECT_NO_THROW(Described(plugin, all));
}

}  // namespace
}  // namespace lh::test::qwen_image_test
