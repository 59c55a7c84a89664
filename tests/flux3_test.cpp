// Flux.3 beyond its golden cases: every layout of files, the reference picture, refusals, prompts and their windows,
// batches of different windows, and the published model by its shapes.
#include <gmock/gmock.h>

#include <set>

#include "compile/adapters.h"
#include "compile/compile.h"
#include "encode/check_model.h"
#include "encode/text_encoding.h"
#include "passes/adapt.h"
#include "run/plan.h"
#include "run/weights.h"
#include "support/device.h"
#include "support/flux3_shapes.h"
#include "support/graph_run.h"
#include "support/layouts.h"
#include "support/model_shapes.h"
#include "support/paths.h"
#include "support/run_host.h"
#include "support/wrong_models.h"

namespace lh::test::flux3_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const char* const plugin = "flux3";

using Components = std::map<std::string, std::vector<Given>>;

// A whole small model whose parts fit each other: native tensors of each component.
const Components& components() {
  static const Components all = [] {
    Shapes text;
    add_llm(text, "", small_flux3_encoder);
    return Components{{"denoiser", filled(small_flux3.shapes())},
                      {"vae", golden_weights("vae_flux2_encode")},
                      {"qwen3_vl", filled(text)}};
  }();
  return all;
}

// A file for each component.
ModelConfig write_separate(const fs::path& folder, const Components& all = components()) {
  fs::create_directories(folder);
  for (const auto& [name, tensors] : all) write_file(folder / (name + ".safetensors"), tensors);
  ModelConfig config = single(folder / "denoiser.safetensors");
  for (const std::string name : {"vae", "qwen3_vl"}) config.given[name + "_path"] = {folder / (name + ".safetensors")};
  return config;
}

const SelectAdapter no_adapter = [](const std::string&) -> const AdapterSpec* { return nullptr; };

// ---- layouts

const Change as_fp8 = [](const HostTensor& t) {
  return t.desc.shape.rank() == 2 && t.desc.shape[0] > 1 ? as_type(t, DType::f8_e4m3) : t;
};

ModelConfig all_in_one(const fs::path& folder, const std::string& denoiser, const std::string& text,
                       const Change& change) {
  std::vector<Given> all;
  for (const auto& [name, prefix] :
       std::map<std::string, std::string>{{"denoiser", denoiser}, {"vae", "vae."}, {"qwen3_vl", text}})
    for (const Given& t : components().at(name)) all.push_back({prefix + t.name, change(t.tensor)});
  write_file(folder / "all.safetensors", all);
  return single(folder / "all.safetensors");
}

ModelConfig directory(const fs::path& folder, const std::string& variant, const Change& change) {
  Components all = components();  // its autoencoder has the quant convolutions at the top
  for (Given& t : all.at("vae"))
    if (const size_t at = t.name.find("quant_conv."); at != t.name.npos)
      t.name = t.name.substr(t.name.starts_with("decoder.") ? at - 5 : at);  // post_
  write_directory(folder, spec_of(plugin), all, {"denoiser", "vae"}, variant, change);
  put(folder / "modular_model_index.json", R"({"_class_name": "Flux3ModularPipeline"})");
  return single(folder);
}

const Layout layouts[] = {
    {"all_in_one",
     [](const fs::path& p) {
       return all_in_one(p, "model.diffusion_model.", "text_encoders.qwen3vl_4b.transformer.", as_is);
     }},
    {"all_in_one_without_a_prefix",
     [](const fs::path& p) { return all_in_one(p, "", "text_encoders.qwen3vl_4b.", as_half); }, as_half},
    {"all_in_one_in_fp8",
     [](const fs::path& p) {
       return all_in_one(p, "model.diffusion_model.", "text_encoders.qwen3vl_4b.transformer.", as_fp8);
     },
     as_fp8},
    {"folder", [](const fs::path& p) { return directory(p, "", as_is); }},
    {"folder_of_a_variant", [](const fs::path& p) { return directory(p, ".fp16", as_half); }, as_half},
    {"transformer_with_the_names_of_diffusers",
     [](const fs::path& p) {
       Components all = components();
       std::vector<Given> renamed;
       for (const Given& t : all.at("denoiser"))
         for (const Given& part : in_diffusers(*spec_of(plugin).component("denoiser"), t, all.at("denoiser")))
           renamed.push_back(part);
       all.at("denoiser") = renamed;
       return write_separate(p, all);
     }},
    {"transformer_with_heads_of_its_training",
     [](const fs::path& p) {
       Components all = components();
       all.at("denoiser").push_back({"repa_projectors.0.weight", counting({4})});
       return write_separate(p, all);
     }},
    {"encoder_that_sees",
     [](const fs::path& p) {
       Components all = components();
       for (Given& t : all.at("qwen3_vl")) t.name.replace(0, 6, "model.language_model.");
       for (const char* other : {"model.visual.patch_embed.proj.weight", "lm_head.weight"})
         all.at("qwen3_vl").push_back({other, counting({4})});
       return write_separate(p, all);
     }},
};

class Flux3Layouts : public testing::TestWithParam<Layout> {};

TEST_P(Flux3Layouts, OpenAsTheSameModel) {
  expect_same_model(
      plugin, GetParam(), [](const fs::path& folder) { return write_separate(folder); },
      {{"denoiser", {{"batch", 1}, {"height", 3}, {"width", 5}, {"text_length", 80}}},
       {"conditioner", {{"batch", 2}, {"qwen3_vl.length", 90}}},
       {"vae.encode", {{"batch", 1}, {"height", 48}, {"width", 80}}},
       {"vae.decode", {{"batch", 1}, {"height", 3}, {"width", 5}}}},
      "base");
}

INSTANTIATE_TEST_SUITE_P(All, Flux3Layouts, testing::ValuesIn(layouts), layout_name);

// ---- what is not Flux.3, or not whole

const WrongModel wrongs[] = {
    {"width",
     [](Shapes& s) {
       s["txt_in.weight"].shape = {200, 256};
     },
     "txt_in.weight: expected a multiple of 128 rows (heads of 128), found 200"},
    {"further_channels",
     [](Shapes& s) {
       s["emb_in.image_cond.weight"].shape = {128, 130};
     },
     "emb_in.image_cond.weight: expected shape [128, 128], found [128, 130]"},
    {"modulation",
     [](Shapes& s) {
       s["single_stream_modulations.txt.lin.weight"].shape = {256, 128};
     },
     "single_stream_modulations.txt.lin.weight: expected shape [384, 128], found [256, 128]"},
    {"a_block_less", [](Shapes& s) { s.erase("content_mode_blocks.image_cond.0.mlp_in.weight"); },
     "missing tensor content_mode_blocks.image_cond.0.mlp_in.weight"},
    {"no_blocks_of_text", [](Shapes& s) { s.erase("txt_mode_blocks.0.q_proj.weight"); },
     "missing tensor txt_mode_blocks.0.q_proj.weight"},
    {"norm_of_keys", [](Shapes& s) { s["single_blocks.1.norm.key_norm.scale"].shape = {64}; },
     "single_blocks.1.norm.key_norm.scale: expected shape [128], found [64]"},
    {"text_width",
     [](Shapes& s) {
       add_llm(s, "qwen3_vl:", {64, 9, 2, 64, 60});
     },
     "txt_in.weight takes 256 columns, but eight states of qwen3_vl give 512: the files do not belong together"},
    {"few_layers",
     [](Shapes& s) {
       add_llm(s, "qwen3_vl:", {32, 8, 2, 64, 60});
     },
     "qwen3_vl: expected 36 layers, of which eight states are read, found 8"},
};

TEST(Flux3, WrongTensorsAreNamed) { expect_refused(plugin, small_flux3.shapes(), wrongs); }

const WrongModel relatives[] = {
    {"flow_map", [](Shapes& s) { add_linear(s, "ref_time_in.in_layer", 128, 256, false); },
     "this is FLUX.3 image klein, distilled into a flow map, which is also given the time that a step goes to"},
    {"video", [](Shapes& s) { add_linear(s, "early_stream_modulations.video.lin", 8, 8, false); },
     "this is a FLUX.3 model of video or actions (early_stream_modulations.video*)"},
    {"late_blocks", [](Shapes& s) { add_linear(s, "late_stream_modulations.txt.lin", 8, 8, false); },
     "this is a FLUX.3 model of video or actions (late_stream_modulations.*)"},
};

TEST(Flux3, RelativesAreRefusedByName) { expect_files_refused({"", plugin}, small_flux3.shapes(), relatives); }

// Flux.1's autoencoder has the tensors of the same names with other sizes.
TEST(Flux3, AnotherAutoencoderIsRefused) {
  const TempDir dir;
  ModelConfig config = write_separate(dir.path());
  write_file(dir / "ae.safetensors", golden_weights("vae_flux_encode"));
  config.given["vae_path"] = {dir / "ae.safetensors"};
  EXPECT_THAT(error_of([&] { const Model model(built_plugins(), config, ""); }),
              HasSubstr("vae:decoder.conv_in.weight: expected shape [*, 32, 3, 3]"));
}

// ---- references

std::set<std::string> images(bool reference) {
  return reference ? std::set<std::string>{"control"} : std::set<std::string>{};
}

// The weights are the same: what the run has says whether there is one.
TEST(Flux3, AReferenceIsAnInputOfRunsThatHaveOne) {
  const TempDir dir;
  const ModelConfig config = write_separate(dir.path());
  for (const bool reference : {false, true}) {
    const Model model(built_plugins(), config, "", images(reference));
    EXPECT_NO_THROW(check_model(model, DType::f32));  // every role, against the recipe
    EXPECT_EQ(model.recipe().variant, "base");
    EXPECT_EQ(model.recipe().sampling.steps, 50);
    EXPECT_EQ(model.recipe().sampling.guidance, 3.5);
    const Graph graph =
        model.build("denoiser", {{"batch", 1}, {"height", 3}, {"width", 5}, {"text_length", 80}}, DType::f32);
    EXPECT_EQ(graph.inputs.contains("reference"), reference);
    EXPECT_EQ(graph.params.contains("content_mode_blocks.image_cond.0.q_proj.weight"), reference);
  }
}

// ---- prompts

// A chat without a thought, in the vocabulary of Qwen3; rows are kept up to the end of a window of 80.
TEST(Flux3, PromptsAreAChatInWindows) {
  const TempDir dir;
  Components all = components();
  Shapes text;
  add_llm(text, "", {32, 9, 2, 64, 151936});
  all["qwen3_vl"] = filled(text);
  const Model model(built_plugins(), write_separate(dir.path(), all), "");
  Device device(tested_device());
  TextEncoding encoding(device, model, DType::f32, {});
  EXPECT_EQ(encoding.tokens().sizes().at("qwen3_vl.length"), 640);
  const Tokens tokens = *encoding.tokens().of("a photo of a cat");
  const std::span<const int32_t> ids = tokens.at("qwen3_vl.input_ids").as<int32_t>(),
                                 mask = tokens.at("qwen3_vl.attention_mask").as<int32_t>();
  const std::vector<int32_t> want{151644, 872, 198, 64, 6548, 315, 264, 8251, 151645, 198, 151644, 77091, 198};
  EXPECT_TRUE(std::ranges::equal(ids.subspan(0, want.size()), want));
  EXPECT_EQ(std::ranges::count(ids, 151643), 640 - static_cast<int64_t>(want.size()));
  EXPECT_EQ(std::ranges::count(mask, 1), static_cast<int64_t>(want.size()));
  std::string long_prompt;
  for (int i = 0; i < 100; ++i) long_prompt += " cat";
  EXPECT_EQ(encoding.lengths("a photo of a cat").at("text_length"), 80);
  EXPECT_EQ(encoding.lengths("").at("text_length"), 80);
  EXPECT_EQ(encoding.lengths(long_prompt).at("text_length"), 160);
}

// ---- sizes and batches

// Samples that are the same but for their text, its length and time.
HostTensor denoise_batch(const Model& model, const std::vector<std::pair<int64_t, int32_t>>& seeds_and_lengths,
                         int64_t height, int64_t width, int64_t rows, bool reference) {
  const auto batch = static_cast<int64_t>(seeds_and_lengths.size());
  Graph graph = build_sample_graph(
      model, {{"batch", batch}, {"height", height}, {"width", width}, {"text_length", rows}}, no_adapter, DType::f32);
  HostTensor latents(Desc{DType::f32, {batch, height, width, 128}}), text(Desc{DType::f32, {batch, rows, 256}}),
      lengths(Desc{DType::i32, {batch}});
  std::vector<float> sigma;
  for (int64_t b = 0; b < batch; ++b) {
    const auto [seed, length] = seeds_and_lengths[static_cast<size_t>(b)];
    std::ranges::copy(ramp({height * width * 128}, 3).as<float>(),
                      latents.as<float>().begin() + b * height * width * 128);
    std::ranges::copy(ramp({rows * 256}, seed).as<float>(), text.as<float>().begin() + b * rows * 256);
    lengths.as<int32_t>()[static_cast<size_t>(b)] = length;
    sigma.push_back(0.1f * static_cast<float>(seed));
  }
  Device device(tested_device());
  const Weights weights(device, model.checkpoint(), graph);
  const Externals bound = weights.bind(graph);
  OwnedProgram program(device, std::move(graph), bound, "batch");
  program->set_input("latents", latents);
  if (reference) program->set_input("reference", latents);
  program->set_input("text", text);
  program->set_input("text_lengths", lengths);
  program->set_input("timestep", floats({batch}, sigma));
  program->run();
  return program->output("output");
}

// Rows behind a sample's own have no influence, and neither has another sample.
TEST(Flux3, SamplesOfABatchDoNotMeet) {
  const TempDir dir;
  for (const bool reference : {false, true}) {
    const Model model(built_plugins(), write_separate(dir.path()), "", images(reference));
    for (const auto& [height, width] : {std::pair{3, 5}, std::pair{1, 7}}) {
      const HostTensor both = denoise_batch(model, {{3, 4}, {8, 9}}, height, width, 9, reference);
      EXPECT_EQ(both.desc.shape, (Shape{2, height, width, 128}));
      const HostTensor first = denoise_batch(model, {{3, 4}}, height, width, 4, reference);
      EXPECT_LT(relative_error(rows_of(both, 0, 1), first), 2e-6);
      EXPECT_LT(relative_error(rows_of(both, 1, 1), denoise_batch(model, {{8, 9}}, height, width, 9, reference)), 2e-6);
      EXPECT_GT(relative_error(denoise_batch(model, {{3, 9}}, height, width, 9, reference), first), 1e-3);
    }
  }
}

// ---- full size

TEST(Flux3, FullSizeGraphsAndLoraModules) {
  const Shapes shapes = full_flux3.shapes();
  EXPECT_EQ(parameters_of(shapes), 5'538'458'368);
  for (const bool reference : {false, true}) {
    const Described model(plugin, shapes);
    Sizes sizes{{"batch", 1}, {"height", 64}, {"width", 48}, {"text_length", 160}};
    if (reference) sizes["reference"] = 1;
    Graph graph = model.denoiser(sizes);
    EXPECT_EQ(graph.desc(graph.outputs.at("output")).shape, (Shape{1, 64, 48, 128}));
    std::set<std::string> used;
    for (const auto& [name, value] : graph.params) used.insert(name);
    for (const auto& [name, desc] : shapes)
      EXPECT_EQ(used.contains(name), reference || name.find("image_cond") == name.npos) << name;
    const AdapterSelection selection({}, model.recipe(), 1);
    EXPECT_EQ(adapt(graph, selection, true).size(), reference ? 258u : 228u);
  }
}

}  // namespace
}  // namespace lh::test::flux3_test
