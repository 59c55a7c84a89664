// AuraFlow beyond its golden cases: every layout of files, refusals, prompts, sizes, names in LoRA files, and the
// published model by its shapes.
#include <gmock/gmock.h>

#include <set>

#include "compile/adapter_selection.h"
#include "encode/prompt_tokens.h"
#include "io/lora_names.h"
#include "passes/adapt.h"
#include "support/auraflow_shapes.h"
#include "support/gguf_file.h"
#include "support/layouts.h"
#include "support/paths.h"
#include "support/wan_shapes.h"
#include "support/wrong_models.h"

namespace lh::test::auraflow_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const char* const plugin = "auraflow";
const std::string tokenizer = std::string(source_dir()) + "/tests/data/pile_t5_small";

// A whole small model whose parts fit each other: native tensors of each component.
using Components = std::map<std::string, std::vector<Given>>;
const Components& components() {
  static const Components all = [] {
    Components parts = small_auraflow_parts();
    parts["denoiser"] = filled(small_auraflow.shapes());
    return parts;
  }();
  return all;
}

// A file for each component.
ModelConfig write_separate(const fs::path& folder) {
  fs::create_directories(folder);
  for (const auto& [name, tensors] : components()) write_file(folder / (name + ".safetensors"), tensors);
  ModelConfig config = single(folder / "denoiser.safetensors");
  for (const char* name : {"vae", "pile_t5"})
    config.given[std::string(name) + "_path"] = {folder / (std::string(name) + ".safetensors")};
  config.given["tokenizer_path"] = {tokenizer};
  return config;
}

// ---- layouts

const Change as_fp8 = [](const HostTensor& t) { return t.desc.shape.rank() == 2 ? as_type(t, DType::f8_e4m3) : t; };

ModelConfig all_in_one(const fs::path& folder, const std::string& denoiser, const Change& change) {
  std::vector<Given> all;
  for (const auto& [name, prefix] : std::map<std::string, std::string>{
           {"denoiser", denoiser}, {"vae", "vae."}, {"pile_t5", "text_encoders.pile_t5xl.transformer."}})
    for (const Given& t : components().at(name)) all.push_back({prefix + t.name, change(t.tensor)});
  all.push_back({"text_encoders.pile_t5xl.logit_scale", counting(Shape{})});
  write_file(folder / "all.safetensors", all);
  return single(folder / "all.safetensors");
}

ModelConfig directory(const fs::path& folder, const std::string& variant, const Change& change) {
  write_directory(folder, spec_of(plugin), components(), {"denoiser", "vae"}, variant, change);
  put(folder / "model_index.json", R"({"_class_name": "AuraFlowPipeline"})");
  return single(folder);
}

// Single files of the denoiser with the names of diffusers.
ModelConfig with_names_of_diffusers(const fs::path& folder, const std::string& prefix) {
  ModelConfig config = write_separate(folder);
  const ComponentSpec spec = *spec_of(plugin).component("denoiser");
  std::vector<Given> tensors;
  for (const Given& t : components().at("denoiser"))
    for (const Given& part : in_diffusers(spec, t, components().at("denoiser")))
      tensors.push_back({prefix + part.name, part.tensor});
  write_file(folder / "denoiser.safetensors", tensors);
  return config;
}

// A GGUF file of the denoiser, as ComfyUI's users have them: the names of its single files.
ModelConfig in_gguf(const fs::path& folder) {
  ModelConfig config = write_separate(folder);
  GgufFile file;
  file.text("general.architecture", "aura");
  for (const Given& t : components().at("denoiser")) {
    const HostTensor values = as_type(t.tensor, DType::f32);
    const std::span<const int64_t> dims = values.desc.shape.dims();
    file.add({t.name,
              {dims.begin(), dims.end()},
              0,
              {reinterpret_cast<const char*>(values.data.data()), values.data.size()}});
  }
  put(folder / "denoiser.gguf", file.bytes());
  config.name_or_path = folder / "denoiser.gguf";
  return config;
}

const Layout layouts[] = {
    {"all_in_one_as_published", [](const fs::path& p) { return all_in_one(p, "model.", as_is); }},
    {"all_in_one", [](const fs::path& p) { return all_in_one(p, "model.diffusion_model.", as_is); }},
    {"all_in_one_without_a_prefix", [](const fs::path& p) { return all_in_one(p, "", as_is); }},
    {"all_in_one_half", [](const fs::path& p) { return all_in_one(p, "model.", as_half); }, as_half},
    {"all_in_one_in_fp8", [](const fs::path& p) { return all_in_one(p, "model.", as_fp8); }, as_fp8},
    {"folder", [](const fs::path& p) { return directory(p, "", as_is); }},
    {"folder_of_a_variant", [](const fs::path& p) { return directory(p, ".fp16", as_half); }, as_half},
    {"denoiser_with_the_names_of_diffusers", [](const fs::path& p) { return with_names_of_diffusers(p, ""); }},
    {"and_a_prefix", [](const fs::path& p) { return with_names_of_diffusers(p, "model.diffusion_model."); }},
    {"denoiser_in_gguf", in_gguf},
    {"folders_of_the_parts",
     [](const fs::path& p) {
       ModelConfig config = directory(p, "", as_is);
       config.name_or_path = p / "transformer";
       config.given["vae_path"] = {p / "vae"};
       config.given["pile_t5_path"] = {p / "text_encoder"};
       return config;
     }},
};

class AuraFlowLayouts : public testing::TestWithParam<Layout> {};

TEST_P(AuraFlowLayouts, OpenAsTheSameModel) {
  expect_same_model(plugin, GetParam(), [](const fs::path& folder) { return write_separate(folder); },
                    {{"denoiser", {{"batch", 1}, {"height", 8}, {"width", 12}, {"text_length", 40}}},
                     {"conditioner", {{"batch", 2}, {"pile_t5.length", 9}}},
                     {"vae.encode", {{"batch", 1}, {"height", 64}, {"width", 48}}},
                     {"vae.decode", {{"batch", 1}, {"height", 8}, {"width", 6}}}});
}

INSTANTIATE_TEST_SUITE_P(All, AuraFlowLayouts, testing::ValuesIn(layouts), layout_name);

// ---- what is not AuraFlow, or not whole

void set(Shapes& shapes, const std::string& name, const Shape& shape) { shapes[name] = {DType::bf16, shape}; }

const WrongModel wrongs[] = {
    {"heads",
     [](Shapes& s) {
       set(s, "init_x_linear.weight", {384, 16});
     },
     "init_x_linear.weight: expected a multiple of 256 rows (heads of 256), found 384"},
    {"further_channels",
     [](Shapes& s) {
       set(s, "init_x_linear.weight", {256, 36});
     },
     "init_x_linear.weight: expected shape [256, 16], found [256, 36]"},
    {"no_registers", [](Shapes& s) { s.erase("register_tokens"); }, "missing tensor register_tokens"},
    {"grid",
     [](Shapes& s) {
       set(s, "positional_encoding", {1, 24 * 25, 256});
     },
     "positional_encoding: expected a square grid of positions, found 600 of them"},
    {"text_that_ends",
     [](Shapes& s) {
       set(s, "double_layers.0.modC.1.weight", {512, 256});
     },
     "double_layers.0.modC.1.weight: expected shape [1536, 256], found [512, 256]"},
    {"no_single_layers",
     [](Shapes& s) { std::erase_if(s, [](const auto& t) { return t.first.starts_with("single_layers."); }); },
     "missing tensor single_layers.0.attn.w1q.weight"},
    {"hole", [](Shapes& s) { s.erase("single_layers.1.mlp.c_proj.weight"); },
     "missing tensor single_layers.1.mlp.c_proj.weight"},
    {"text_width", [](Shapes& s) { add_umt5(s, "pile_t5:", 64, 2, 60); },
     "cond_seq_linear.weight takes 96 columns, but pile_t5 gives 64: the files do not belong together"},
};

TEST(AuraFlow, WrongTensorsAreNamed) { expect_refused(plugin, small_auraflow.shapes(), wrongs); }

const WrongModel relatives[] = {
    {"controlnet", [](Shapes& s) { add_linear(s, "controlnet_blocks.0", 256, 256); },
     "this is a ControlNet (controlnet_blocks)"},
    {"norms_of_heads",
     [](Shapes& s) {
       set(s, "double_layers.0.attn.q_norm1.weight", {1, 256});
     },
     "this is a relative of AuraFlow whose norms of q and k have weights (attn.q_norm1)"},
};

TEST(AuraFlow, RelativesAreRefusedByName) { expect_files_refused({plugin}, small_auraflow.shapes(), relatives); }

// ---- prompts

TEST(AuraFlow, PromptsEndWithTheirEndAndAreFilledUp) {
  const TempDir dir;
  const ModelConfig config = write_separate(dir.path());
  const Model model(built_plugins(), config, "");
  const auto row = [&](const std::string& prompt, const char* what) {
    const Tokens tokens = *PromptTokens(model).of(prompt);
    const std::span<const int32_t> all = tokens.at(std::string("pile_t5.") + what).as<int32_t>();
    EXPECT_EQ(all.size(), 256u);
    return std::vector<int32_t>{all.begin(), all.begin() + 8};
  };
  // As the tokenizers library has these texts in the small vocabulary, and the end behind them; no begin, which the
  // file has.
  constexpr int32_t end = 2;
  EXPECT_EQ(row("a cat", "input_ids"), (std::vector{354, 357, end, 0, 0, 0, 0, 0}));
  EXPECT_EQ(row("a cat", "attention_mask"), (std::vector{1, 1, 1, 0, 0, 0, 0, 0}));
  EXPECT_EQ(row("the dog, \u00fc", "input_ids"), (std::vector{363, 360, 271, 259, 198, 191, end, 0}));
  EXPECT_EQ(row(" a  cat", "input_ids"), (std::vector{259, 354, 259, 357, end, 0, 0, 0}));
  EXPECT_EQ(row("", "input_ids"), (std::vector{end, 0, 0, 0, 0, 0, 0, 0}));
}

TEST(AuraFlow, LongerTextsAreRefused) {
  const TempDir dir;
  ModelConfig config = write_separate(dir.path());
  config.max_sequence_length = 769;
  EXPECT_THAT(error_of([&] { const Model model(built_plugins(), config, ""); }),
              HasSubstr("model.max_sequence_length: 'auraflow' takes at most 768 tokens, found 769"));
}

// ---- sizes

TEST(AuraFlow, ImagesLargerThanTheGridAreRefused) {
  const Described model(plugin, small_auraflow.shapes());
  model.denoiser({{"batch", 1}, {"height", 48}, {"width", 2}, {"text_length", 3}});
  EXPECT_THAT(error_of([&] {
                model.denoiser({{"batch", 1}, {"height", 50}, {"width", 2}, {"text_length", 3}});
              }),
              HasSubstr("latents of 50x2: positional_encoding has positions for at most 48x48; use smaller images"));
}

// ---- LoRA files

TEST(AuraFlow, NamesOfOtherProgramsAreRead) {
  std::map<std::string, Desc> weights;
  for (const auto& [name, desc] : full_auraflow.shapes()) weights[name] = desc;
  const LoraNameTable names(spec_of(plugin), weights);
  for (const auto& [name, native] :
       {std::pair{"lora_unet_double_layers_3_attn_w1o", "double_layers.3.attn.w1o"},
        std::pair{"diffusion_model.single_layers.31.modCX.1", "single_layers.31.modCX.1"},
        std::pair{"transformer.joint_transformer_blocks.0.attn.to_add_out", "double_layers.0.attn.w1o"},
        std::pair{"transformer.joint_transformer_blocks.2.ff_context.out_projection", "double_layers.2.mlpC.c_proj"},
        std::pair{"lora_transformer_single_transformer_blocks_9_ff_linear_2", "single_layers.9.mlp.c_fc2"},
        std::pair{"lycoris_single_transformer_blocks_4_attn_to_out_0", "single_layers.4.attn.w1o"},
        std::pair{"transformer.norm_out.linear", "modF.1"}}) {
    const LoraPlace* place = names.find(name);
    ASSERT_NE(place, nullptr) << name;
    EXPECT_EQ(place->native, native);
  }
}

// ---- full size

TEST(AuraFlow, FullSizeGraphAndLoraModules) {
  const Shapes shapes = full_auraflow.shapes();
  EXPECT_EQ(shapes.size(), 331u);
  EXPECT_EQ(parameters_of(shapes), 6858605568);  // 15.7 million fewer of 0.1 and 0.2, whose grid has 64 x 64 places
  const Described model(plugin, shapes);
  EXPECT_EQ(model.confidence(), 100);
  EXPECT_EQ(model.recipe().sampling.schedule.shift, 1.73);
  EXPECT_EQ(model.recipe().timestep.shift, 1);
  Graph graph = model.denoiser({{"batch", 1}, {"height", 128}, {"width", 192}, {"text_length", 256}});
  EXPECT_EQ(graph.desc(graph.outputs.at("output")).shape, (Shape{1, 128, 192, 4}));
  std::set<std::string> used;
  for (const auto& [name, value] : graph.params) used.insert(name);
  for (const auto& [name, desc] : shapes) EXPECT_TRUE(used.contains(name)) << name;
  Graph again = graph;
  EXPECT_EQ(adapt(graph, AdapterSelection({}, model.recipe(), 1), true).size(), 4u * 16 + 32 * 8);
  NetworkConfig as_ai_toolkit;
  as_ai_toolkit.target_modules = {".*"};
  EXPECT_EQ(adapt(again, AdapterSelection(as_ai_toolkit, model.recipe(), 1), true).size(), 4u * 16 + 32 * 8 + 6);
}

}  // namespace
}  // namespace lh::test::auraflow_test
