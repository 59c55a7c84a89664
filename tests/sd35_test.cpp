// Stable Diffusion 3.5 beyond its golden cases: every layout of files, variants, positions, left-out blocks, the text
// without T5, and the published models by their key lists.
#include <gmock/gmock.h>

#include <set>

#include "compile/adapters.h"
#include "compile/compile.h"
#include "encode/text_encoding.h"
#include "passes/adapt.h"
#include "run/plan.h"
#include "run/weights.h"
#include "support/device.h"
#include "support/graph_run.h"
#include "support/model_shapes.h"
#include "support/paths.h"
#include "support/run_host.h"

namespace lh::test::sd35_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const char* const plugin = "sd35";

constexpr Mmdit full_large{38, 0, 192, 2432, 4096, 2048}, full_medium{24, 13, 384, 1536, 4096, 2048},
    full_sd3{24, 0, 192, 1536, 4096, 2048, false};

// A whole small medium model whose parts fit each other: native tensors of each component.
const std::map<std::string, std::vector<Given>>& components() {
  static const std::map<std::string, std::vector<Given>> all = [] {
    Shapes clip_l, clip_g, t5;
    add_clip(clip_l, "", 64, 2, 50);
    add_clip(clip_g, "", 64, 2, 50);
    clip_g["text_projection.weight"] = {DType::bf16, {64, 64}};
    add_t5(t5, "", 192, 2, 50);
    return std::map<std::string, std::vector<Given>>{{"denoiser", filled(small_medium.shapes())},
                                                     {"vae", golden_weights("vae_sd35_encode")},
                                                     {"clip_l", filled(clip_l)},
                                                     {"clip_g", filled(clip_g)},
                                                     {"t5", filled(t5)}};
  }();
  return all;
}

// A file for each component.
ModelConfig write_separate(const fs::path& folder, const std::set<std::string>& left_out = {}) {
  const std::map<std::string, std::string> keys{
      {"vae", "vae_path"}, {"clip_l", "clip_path"}, {"clip_g", "clip_g_path"}, {"t5", "t5_path"}};
  ModelConfig config;
  for (const auto& [name, tensors] : components()) {
    if (left_out.contains(name)) continue;
    const fs::path path = folder / (name + ".safetensors");
    write_file(path, tensors);
    if (name == "denoiser")
      config.name_or_path = path;
    else
      config.given[keys.at(name)] = {path};
  }
  return config;
}

using Prefixes = std::map<std::string, std::string>;

void write_one_file(const fs::path& path, const Prefixes& prefixes, const Change& change = as_is) {
  std::vector<Given> all;
  for (const auto& [name, prefix] : prefixes)
    for (const Given& t : components().at(name)) all.push_back({prefix + t.name, change(t.tensor)});
  write_file(path, all);
}

const Sizes small{{"batch", 1}, {"height", 8}, {"width", 12}, {"text_length", 5}};
const SelectAdapter no_adapter = [](const std::string&) -> const AdapterSpec* { return nullptr; };

HostTensor denoise(const Model& model) {
  return output_of(model, build_sample_graph(model, small, no_adapter, DType::f32), "output");
}

// ---- layouts

struct Layout {
  const char* name;
  std::function<void(const fs::path&)> write;  // to this path
  bool half = false;                           // in half precision
};

const Prefixes in_a_bundle{{"denoiser", "model.diffusion_model."},
                           {"vae", "first_stage_model."},
                           {"clip_l", "text_encoders.clip_l.transformer."},
                           {"clip_g", "text_encoders.clip_g.transformer."},
                           {"t5", "text_encoders.t5xxl.transformer."}};

// CLIP as files of other programs have it.
std::vector<Given> without_level(std::vector<Given> clip) {
  for (Given& t : clip)
    if (t.name.starts_with("text_model.")) t.name.erase(0, 11);
  return clip;
}
std::vector<Given> with_extras(std::vector<Given> clip) {
  clip.push_back({"text_projection.weight", counting({64, 64})});
  clip.push_back({"text_model.embeddings.position_ids", counting({1, 77})});
  clip.push_back({"logit_scale", counting(Shape{})});
  return clip;
}

const Layout layouts[] = {
    {"all_in_one", [](const fs::path& p) { write_one_file(p, in_a_bundle); }},
    {"all_in_one_without_a_prefix_for_the_transformer",
     [](const fs::path& p) {
       Prefixes prefixes = in_a_bundle;
       prefixes["denoiser"] = "";
       write_one_file(p, prefixes);
     }},
    {"all_in_one_half", [](const fs::path& p) { write_one_file(p, in_a_bundle, as_half); }, true},
    {"folder",
     [](const fs::path& p) {
       write_directory(p, spec_of(plugin), components(), {"denoiser", "vae"}, "", as_is);
     }},
    {"folder_of_a_variant",
     [](const fs::path& p) {
       write_directory(p, spec_of(plugin), components(), {"denoiser", "vae"}, ".fp16", as_half);
     },
     true},
    {"folder_of_transformers_5",
     [](const fs::path& p) {
       write_directory(p, spec_of(plugin), components(), {"denoiser", "vae"}, "", as_is);
       write_file(p / "text_encoder" / "model.safetensors", without_level(components().at("clip_l")));
       write_file(p / "text_encoder_2" / "model.safetensors", without_level(components().at("clip_g")));
     }},
    {"folder_with_extras",
     [](const fs::path& p) {
       write_directory(p, spec_of(plugin), components(), {"denoiser", "vae"}, "", as_is);
       write_file(p / "text_encoder" / "model.safetensors", with_extras(components().at("clip_l")));
     }},
};

class Sd35Layouts : public testing::TestWithParam<Layout> {};

TEST_P(Sd35Layouts, OpenAsTheSameModel) {
  const TempDir dir;
  const Model want(built_plugins(), write_separate(dir / "separate"), "");
  GetParam().write(dir / "model");
  ModelConfig config;
  config.name_or_path = dir / "model";
  const Model got(built_plugins(), config, "");
  EXPECT_EQ(got.id(), plugin);
  EXPECT_EQ(got.recipe().variant, "medium");
  expect_same(got.checkpoint(), want.checkpoint(), GetParam().half ? as_half : as_is);
  if (!GetParam().half) {
    EXPECT_EQ(denoise(got).data, denoise(want).data);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Sd35Layouts, testing::ValuesIn(layouts),
                         [](const auto& info) { return std::string(info.param.name); });

// ---- variants

struct VariantCase {
  const char* name;
  Mmdit model;
  const char* asked;       // model.variant
  const char* variant;     // what it is taken as; "" = refused ...
  const char* error = "";  // ... with these words
};

const VariantCase variant_cases[] = {
    {"large", small_large, "", "large"},
    {"large_by_name", small_large, "large", "large"},
    {"turbo_is_the_users_word", small_large, "large-turbo", "large-turbo"},
    {"medium", small_medium, "", "medium"},
    {"sd3_medium", {2, 0, 16, 128, 192, 128, false}, "", "sd3-medium"},
    {"medium_asked_of_large", small_large, "medium", "", "the weights are those of large or large-turbo"},
    {"turbo_asked_of_medium", small_medium, "large-turbo", "", "the weights are those of medium"},
};

class Sd35Variants : public testing::TestWithParam<VariantCase> {};

TEST_P(Sd35Variants, AreToldByWeightsAndSetting) {
  const VariantCase& c = GetParam();
  if (c.error[0] != '\0') {
    try {
      const Described model(plugin, c.model.shapes(), c.asked);
      FAIL() << "was taken as " << model.recipe().variant;
    } catch (const std::runtime_error& e) {
      EXPECT_THAT(e.what(), HasSubstr(c.error));
    }
    return;
  }
  const Described model(plugin, c.model.shapes(), c.asked);
  EXPECT_EQ(model.confidence(), 100);
  const Recipe recipe = model.recipe();
  EXPECT_EQ(recipe.variant, c.variant);
  EXPECT_EQ(recipe.sampling.schedule.shift, 3.0);
  EXPECT_EQ(recipe.sampling.steps, recipe.variant == "large-turbo" ? 4 : recipe.variant == "medium" ? 40 : 28);
}

INSTANTIATE_TEST_SUITE_P(All, Sd35Variants, testing::ValuesIn(variant_cases),
                         [](const auto& info) { return std::string(info.param.name); });

// ---- the transformer

TEST(Sd35, ImagesLargerThanTheGridAreRefused) {
  const Described model(plugin, small_large.shapes());
  const auto build = [&](int64_t height, int64_t width) {
    return model.denoiser({{"batch", 1}, {"height", height}, {"width", width}, {"text_length", 5}});
  };
  EXPECT_EQ(build(32, 8).outputs.size(), 1u);  // 16 patches, the whole grid
  for (const auto& [height, width] : {std::pair<int64_t, int64_t>{34, 8}, {8, 34}}) try {
      build(height, width);
      ADD_FAILURE() << height << "x" << width;
    } catch (const std::runtime_error& e) {
      EXPECT_THAT(e.what(), HasSubstr("pos_embed has positions for at most 32x32; use smaller images"));
    }
}

// A block without gates adds nothing, so leaving it out is the same.
TEST(Sd35, SkippedLayersPassTheirInputOn) {
  const TempDir dir;
  std::vector<Given> tensors = components().at("denoiser");
  for (Given& t : tensors)
    if (t.name.starts_with("joint_blocks.1.") && t.name.find("adaLN_modulation") != std::string::npos)
      std::ranges::fill(t.tensor.data, std::byte{0});
  write_file(dir / "model.safetensors", tensors);
  ModelConfig config;
  config.name_or_path = dir / "model.safetensors";
  const Model model(built_plugins(), config, "");
  const Described described(plugin, small_medium.shapes());
  const HostTensor whole = output_of(model, described.denoiser(small), "output");
  const Graph without = described.denoiser(small, {1});
  for (const auto& [name, value] : without.params) EXPECT_FALSE(name.starts_with("joint_blocks.1.")) << name;
  EXPECT_EQ(output_of(model, without, "output").data, whole.data);
  EXPECT_NE(output_of(model, described.denoiser(small, {0}), "output").data, whole.data);
  EXPECT_THROW(described.denoiser(small, {3}), std::runtime_error);
}

// ---- text

// Rows [first, first + count) of text [1, L, D].
std::vector<float> text_rows(const HostTensor& text, int64_t first, int64_t count) {
  const int64_t width = text.desc.shape[2];
  const auto values = text.as<float>().subspan(static_cast<size_t>(first * width), static_cast<size_t>(count * width));
  return {values.begin(), values.end()};
}

HostTensor condition(const Model& model, const std::string& output) {
  Sizes sizes{{"batch", 1}};
  for (const auto& [encoder, spec] : model.recipe().tokenizers) sizes[encoder + ".length"] = spec.length;
  return output_of(model, model.build("conditioner", sizes, DType::f32), output);
}

TEST(Sd35, WithoutT5ItsRowsAreZero) {
  const TempDir dir;
  const Model with(built_plugins(), write_separate(dir / "a"), ""),
      without(built_plugins(), write_separate(dir / "b", {"t5"}), "");
  EXPECT_EQ(with.recipe().tokenizers.size(), 3u);
  EXPECT_EQ(without.recipe().tokenizers.size(), 2u);
  const HostTensor all = condition(with, "text"), clips = condition(without, "text");
  EXPECT_EQ(all.desc.shape, (Shape{1, 77 + 256, 192}));
  EXPECT_EQ(clips.desc.shape, (Shape{1, 77 + 77, 192}));
  EXPECT_EQ(text_rows(clips, 0, 77), text_rows(all, 0, 77));
  EXPECT_EQ(text_rows(clips, 77, 77), std::vector<float>(77 * 192, 0.0f));
  EXPECT_EQ(condition(with, "pooled").data, condition(without, "pooled").data);
}

// The other encoders cannot be left out.
TEST(Sd35, EncodersThatAreNeeded) {
  const TempDir dir;
  Device device(tested_device());
  for (const auto& [encoder, key] :
       {std::pair<std::string, std::string>{"clip_l", "clip_path"}, {"clip_g", "clip_g_path"}}) {
    const Model model(built_plugins(), write_separate(dir / encoder, {encoder}), "");
    EXPECT_THAT(error_of([&] { (void)TextEncoding(device, model, DType::f32, {}).most_lengths().at("text_length"); }),
                HasSubstr(fmt::format("model.{}: text encoder '{}' is needed", key, encoder)));
  }
}

TEST(Sd35, TheUserSetsTheLengthOfT5) {
  const TempDir dir;
  Device device(tested_device());
  ModelConfig config = write_separate(dir.path());
  const auto length = [&](int64_t asked) {
    config.max_sequence_length = asked;
    const Model model(built_plugins(), config, "");
    return TextEncoding(device, model, DType::f32, {}).most_lengths().at("text_length");
  };
  EXPECT_EQ(length(0), 77 + 256);
  EXPECT_EQ(length(77), 77 + 77);
  EXPECT_EQ(length(512), 77 + 512);
  EXPECT_THAT(error_of([&] { length(513); }), HasSubstr("'sd35' takes at most 512 tokens, found 513"));
}

// ---- a run

TEST(Sd35, TrainsAndSamplesWithAndWithoutT5) {
  for (const bool with_t5 : {true, false}) {
    const TempDir dir;
    write_small_sd35(dir / "model.safetensors", small_medium, with_t5);
    put(dir / "train.yaml", fmt::format(R"(
name: run
training_folder: {0}/runs
device: cpu
model: {{name_or_path: {0}/model.safetensors, max_sequence_length: {2}}}
network: {{linear: 2}}
datasets: [{{folder_path: {1}/examples/demo/photos, resolution: 64}}]
train: {{steps: 2, lr: 1e-3, dtype: fp32, timestep_type: sigmoid}}
sample: {{prompts: [a photo], sample_every: 2, sample_steps: 2, width: 64, height: 64,
  skip_layer_guidance_scale: 0}}  # the small model has no blocks 7 to 9
)",
                                        dir.path().string(), source_dir(), with_t5 ? 32 : 0));
    const HostResult result = run_host({"train", "--config", (dir / "train.yaml").string()});
    ASSERT_EQ(result.code, 0) << result.output;
    EXPECT_EQ(result.output.find("warning"), std::string::npos) << result.output;
    EXPECT_EQ(result.output.find("no file for text encoder t5") == std::string::npos, with_t5) << result.output;
    const Safetensors lora(dir / "runs/run/run.safetensors");
    EXPECT_EQ(lora.tensors().size(),
              3u * 31);  // three blocks of ten modules, two second attentions, less the last three
    EXPECT_EQ(lora.metadata().at("ss_base_model_version"), "5-medium");
    EXPECT_EQ(lora.metadata().at("modelspec.architecture"), "stable-diffusion-3-5-medium/lora");
    EXPECT_EQ(lora.metadata().at("lora_host.variant"), "medium");
    const HostTensor up = converted(lora.read("lora_unet_joint_blocks_1_x_block_attn2_qkv.lora_up.weight"), DType::f32);
    EXPECT_TRUE(std::ranges::any_of(up.as<float>(), [](float v) { return v != 0; }));
    bool image = false;
    for (const auto& entry : fs::recursive_directory_iterator(dir / "runs/run"))
      image |= entry.path().extension() == ".png";
    EXPECT_TRUE(image) << result.output;
  }
}

// ---- full size

struct FullSize {
  const char* name;
  Mmdit model;
  size_t tensors;
  int64_t parameters;
  size_t modules;  // of the default LoRA
};

const FullSize full_sizes[] = {{"large", full_large, 923, 8146280768, 377},
                               {"medium", full_medium, 665, 2469663936, 263},
                               {"sd3-medium", full_sd3, 491, 2084951104, 237}};

TEST(Sd35, FullSizeGraphsAndLoraModules) {
  for (const FullSize& row : full_sizes) {
    const Shapes shapes = row.model.shapes();
    EXPECT_EQ(shapes.size(), row.tensors) << row.name;
    EXPECT_EQ(parameters_of(shapes), row.parameters) << row.name;
    const Described model(plugin, shapes);
    const Recipe recipe = model.recipe();
    EXPECT_EQ(recipe.variant, row.name);
    Graph graph = model.denoiser({{"batch", 1}, {"height", 128}, {"width", 128}, {"text_length", 333}});
    EXPECT_EQ(graph.desc(graph.outputs.at("output")).shape, (Shape{1, 128, 128, 16}));
    std::set<std::string> used, known;
    for (const auto& [name, value] : graph.params) used.insert(name);
    for (const auto& [name, desc] : shapes) known.insert(name);
    EXPECT_EQ(used, known);  // no weight is left out
    const AdapterSelection selection({}, recipe, 1);
    const std::vector<AdaptedModule> modules = adapt(graph, selection, true);
    EXPECT_EQ(modules.size(), row.modules) << row.name;
    const std::string last = fmt::format("joint_blocks.{}.context_block.", row.model.blocks - 1);
    for (const AdaptedModule& m : modules) {
      EXPECT_TRUE(m.name.starts_with("joint_blocks.")) << m.name;
      if (m.name.starts_with(last)) {
        EXPECT_TRUE(m.name == last + "adaLN_modulation.1" || m.name == last + "attn.qkv") << m.name;
      }
    }
  }
}

TEST(Sd35, PublishedKeyLists) {
  if (!fs::exists(key_lists() / "sd3.5_large.json")) GTEST_SKIP() << "no key lists in " << key_lists();
  const CheckpointSpec spec = spec_of(plugin);
  for (const auto& [name, model] :
       {std::pair<std::string, Mmdit>{"sd3.5_large", full_large}, {"sd3.5_medium", full_medium}}) {
    EXPECT_EQ(key_list(name), model.shapes()) << name;
    expect_maps(*spec.component("denoiser"), name + ".diffusers-transformer", name);
  }
  expect_maps(*spec.component("vae"), "sd3.5.diffusers-vae", "ae");
  expect_maps(*spec.component("clip_l"), "sd3.5.diffusers-text_encoder", "clip_l");
  expect_maps(*spec.component("clip_g"), "sd3.5.diffusers-text_encoder_2", "clip_g");
  expect_maps(*spec.component("t5"), "sd3.5.diffusers-text_encoder_3", "t5xxl");
}

}  // namespace
}  // namespace lh::test::sd35_test
