// Anima beyond its golden cases: every layout of files, refusals, prompts in two vocabularies, rows of zeros, sizes,
// LoRA on the adapter, and the published model by its shapes.
#include <fmt/core.h>
#include <gmock/gmock.h>

#include <cmath>
#include <set>
#include <string_view>

#include "compile/adapters.h"
#include "compile/compile.h"
#include "encode/check_model.h"
#include "encode/text_encoding.h"
#include "graph/op.h"
#include "io/lora_file.h"
#include "io/lora_verify.h"
#include "passes/adapt.h"
#include "run/plan.h"
#include "run/weights.h"
#include "support/anima_shapes.h"
#include "support/device.h"
#include "support/graph_run.h"
#include "support/layouts.h"
#include "support/model_shapes.h"
#include "support/wrong_models.h"
#include "support/z_image_shapes.h"

namespace lh::test::anima_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const char* const plugin = "anima";
const std::string mark = "llm_adapter.";  // of the adapter's names in the transformer's file

// A whole small model whose parts fit each other: native tensors of each component.
const std::map<std::string, std::vector<Given>>& components() {
  static const std::map<std::string, std::vector<Given>> all = [] {
    Shapes adapter, text;
    add_anima_adapter(adapter, "", small_anima_adapter);
    add_llm(text, "", {small_anima_adapter.source, 2, 2, 128, 60});
    return std::map<std::string, std::vector<Given>>{{"denoiser", filled(small_anima.shapes())},
                                                     {"llm_adapter", filled(adapter)},
                                                     {"vae", golden_weights("vae_qwen_image_encode")},
                                                     {"qwen3", filled(text)}};
  }();
  return all;
}

// The transformer's file, with the adapter inside, both behind a prefix.
std::vector<Given> transformer_file(const std::string& prefix, const Change& change = as_is) {
  std::vector<Given> all;
  for (const auto& [name, inner] : {std::pair{"denoiser", std::string()}, std::pair{"llm_adapter", mark}})
    for (const Given& t : components().at(name)) all.push_back({prefix + inner + t.name, change(t.tensor)});
  return all;
}

// A file for transformer and adapter, and one for each other component.
ModelConfig write_separate(const fs::path& folder, const std::string& prefix = "net.") {
  fs::create_directories(folder);
  write_file(folder / "anima.safetensors", transformer_file(prefix));
  ModelConfig config = single(folder / "anima.safetensors");
  for (const std::string name : {"vae", "qwen3"}) {
    write_file(folder / (name + ".safetensors"), components().at(name));
    config.given[name + "_path"] = {folder / (name + ".safetensors")};
  }
  return config;
}

// ---- layouts

const Change as_fp8 = [](const HostTensor& t) { return t.desc.shape.rank() == 2 ? as_type(t, DType::f8_e4m3) : t; };

ModelConfig all_in_one(const fs::path& folder, const std::string& prefix, const Change& change) {
  std::vector<Given> all = transformer_file(prefix, change);
  for (const auto& [name, inner] :
       {std::pair{"vae", std::string("vae.")}, std::pair{"qwen3", std::string("text_encoders.qwen3_06b.transformer.")}})
    for (const Given& t : components().at(name)) all.push_back({inner + t.name, change(t.tensor)});
  write_file(folder / "all.safetensors", all);
  return single(folder / "all.safetensors");
}

ModelConfig directory(const fs::path& folder, const std::string& variant, const Change& change) {
  write_directory(folder, spec_of(plugin), components(), {"denoiser", "llm_adapter", "vae"}, variant, change);
  put(folder / "transformer" / "config.json", R"({"_class_name": "CosmosTransformer3DModel"})");
  put(folder / "modular_model_index.json", R"({"_class_name": "AnimaModularPipeline"})");
  return single(folder);
}

const Layout layouts[] = {
    {"all_in_one", [](const fs::path& p) { return all_in_one(p, "model.diffusion_model.", as_is); }},
    {"all_in_one_without_a_prefix", [](const fs::path& p) { return all_in_one(p, "", as_is); }},
    {"all_in_one_in_fp8", [](const fs::path& p) { return all_in_one(p, "model.diffusion_model.", as_fp8); }, as_fp8},
    {"transformer_without_a_prefix", [](const fs::path& p) { return write_separate(p, ""); }},
    {"transformer_with_tables_that_follow",
     [](const fs::path& p) {
       ModelConfig config = write_separate(p);
       std::vector<Given> tensors = transformer_file("net.");
       for (const char* name :
            {"pos_embedder.seq", "pos_embedder.dim_spatial_range", "blocks.0.self_attn.q_norm._extra_state"})
         tensors.push_back({std::string("net.") + name, counting({4})});
       write_file(config.name_or_path, tensors);
       return config;
     }},
    {"encoder_without_its_head_level",
     [](const fs::path& p) {
       ModelConfig config = write_separate(p);
       std::vector<Given> tensors = components().at("qwen3");
       for (Given& t : tensors) t.name = t.name.substr(std::string("model.").size());
       write_file(p / "qwen3.safetensors", tensors);
       return config;
     }},
    {"folder", [](const fs::path& p) { return directory(p, "", as_is); }},
    {"folder_of_a_variant", [](const fs::path& p) { return directory(p, ".fp16", as_half); }, as_half},
    {"folders_apart",
     [](const fs::path& p) {
       directory(p, "", as_is);
       ModelConfig config = single(p / "transformer");
       config.given["llm_adapter_path"] = {p / "text_conditioner"};
       config.given["vae_path"] = {p / "vae"};
       config.given["qwen3_path"] = {p / "text_encoder"};
       return config;
     }},
};

class AnimaLayouts : public testing::TestWithParam<Layout> {};

// A file keeps the mark of the adapter among the transformer's tensors, a folder has no such mark.
std::set<std::string> names_of(const Model& model) {
  std::set<std::string> names;
  for (const auto& [name, desc] : model.checkpoint().weights())
    if (!name.starts_with(mark)) names.insert(name);
  return names;
}

TEST_P(AnimaLayouts, OpenAsTheSameModel) {
  const TempDir dir;
  fs::create_directories(dir / "model");
  const Model want(built_plugins(), write_separate(dir / "separate"), "");
  const Model got(built_plugins(), GetParam().write(dir / "model"), "");
  EXPECT_EQ(got.id(), plugin);
  ASSERT_EQ(names_of(got), names_of(want));
  for (const std::string& name : names_of(want)) {
    const HostTensor w = as_type(GetParam().change(read(want.checkpoint(), name)), DType::f32);
    EXPECT_EQ(read(got.checkpoint(), name).data, w.data) << name;
  }
  EXPECT_NO_THROW(got.build("denoiser", {{"batch", 1}, {"height", 8}, {"width", 12}, {"text_length", 40}}, DType::f32));
  EXPECT_NO_THROW(
      got.build("conditioner", {{"batch", 2}, {"qwen3.length", 20}, {"llm_adapter.length", 40}}, DType::f32));
  EXPECT_NO_THROW(got.build("vae.encode", {{"batch", 1}, {"height", 64}, {"width", 48}}, DType::f32));
  EXPECT_NO_THROW(got.build("vae.decode", {{"batch", 1}, {"height", 8}, {"width", 6}}, DType::f32));
  EXPECT_NO_THROW(check_model(got, DType::f32));
}

INSTANTIATE_TEST_SUITE_P(All, AnimaLayouts, testing::ValuesIn(layouts), layout_name);

// ---- what is not Anima, or not whole

void set(Shapes& shapes, const char* name, const Shape& shape) { shapes[name] = {DType::bf16, shape}; }

const WrongModel wrongs[] = {
    {"width",
     [](Shapes& s) {
       set(s, "x_embedder.proj.1.weight", {200, 68});
       set(s, "final_layer.linear.weight", {64, 200});
     },
     "x_embedder.proj.1.weight: expected a multiple of 128 rows (heads of 128), found 200"},
    {"no_mask_of_padding",
     [](Shapes& s) {
       set(s, "x_embedder.proj.1.weight", {256, 64});
     },
     "x_embedder.proj.1.weight: expected 68 columns"},
    {"other_latents",
     [](Shapes& s) {
       set(s, "x_embedder.proj.1.weight", {256, 52});
       set(s, "final_layer.linear.weight", {48, 256});
     },
     "final_layer.linear.weight: expected 16 channels of latents, found 12"},
    {"norm_of_heads", [](Shapes& s) { set(s, "blocks.1.cross_attn.q_norm.weight", {256}); },
     "blocks.1.cross_attn.q_norm.weight: expected shape [128], found [256]"},
    {"modulation",
     [](Shapes& s) {
       set(s, "blocks.0.adaln_modulation_mlp.2.weight", {512, 24});
     },
     "blocks.0.adaln_modulation_mlp.2.weight: expected shape [768, 24], found [512, 24]"},
    {"no_mlp", [](Shapes& s) { s.erase("blocks.0.mlp.layer2.weight"); }, "missing tensor blocks.0.mlp.layer2.weight"},
    {"adapter_width",
     [](Shapes& s) {
       add_anima_adapter(s, "llm_adapter:", {2, 128, 96, 96, 200});
     },
     "blocks.0.cross_attn.k_proj.weight takes 64 columns, but llm_adapter gives 128: the files do not belong together"},
    {"text_width",
     [](Shapes& s) {
       add_anima_adapter(s, "llm_adapter:", small_anima_adapter);
       add_llm(s, "qwen3:", {64, 2, 2, 128, 60});
     },
     "llm_adapter:blocks.0.cross_attn.k_proj.weight takes 96 columns, but qwen3 gives 64"},
    {"adapter_without_its_end",
     [](Shapes& s) {
       add_anima_adapter(s, "llm_adapter:", small_anima_adapter);
       s.erase("llm_adapter:out_proj.bias");
     },
     "missing tensor llm_adapter:out_proj.bias"},
};

TEST(Anima, WrongTensorsAreNamed) { expect_refused(plugin, small_anima.shapes(), wrongs); }

const WrongModel relatives[] = {
    {"cosmos_predict2",
     [](Shapes& s) { std::erase_if(s, [](const auto& item) { return item.first.starts_with(mark); }); },
     "this is Cosmos-Predict2, on which Anima was built: its text comes from T5"},
    {"cosmos_predict2_video_to_world",
     [](Shapes& s) {
       set(s, "x_embedder.proj.1.weight", {256, 72});
     },
     "this is a Cosmos model that is shown further pictures or has other latents"},
};

TEST(Anima, RelativesAreRefusedByName) {
  expect_files_refused({"", plugin}, anima_file(small_anima, small_anima_adapter), relatives);
}

TEST(Anima, AFolderOfCosmosIsRefusedByName) {
  const TempDir dir;
  const ModelConfig config = directory(dir.path(), "", as_is);
  put(dir / "model_index.json", R"({"_class_name": "Cosmos2TextToImagePipeline"})");
  EXPECT_THAT(error_of([&] { const Model model(built_plugins(), config, ""); }), HasSubstr("this is Cosmos-Predict2"));
}

TEST(Anima, WithoutItsAdapterTheErrorSaysWhatToGive) {
  const TempDir dir;
  directory(dir.path(), "", as_is);
  fs::remove_all(dir / "text_conditioner");
  const Model model(built_plugins(), single(dir.path()), "");
  EXPECT_THAT(error_of([&] {
                model.build("conditioner", {{"batch", 1}, {"qwen3.length", 8}, {"llm_adapter.length", 8}}, DType::f32);
              }),
              HasSubstr("model.llm_adapter_path"));
}

// ---- prompts

std::vector<int32_t> first(const Tokens& tokens, const char* name, size_t count) {
  const std::span<const int32_t> all = tokens.at(name).as<int32_t>();
  return {all.begin(), all.begin() + static_cast<int64_t>(count)};
}

TEST(Anima, PromptsAreTokensOfQwen3AndOfT5) {
  const TempDir dir;
  const Model model(built_plugins(), write_separate(dir.path()), "");
  Device device(tested_device());
  TextEncoding text(device, model, DType::f32, {});
  EXPECT_EQ(text.tokens().sizes().at("qwen3.length"), 512);
  EXPECT_EQ(text.tokens().sizes().at("llm_adapter.length"), 512);
  const Tokens tokens = *text.tokens().of("a photo of a cat");
  EXPECT_EQ(first(tokens, "qwen3.input_ids", 7), (std::vector<int32_t>{64, 6548, 315, 264, 8251, 151643, 151643}));
  EXPECT_EQ(first(tokens, "qwen3.attention_mask", 7), (std::vector<int32_t>{1, 1, 1, 1, 1, 0, 0}));
  EXPECT_EQ(first(tokens, "llm_adapter.input_ids", 9), (std::vector<int32_t>{3, 9, 1202, 13, 3, 9, 1712, 1, 0}));
  EXPECT_EQ(first(tokens, "llm_adapter.attention_mask", 9), (std::vector<int32_t>{1, 1, 1, 1, 1, 1, 1, 1, 0}));
}

TEST(Anima, TheEmptyPromptIsTheEndAlone) {
  const TempDir dir;
  const Model model(built_plugins(), write_separate(dir.path()), "");
  Device device(tested_device());
  TextEncoding text(device, model, DType::f32, {});
  const Tokens tokens = *text.tokens().of("");
  EXPECT_EQ(std::ranges::count(tokens.at("qwen3.attention_mask").as<int32_t>(), 1), 0);
  EXPECT_EQ(first(tokens, "llm_adapter.input_ids", 2), (std::vector<int32_t>{1, 0}));
  EXPECT_EQ(std::ranges::count(tokens.at("llm_adapter.attention_mask").as<int32_t>(), 1), 1);
}

// ---- sizes

// Sides that are not equal, odd numbers of patches among them, and several samples.
TEST(Anima, EverySizeIsDenoised) {
  const TempDir dir;
  const Model model(built_plugins(), write_separate(dir.path()), "");
  const SelectAdapter none = [](const std::string&) -> const AdapterSpec* { return nullptr; };
  for (const auto& [height, width] : std::vector<std::pair<int64_t, int64_t>>{{8, 12}, {2, 14}, {10, 6}})
    for (const DType type : {DType::f32, DType::f16}) {
      const Sizes sizes{{"batch", 2}, {"height", height}, {"width", width}, {"text_length", 12}};
      const HostTensor out =
          as_type(output_of(model, build_sample_graph(model, sizes, none, type), "output"), DType::f32);
      EXPECT_EQ(out.desc.shape, (Shape{2, height, width, 16}));
      for (const float value : out.as<float>()) ASSERT_TRUE(std::isfinite(value));
    }
}

// Sums of the blocks are float32 where float16 does not reach, those of other types are not touched.
TEST(Anima, TheStreamIsFloat32InHalfPrecision) {
  const TempDir dir;
  const Model model(built_plugins(), write_separate(dir.path()), "");
  const Sizes sizes{{"batch", 1}, {"height", 8}, {"width", 8}, {"text_length", 8}};
  const auto wide = [&](DType type) {
    const Graph graph = model.build("denoiser", sizes, type);
    return std::ranges::count_if(graph.nodes, [&](const Node& node) {
      return std::string_view(node.op->name) == "layer_norm/1" && graph.desc(node.outputs[0]).dtype == DType::f32;
    });
  };
  EXPECT_EQ(wide(DType::f16), 3 * small_anima.blocks + 1);
  EXPECT_EQ(wide(DType::bf16), 0);
}

// ---- LoRA files

// Of both components, as sd-scripts names them where it trains the adapter, too.
TEST(Anima, LorasOfTheAdapterAreRead) {
  const TempDir dir;
  const Model model(built_plugins(), write_separate(dir.path()), "");
  std::vector<Given> tensors;
  for (const auto& [name, out, in] :
       {std::tuple{"lora_unet_llm_adapter_blocks_1_cross_attn_k_proj", small_anima_adapter.width,
                   small_anima_adapter.source},
        std::tuple{"lora_unet_llm_adapter_out_proj", small_anima_adapter.width, small_anima_adapter.width},
        std::tuple{"lora_unet_blocks_0_mlp_layer1", small_anima.inner, small_anima.hidden}}) {
    tensors.push_back({fmt::format("{}.lora_down.weight", name), counting({2, in})});
    tensors.push_back({fmt::format("{}.lora_up.weight", name), counting({out, 2})});
    tensors.push_back({fmt::format("{}.alpha", name), counting(Shape{})});
  }
  write_file(dir / "lora.safetensors", tensors);
  const VerifyReport report =
      verify_lora(read_lora(dir / "lora.safetensors"), spec_of(plugin), model.checkpoint().weights(), {});
  for (const ProgramReport& one : report.programs) {
    // sd-scripts does not train the adapter's last layer.
    EXPECT_EQ(one.loaded, one.program == "comfyui" ? 9 : one.program == "kohya" ? 6 : 0) << one.program;
  }
}

// ---- full size

TEST(Anima, FullSizeGraphsAndLoraModules) {
  const Shapes shapes = full_anima.shapes();
  EXPECT_EQ(shapes.size(), 567u);
  const Described model(plugin, shapes);
  Graph graph = model.denoiser({{"batch", 1}, {"height", 128}, {"width", 96}, {"text_length", 512}});
  EXPECT_EQ(graph.desc(graph.outputs.at("output")).shape, (Shape{1, 128, 96, 16}));
  std::set<std::string> used;
  for (const auto& [name, value] : graph.params) used.insert(name);
  for (const auto& [name, desc] : shapes) EXPECT_TRUE(used.contains(name)) << name;
  const AdapterSelection selection({}, model.recipe(), 1);
  EXPECT_EQ(adapt(graph, selection, true).size(), static_cast<size_t>(full_anima.blocks * 10));
  Shapes adapter;
  add_anima_adapter(adapter, "", full_anima_adapter);
  EXPECT_EQ(parameters_of(shapes), 1956405248);
  EXPECT_EQ(parameters_of(adapter), 134663680);
  EXPECT_EQ(Described(plugin, anima_file(full_anima, full_anima_adapter)).confidence(), 100);
}

}  // namespace
}  // namespace lh::test::anima_test
