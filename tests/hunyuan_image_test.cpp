// HunyuanImage 2.1 beyond its golden cases: every layout of files, refusals, variants, words in quotes, texts and
// glyphs of a batch, and the published model by its shapes.
#include <gmock/gmock.h>

#include <set>

#include "compile/adapter_selection.h"
#include "compile/compile.h"
#include "encode/denoiser_inputs.h"
#include "encode/prompt_tokens.h"
#include "io/lora_names.h"
#include "passes/adapt.h"
#include "run/weights.h"
#include "support/device.h"
#include "support/graph_run.h"
#include "support/hunyuan_image_shapes.h"
#include "support/layouts.h"
#include "support/model_shapes.h"
#include "support/paths.h"
#include "support/qwen_image_shapes.h"
#include "support/wrong_models.h"

namespace lh::test::hunyuan_image_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const char* const plugin = "hunyuan_image";

// A whole small model whose parts fit each other: native tensors of each component.
const std::map<std::string, std::vector<Given>>& components() {
  static const std::map<std::string, std::vector<Given>> all = [] {
    Shapes text, glyphs, vae;
    add_qwen2_5(text, "", small_hunyuan_image.text, 1626);
    add_t5(glyphs, "", small_hunyuan_image.glyphs, 1, 300);
    add_hunyuan_image_vae(vae, "", small_vae_channels);
    return std::map<std::string, std::vector<Given>>{{"denoiser", filled(small_hunyuan_image.shapes())},
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
  config.given["tokenizer_path"] = {std::string(source_dir()) + "/tests/data/qwen_small"};
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
  all.push_back({"text_encoders.qwen25_7b.transformer.visual.patch_embed.proj.weight", counting({2, 2})});
  write_file(folder / "all.safetensors", all);
  return single(folder / "all.safetensors");
}

ModelConfig directory(const fs::path& folder, const std::string& variant, const Change& change) {
  write_directory(folder, spec_of(plugin), components(), {"denoiser", "vae"}, variant, change);
  put(folder / "model_index.json", R"({"_class_name": "HunyuanImagePipeline"})");
  return single(folder);
}

// The original name of a canonical one.
std::string original(std::string name) {
  const std::pair<const char*, const char*> parts[] = {{"txt_in.t_embedder.in_layer", "txt_in.t_embedder.mlp.0"},
                                                       {"txt_in.t_embedder.out_layer", "txt_in.t_embedder.mlp.2"},
                                                       {"txt_in.c_embedder.in_layer", "txt_in.c_embedder.linear_1"},
                                                       {"txt_in.c_embedder.out_layer", "txt_in.c_embedder.linear_2"},
                                                       {"_in.in_layer", "_in.mlp.0"},
                                                       {"_in.out_layer", "_in.mlp.2"},
                                                       {"_mod.lin", "_mod.linear"},
                                                       {"modulation.lin", "modulation.linear"},
                                                       {"_attn.qkv", "_attn_qkv"},
                                                       {"_attn.proj", "_attn_proj"},
                                                       {"_attn.norm.query_norm.scale", "_attn_q_norm.weight"},
                                                       {"_attn.norm.key_norm.scale", "_attn_k_norm.weight"},
                                                       {".norm.query_norm.scale", ".q_norm.weight"},
                                                       {".norm.key_norm.scale", ".k_norm.weight"},
                                                       {"_mlp.0", "_mlp.fc1"},
                                                       {"_mlp.2", "_mlp.fc2"}};
  if (name.starts_with("txt_in.individual"))
    for (const auto& [from, to] : {std::pair{".mlp.0", ".mlp.fc1"}, std::pair{".mlp.2", ".mlp.fc2"}})
      if (const size_t at = name.find(from); at != name.npos) return name.replace(at, std::string(from).size(), to);
  for (const auto& [from, to] : parts)
    if (const size_t at = name.find(from); at != name.npos) return name.replace(at, std::string(from).size(), to);
  return name;
}

// q, k, v and the mlp's part of a single block each in a tensor of its own.
std::vector<Given> apart(const std::vector<Given>& tensors) {
  std::vector<Given> all;
  for (const Given& t : tensors) {
    const size_t dot = t.name.rfind('.');
    const std::string module = t.name.substr(0, dot), part = t.name.substr(dot);
    const bool qkv = module.ends_with("_attn_qkv"), wide = module.ends_with(".linear1");
    if (module.ends_with(".linear2")) all.push_back({module + ".fc" + part, t.tensor});
    if (!qkv && !wide && !module.ends_with(".linear2")) all.push_back(t);
    if (!qkv && !wide) continue;
    const int64_t h = small_hunyuan_image.hidden;
    const std::string root = qkv ? module.substr(0, module.size() - 3) : module + "_";
    for (int64_t i = 0; i < 3; ++i)
      all.push_back({root + std::string("qkv").substr(static_cast<size_t>(i), 1) + part, rows_of(t.tensor, i * h, h)});
    if (wide) all.push_back({root + "mlp" + part, rows_of(t.tensor, 3 * h, t.tensor.desc.shape[0] - 3 * h)});
  }
  return all;
}

ModelConfig with_original_names(const fs::path& folder, bool split) {
  ModelConfig config = write_separate(folder);
  std::vector<Given> tensors = components().at("denoiser");
  for (Given& t : tensors) t.name = original(t.name);
  write_file(folder / "denoiser.safetensors", split ? apart(tensors) : tensors);
  return config;
}

// One component's file with the names of diffusers.
ModelConfig with_names_of_diffusers(const fs::path& folder, const std::string& component) {
  ModelConfig config = write_separate(folder);
  std::vector<Given> tensors;
  for (const Given& t : components().at(component))
    for (const Given& part : in_diffusers(*spec_of(plugin).component(component), t, components().at(component)))
      tensors.push_back(part);
  write_file(folder / (component + ".safetensors"), tensors);
  return config;
}

const Layout layouts[] = {
    {"all_in_one", [](const fs::path& p) { return all_in_one(p, "model.diffusion_model."); }},
    {"all_in_one_without_a_prefix", [](const fs::path& p) { return all_in_one(p, ""); }},
    {"original_names", [](const fs::path& p) { return with_original_names(p, false); }},
    {"original_names_apart", [](const fs::path& p) { return with_original_names(p, true); }},
    {"folder", [](const fs::path& p) { return directory(p, "", as_is); }},
    {"folder_of_a_variant", [](const fs::path& p) { return directory(p, ".fp16", as_half); }, as_half},
    {"denoiser_with_the_names_of_diffusers", [](const fs::path& p) { return with_names_of_diffusers(p, "denoiser"); }},
    {"autoencoder_with_the_names_of_diffusers", [](const fs::path& p) { return with_names_of_diffusers(p, "vae"); }},
};

class HunyuanImageLayouts : public testing::TestWithParam<Layout> {};

TEST_P(HunyuanImageLayouts, OpenAsTheSameModel) {
  expect_same_model(
      plugin, GetParam(), [](const fs::path& folder) { return write_separate(folder); },
      {{"denoiser", {{"batch", 1}, {"height", 4}, {"width", 6}, {"text_length", 40}, {"glyphs_length", 20}}},
       {"conditioner", {{"batch", 2}, {"qwen2_5_vl.length", 40}, {"qwen2_5_vl.drop", 34}, {"byt5.length", 30}}},
       {"vae.encode", {{"batch", 1}, {"height", 64}, {"width", 32}}},
       {"vae.decode", {{"batch", 1}, {"height", 4}, {"width", 2}}}},
      "base");
}

INSTANTIATE_TEST_SUITE_P(All, HunyuanImageLayouts, testing::ValuesIn(layouts), layout_name);

// ---- what is not HunyuanImage 2.1, or not whole

void set(Shapes& shapes, const std::string& name, const Shape& shape) { shapes[name] = {DType::bf16, shape}; }

const WrongModel wrongs[] = {
    {"heads",
     [](Shapes& s) {
       set(s, "img_in.proj.weight", {200, 64, 1, 1});
     },
     "img_in.proj.weight: expected a multiple of 128 rows (heads of 128), found 200"},
    {"further_channels",
     [](Shapes& s) {
       set(s, "img_in.proj.weight", {128, 96, 1, 1});
     },
     "img_in.proj.weight: expected shape [128, 64, 1, 1], found [128, 96, 1, 1]"},
    {"no_refiner", [](Shapes& s) { s.erase("txt_in.individual_token_refiner.blocks.0.mlp.0.weight"); },
     "missing tensor txt_in.individual_token_refiner.blocks.0.mlp.0.weight"},
    {"glyphs", [](Shapes& s) { s.erase("byt5_in.fc2.bias"); }, "missing tensor byt5_in.fc2.bias"},
    {"modulation",
     [](Shapes& s) {
       set(s, "single_blocks.1.modulation.lin.weight", {256, 128});
     },
     "single_blocks.1.modulation.lin.weight: expected shape [384, 128], found [256, 128]"},
    {"text_width", [](Shapes& s) { add_qwen2_5(s, "qwen2_5_vl:", 64, 60); },
     "txt_in.input_embedder.weight takes 96 columns, but qwen2_5_vl gives 64: the files do not belong together"},
    {"glyph_width", [](Shapes& s) { add_t5(s, "byt5:", 32, 1, 300); },
     "byt5_in.fc1.weight takes 64 columns, but byt5 gives 32: the files do not belong together"},
    {"levels_of_the_autoencoder",
     [](Shapes& s) {
       add_hunyuan_image_vae(s, "vae:", {32, 32, 64, 128});
     },
     "vae:encoder.down.*: expected 6 levels, found 4"},
    {"size_of_a_level",
     [](Shapes& s) {
       add_hunyuan_image_vae(s, "vae:", small_vae_channels);
       set(s, "vae:decoder.up.1.upsample.conv.weight", {100, 64, 3, 3});
     },
     "vae:decoder.up.1.upsample.conv.weight: expected a multiple of 64 channels, found 100"},
};

TEST(HunyuanImage, WrongTensorsAreNamed) { expect_refused(plugin, small_hunyuan_image.shapes(), wrongs); }

const WrongModel relatives[] = {
    {"refiner",
     [](Shapes& s) {
       set(s, "img_in.proj.weight", {128, 128, 1, 1, 1});
     },
     "this is HunyuanImage's refiner"},
    {"video", [](Shapes& s) { add_linear(s, "vector_in.in_layer", 128, 64); }, "this is the first HunyuanVideo"},
    {"video_15", [](Shapes& s) { add_norm(s, "vision_in.proj.0", 64); }, "this is HunyuanVideo 1.5"},
};

TEST(HunyuanImage, RelativesAreRefusedByName) {
  expect_files_refused({plugin}, small_hunyuan_image.shapes(), relatives);
}

TEST(HunyuanImage, HunyuanImage3IsRefusedByName) {
  const TempDir dir;
  write_file(dir / "model.safetensors", {{"model.layers.0.mlp.gate.wg.weight", counting({2, 2})}});
  EXPECT_THAT(error_of([&] { const Model model(built_plugins(), single(dir / "model.safetensors"), ""); }),
              HasSubstr("this is HunyuanImage 3"));
}

// ---- variants

TEST(HunyuanImage, TheDistilledModelIsToldGuidanceAndTheEndOfAStep) {
  HunyuanImageDit denoiser = small_hunyuan_image;
  EXPECT_EQ(Described(plugin, denoiser.shapes()).recipe().sampling.schedule.shift, 5.0);
  denoiser.distilled = true;
  const Described model(plugin, denoiser.shapes());
  const Recipe recipe = model.recipe();
  EXPECT_EQ(recipe.variant, "distilled");
  EXPECT_EQ(recipe.sampling.steps, 8);
  EXPECT_EQ(recipe.sampling.schedule.shift, 4.0);
  EXPECT_EQ(recipe.inputs.at("step_end").text(), "time.end");
  const Graph graph =
      model.denoiser({{"batch", 1}, {"height", 4}, {"width", 4}, {"text_length", 8}, {"glyphs_length", 1}});
  EXPECT_TRUE(graph.inputs.contains("step_end") && graph.inputs.contains("guidance"));
  // In training a step has no length.
  const DenoiserInputs inputs(recipe);
  const Sizes sizes{{"batch", 2}, {"height", 4}, {"width", 4}};
  InputRow sampled{.level = {.alpha = 0.5, .sigma = 0.5, .time = 0.5f, .end = 0.25f}};
  const InputRow trained{.level = {.alpha = 0.5, .sigma = 0.5, .time = 0.5f}};
  const NamedTensors given = inputs.batch({sampled, trained}, sizes);
  EXPECT_EQ(given.at("step_end").as<float>()[0], 0.25f);
  EXPECT_EQ(given.at("step_end").as<float>()[1], 0.5f);
  EXPECT_EQ(given.at("timestep").as<float>()[0], 0.5f);
}

// ---- words in quotes

// A byte is its number and 3 more, and 1 is the end.
TEST(HunyuanImage, WordsInQuotesAreReadByteByByte) {
  const TempDir dir;
  const Model model(built_plugins(), write_separate(dir.path()), "");
  PromptTokens tokens(model);
  const auto glyphs = [&](const std::string& prompt) {
    const std::shared_ptr<const Tokens> of = tokens.of(prompt);
    const std::span<const int32_t> ids = of->at("byt5.input_ids").as<int32_t>(),
                                   mask = of->at("byt5.attention_mask").as<int32_t>();
    EXPECT_EQ(ids.size(), 128u);
    return std::vector<int32_t>(ids.begin(), ids.begin() + std::ranges::count(mask, 1));
  };
  std::vector<int32_t> want;
  for (const char c : std::string("Text \"n\xc3\xa9 {prompt}\". ")) want.push_back(static_cast<uint8_t>(c) + 3);
  want.push_back(1);
  EXPECT_EQ(glyphs("a sign: \"n\xc3\xa9 {prompt}\""), want);
  EXPECT_EQ(glyphs("a cat"), std::vector<int32_t>{1});
  EXPECT_EQ(glyphs("\"" + std::string(200, 'a') + "\"").size(), 128u);
}

TEST(HunyuanImage, WorksWithoutItsReaderOfGlyphs) {
  const TempDir dir;
  ModelConfig config = write_separate(dir.path());
  config.given.erase("byt5_path");
  const Model model(built_plugins(), config, "");
  EXPECT_FALSE(model.recipe().tokenizers.contains("byt5"));
  const Graph graph =
      model.build("conditioner", {{"batch", 1}, {"qwen2_5_vl.length", 40}, {"qwen2_5_vl.drop", 34}}, DType::f32);
  EXPECT_EQ(graph.desc(graph.outputs.at("glyphs")).shape, (Shape{1, 1, 64}));
}

// ---- texts and glyphs of a batch

struct Rows {
  std::vector<int32_t> text, glyphs;  // of each sample
};

// What stands in rows that are not there is `noise`.
HostTensor denoised(const Model& model, const Rows& rows, int64_t text_room, int64_t glyph_room, float noise) {
  const auto batch = static_cast<int64_t>(rows.text.size());
  const auto no_adapter = [](const std::string&) -> const AdapterSpec* { return nullptr; };
  Graph graph = build_sample_graph(
      model, {{"batch", batch}, {"height", 5}, {"width", 3}, {"text_length", text_room}, {"glyphs_length", glyph_room}},
      no_adapter, DType::f32);
  NamedTensors given;
  const auto states = [&](const char* name, const std::vector<int32_t>& lengths, int64_t room, int64_t width) {
    HostTensor all(Desc{DType::f32, {batch, room, width}});
    const HostTensor one = ramp({(room + 1) * width}, 5);
    std::ranges::fill(all.as<float>(), noise);
    for (int64_t b = 0; b < batch; ++b)
      std::copy_n(one.as<float>().begin(), lengths[static_cast<size_t>(b)] * width,
                  all.as<float>().begin() + b * room * width);
    given.emplace(name, std::move(all));
  };
  states("text", rows.text, text_room, small_hunyuan_image.text);
  states("glyphs", rows.glyphs, glyph_room, small_hunyuan_image.glyphs);
  given.emplace("text_lengths", HostTensor::from_ints({batch}, rows.text));
  given.emplace("glyph_lengths", HostTensor::from_ints({batch}, rows.glyphs));
  HostTensor latents(Desc{DType::f32, {batch, 5, 3, 64}}), time(Desc{DType::f32, {batch}});
  const HostTensor one = ramp({5 * 3 * 64}, 3);
  for (int64_t b = 0; b < batch; ++b) std::ranges::copy(one.as<float>(), latents.as<float>().begin() + b * 5 * 3 * 64);
  std::ranges::fill(time.as<float>(), 0.4f);
  given.emplace("latents", std::move(latents));
  given.emplace("timestep", std::move(time));
  Device device(tested_device());
  const Weights weights(device, model.checkpoint(), graph);
  const Externals bound = weights.bind(graph);
  OwnedProgram program(device, std::move(graph), bound, "texts of a batch");
  for (const auto& [name, tensor] : given)
    if (program->graph().inputs.contains(name)) program->set_input(name, tensor);
  program->run();
  return program->output("output");
}

// Each sample of a batch is what it is alone, however many rows there are and whatever stands in those that are not
// there; one row of glyphs is none.
TEST(HunyuanImage, TextsAndGlyphsOfABatchDoNotMeet) {
  const TempDir dir;
  const Model model(built_plugins(), write_separate(dir.path()), "");
  const Rows rows{{5, 31, 2, 7}, {9, 1, 20, 1}};
  const HostTensor batch = denoised(model, rows, 40, 24, 3.0f);
  for (size_t i = 0; i < rows.text.size(); ++i) {
    const HostTensor alone = denoised(model, {{rows.text[i]}, {rows.glyphs[i]}}, rows.text[i], rows.glyphs[i], 0.0f);
    EXPECT_LT(relative_error(rows_of(batch, static_cast<int64_t>(i), 1), alone), 2e-6) << i;
  }
  const HostTensor with = denoised(model, {{7}, {9}}, 7, 9, 0.0f), without = denoised(model, {{7}, {1}}, 7, 1, 0.0f);
  EXPECT_GT(relative_error(with, without), 1e-3);
}

// ---- LoRA files

// Names of sd-scripts, and of diffusers, whose q, k, v and mlp are rows of a module.
TEST(HunyuanImage, NamesOfOtherProgramsAreRead) {
  std::map<std::string, Desc> weights;
  for (const auto& [name, desc] : full_hunyuan_image.shapes()) weights[name] = desc;
  const LoraNameTable names(spec_of(plugin), weights);
  struct Row {
    const char *name, *native;
    int64_t first, rows;
  };
  constexpr int64_t h = 3584;
  for (const Row& row :
       {Row{"lora_unet_double_blocks_3_img_mlp_fc1", "double_blocks.3.img_mlp.0", 0, 4 * h},
        Row{"lora_unet_double_blocks_3_txt_mod_linear", "double_blocks.3.txt_mod.lin", 0, 6 * h},
        Row{"lora_unet_double_blocks_3_txt_attn_qkv", "double_blocks.3.txt_attn.qkv", 0, 3 * h},
        Row{"lora_unet_single_blocks_39_modulation_linear", "single_blocks.39.modulation.lin", 0, 3 * h},
        Row{"lora_unet_single_blocks_39_linear1", "single_blocks.39.linear1", 0, 7 * h},
        Row{"transformer.transformer_blocks.3.attn.add_k_proj", "double_blocks.3.txt_attn.qkv", h, h},
        Row{"transformer.single_transformer_blocks.0.proj_mlp", "single_blocks.0.linear1", 3 * h, 4 * h},
        Row{"transformer.context_embedder.token_refiner.refiner_blocks.1.attn.to_v",
            "txt_in.individual_token_refiner.blocks.1.self_attn.qkv", 2 * h, h}}) {
    const LoraPlace* place = names.find(row.name);
    ASSERT_NE(place, nullptr) << row.name;
    EXPECT_EQ(place->native, row.native);
    EXPECT_EQ(place->first_row, row.first) << row.name;
    EXPECT_EQ(place->rows, row.rows) << row.name;
  }
}

// ---- full size

TEST(HunyuanImage, FullSizeGraphAndLoraModules) {
  const Shapes shapes = full_hunyuan_image.shapes();
  const Described model(plugin, shapes);
  EXPECT_EQ(model.confidence(), 100);
  Graph graph =
      model.denoiser({{"batch", 1}, {"height", 64}, {"width", 48}, {"text_length", 256}, {"glyphs_length", 40}});
  EXPECT_EQ(graph.desc(graph.outputs.at("output")).shape, (Shape{1, 64, 48, 64}));
  std::set<std::string> used;
  for (const auto& [name, value] : graph.params) used.insert(name);
  for (const auto& [name, desc] : shapes) EXPECT_TRUE(used.contains(name)) << name;
  EXPECT_EQ(adapt(graph, AdapterSelection({}, model.recipe(), 1), true).size(), 320u);  // 20 of ten, 40 of three
}

}  // namespace
}  // namespace lh::test::hunyuan_image_test
