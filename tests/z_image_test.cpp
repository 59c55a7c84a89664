// Z-Image beyond its golden cases: every layout of files, variants, refusals, captions of a batch, and the published
// model by its key lists.
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
#include "support/layouts.h"
#include "support/model_shapes.h"
#include "support/wrong_models.h"
#include "support/z_image_shapes.h"

namespace lh::test::z_image_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const char* const plugin = "z_image";

// A whole small model whose parts fit each other: native tensors of each component.
const std::map<std::string, std::vector<Given>>& components() {
  static const std::map<std::string, std::vector<Given>> all = [] {
    Shapes qwen3;
    add_llm(qwen3, "", {small_z_image.text, 3, 2, 128, 60});
    return std::map<std::string, std::vector<Given>>{{"denoiser", filled(small_z_image.shapes())},
                                                     {"vae", golden_weights("vae_flux_encode")},
                                                     {"qwen3", filled(qwen3)}};
  }();
  return all;
}

// A file for each component.
ModelConfig write_separate(const fs::path& folder) {
  for (const auto& [name, tensors] : components()) write_file(folder / (name + ".safetensors"), tensors);
  ModelConfig config = single(folder / "denoiser.safetensors");
  config.given["vae_path"] = {folder / "vae.safetensors"};
  config.given["qwen3_path"] = {folder / "qwen3.safetensors"};
  return config;
}

const Sizes small{{"batch", 1}, {"height", 8}, {"width", 12}, {"text_length", 40}};
const SelectAdapter no_adapter = [](const std::string&) -> const AdapterSpec* { return nullptr; };

// ---- layouts

std::vector<Given> renamed(std::vector<Given> tensors, const std::function<std::string(std::string)>& rename) {
  for (Given& t : tensors) t.name = rename(t.name);
  return tensors;
}

ModelConfig all_in_one(const fs::path& folder, const std::string& denoiser, const Change& change) {
  std::vector<Given> all;
  for (const auto& [name, prefix] : std::map<std::string, std::string>{
           {"denoiser", denoiser}, {"vae", "vae."}, {"qwen3", "text_encoders.qwen3_4b.transformer."}})
    for (const Given& t : components().at(name)) all.push_back({prefix + t.name, change(t.tensor)});
  all.push_back({denoiser + "norm_final.weight", counting({256})});  // which nothing reads
  all.push_back({"text_encoders.qwen3_4b.logit_scale", counting(Shape{})});
  write_file(folder / "all.safetensors", all);
  return single(folder / "all.safetensors");
}

ModelConfig directory(const fs::path& folder, const std::string& variant, const Change& change) {
  write_directory(folder, spec_of(plugin), components(), {"denoiser", "vae"}, variant, change);
  put(folder / "model_index.json", R"({"_class_name": "ZImagePipeline"})");
  return single(folder);
}

// A text encoder in a file of its own, with other names and things that are not read.
ModelConfig with_encoder(const fs::path& folder, const std::string& level, const std::vector<std::string>& extra) {
  ModelConfig config = write_separate(folder);
  std::vector<Given> tensors = renamed(components().at("qwen3"), [&](const std::string& name) {
    return level + name.substr(std::string("model.").size());
  });
  for (const std::string& name : extra) tensors.push_back({name, counting({2, 2})});
  write_file(folder / "qwen3.safetensors", tensors);
  return config;
}

const Change as_fp8 = [](const HostTensor& t) {
  return t.desc.shape.rank() == 2 && t.desc.shape[0] > 1 ? as_type(t, DType::f8_e4m3) : t;
};

const Layout layouts[] = {
    {"all_in_one", [](const fs::path& p) { return all_in_one(p, "model.diffusion_model.", as_is); }},
    {"all_in_one_without_a_prefix", [](const fs::path& p) { return all_in_one(p, "", as_is); }},
    {"all_in_one_half", [](const fs::path& p) { return all_in_one(p, "model.diffusion_model.", as_half); }, as_half},
    {"folder", [](const fs::path& p) { return directory(p, "", as_is); }},
    {"folder_of_a_variant", [](const fs::path& p) { return directory(p, ".fp16", as_half); }, as_half},
    {"transformer_in_fp8",
     [](const fs::path& p) {
       ModelConfig config = write_separate(p);
       std::vector<Given> tensors = components().at("denoiser");
       for (Given& t : tensors) t.tensor = as_fp8(t.tensor);
       write_file(config.name_or_path, tensors);
       for (const std::string name : {"vae", "qwen3"}) {
         tensors = components().at(name);
         for (Given& t : tensors) t.tensor = as_type(as_fp8(t.tensor), t.tensor.desc.dtype);
         write_file(p / (name + ".safetensors"), tensors);
       }
       return config;
     },
     as_fp8},
    {"transformer_with_the_names_of_diffusers",
     [](const fs::path& p) {
       ModelConfig config = write_separate(p);
       std::vector<Given> tensors;
       for (const Given& t : components().at("denoiser"))
         for (const Given& part : in_diffusers(*spec_of(plugin).component("denoiser"), t, components().at("denoiser")))
           tensors.push_back(part);
       write_file(config.name_or_path, tensors);
       return config;
     }},
    {"encoder_without_its_head_level", [](const fs::path& p) { return with_encoder(p, "", {}); }},
    {"encoder_with_its_head", [](const fs::path& p) { return with_encoder(p, "model.", {"lm_head.weight"}); }},
    {"encoder_of_a_model_that_sees",
     [](const fs::path& p) {
       return with_encoder(p, "model.language_model.", {"model.visual.patch_embed.proj.weight", "lm_head.weight"});
     }},
    {"encoder_of_a_model_that_sees_in_the_other_order",
     [](const fs::path& p) { return with_encoder(p, "language_model.model.", {"vision_tower.ln_pre.weight"}); }},
};

class ZImageLayouts : public testing::TestWithParam<Layout> {};

TEST_P(ZImageLayouts, OpenAsTheSameModel) {
  expect_same_model(plugin, GetParam(), [](const fs::path& folder) { return write_separate(folder); },
                    {{"denoiser", small}, {"conditioner", {{"batch", 2}, {"qwen3.length", 9}}}});
}

INSTANTIATE_TEST_SUITE_P(All, ZImageLayouts, testing::ValuesIn(layouts), layout_name);

// ---- prompts

// The tokenizer files that ship with the program, and the chat template.
TEST(ZImage, PromptsAreTokensOfQwen3) {
  const TempDir dir;
  ModelConfig config = write_separate(dir / "");
  config.max_sequence_length = 16;
  const Model model(built_plugins(), config, "");
  Device device(tested_device());
  TextEncoding text(device, model, DType::f32, {});
  const Tokens tokens = *text.tokens().of("a photo of a cat");
  const auto values = [&](const char* name) {
    const std::span<const int32_t> all = tokens.at(name).as<int32_t>();
    return std::vector<int32_t>(all.begin(), all.end());
  };
  EXPECT_EQ(values("qwen3.input_ids"), (std::vector<int32_t>{151644, 872, 198, 64, 6548, 315, 264, 8251, 151645, 198,
                                                             151644, 77091, 198, 151643, 151643, 151643}));
  EXPECT_EQ(values("qwen3.attention_mask"), (std::vector<int32_t>{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0}));
  EXPECT_EQ(text.tokens().sizes().at("qwen3.length"), 16);
}

// ---- variants

TEST(ZImage, TheUserSaysWhichVariantItIs) {
  const Shapes shapes = small_z_image.shapes();
  const Described base(plugin, shapes), named(plugin, shapes, "base"), turbo(plugin, shapes, "turbo");
  EXPECT_EQ(base.confidence(), 100);
  EXPECT_EQ(base.recipe().variant, "base");
  EXPECT_EQ(named.recipe().variant, "base");
  EXPECT_EQ(turbo.recipe().variant, "turbo");
  EXPECT_EQ(base.recipe().sampling.steps, 50);
  EXPECT_EQ(base.recipe().sampling.guidance, 5.0);
  EXPECT_EQ(turbo.recipe().sampling.steps, 8);
  EXPECT_EQ(turbo.recipe().sampling.guidance, 1.0);
  for (const Described* model : {&base, &turbo}) {
    EXPECT_EQ(model->recipe().sampling.schedule.shift, 3.0);
    EXPECT_EQ(model->recipe().timestep.shift, 3.0);
  }
}

// ---- what is not Z-Image, or not whole

const WrongModel wrongs[] = {
    {"width",
     [](Shapes& s) {
       s["x_embedder.weight"].shape = {200, 64};
     },
     "x_embedder.weight: expected a multiple of 128 rows (heads of 128), found 200"},
    {"further_channels",
     [](Shapes& s) {
       s["x_embedder.weight"].shape = {256, 132};
     },
     "x_embedder.weight: expected as many columns as final_layer.linear has rows, 64 (patches of 2x2), found 132"},
    {"no_refiner", [](Shapes& s) { s.erase("noise_refiner.0.attention.qkv.weight"); },
     "missing tensor noise_refiner.0.attention.qkv.weight"},
    {"norm_of_keys", [](Shapes& s) { s["layers.1.attention.k_norm.weight"].shape = {64}; },
     "layers.1.attention.k_norm.weight: expected shape [128], found [64]"},
    {"modulation",
     [](Shapes& s) {
       s["layers.0.adaLN_modulation.0.weight"].shape = {1536, 256};
     },
     "layers.0.adaLN_modulation.0.weight: expected shape [1024, 256], found [1536, 256]"},
    {"mlp",
     [](Shapes& s) {
       s["context_refiner.0.feed_forward.w2.weight"].shape = {256, 100};
     },
     "context_refiner.0.feed_forward.w2.weight: expected shape [256, 192], found [256, 100]"},
    {"text_width",
     [](Shapes& s) {
       add_llm(s, "qwen3:", {64, 2, 2, 128, 60});
     },
     "cap_embedder.0.weight takes 96 columns, but qwen3 gives 64: the files do not belong together"},
    {"encoder_heads",
     [](Shapes& s) {
       add_llm(s, "qwen3:", {96, 2, 2, 128, 60});
       s["qwen3:model.layers.1.self_attn.q_proj.weight"].shape = {200, 96};
     },
     "qwen3:model.layers.1.self_attn: 200 rows of q_proj and 128 of k_proj are not groups of heads of 128"},
    {"encoder_without_the_norm",
     [](Shapes& s) {
       add_llm(s, "qwen3:", {96, 2, 2, 128, 60});
       s.erase("qwen3:model.norm.weight");
     },
     "missing tensor qwen3:model.norm.weight"},
};

TEST(ZImage, WrongTensorsAreNamed) { expect_refused(plugin, small_z_image.shapes(), wrongs); }

const WrongModel relatives[] = {
    {"lumina_2",
     [](Shapes& s) {
       s.erase("x_pad_token");
       s.erase("cap_pad_token");
     },
     "this is a Lumina 2 model: its text comes from Gemma"},
    {"lumina_2_of_diffusers",
     [](Shapes& s) {
       s = {{"time_caption_embed.caption_embedder.0.weight", {DType::bf16, {96}}}};
     },
     "this is a Lumina 2 model, in a diffusers folder"},
    {"omnigen_2",
     [](Shapes& s) {
       s = {{"image_index_embedding", {DType::bf16, {5, 96}}}};
     },
     "this is an OmniGen2 model"},
    {"omni", [](Shapes& s) { add_norm(s, "siglip_embedder.0", 96); }, "this is a Z-Image model that also sees images"},
    {"control", [](Shapes& s) { add_linear(s, "control_layers.0.attention.out", 8, 8); }, "this is a ControlNet"},
};

TEST(ZImage, RelativesAreRefusedByName) { expect_files_refused({"", plugin}, small_z_image.shapes(), relatives); }

// ---- captions

// The output for captions of these lengths in a batch, in graphs for `rows` rows of text, for samples that are the same
// but for their captions. Rows beyond a caption are `noise`.
HostTensor denoise_batch(const Model& model, const std::vector<int64_t>& lengths, int64_t rows, float noise) {
  const auto batch = static_cast<int64_t>(lengths.size());
  const Sizes sizes{{"batch", batch}, {"height", 8}, {"width", 12}, {"text_length", rows}};
  Graph graph = build_sample_graph(model, sizes, no_adapter, DType::f32);
  const HostTensor one = ramp({8 * 12 * 16}, 3), caption = ramp({128 * small_z_image.text}, 5);
  HostTensor latents(Desc{DType::f32, {batch, 8, 12, 16}}), text(Desc{DType::f32, {batch, rows, small_z_image.text}});
  std::vector<int32_t> mask(static_cast<size_t>(batch * rows), 0);
  std::ranges::fill(text.as<float>(), noise);
  for (int64_t b = 0; b < batch; ++b) {
    const auto width = static_cast<size_t>(small_z_image.text),
               length = static_cast<size_t>(lengths[static_cast<size_t>(b)]);
    std::ranges::copy(one.as<float>(), latents.as<float>().begin() + b * one.desc.shape[0]);
    std::copy_n(caption.as<float>().begin(), length * width, text.as<float>().begin() + b * rows * small_z_image.text);
    std::fill_n(mask.begin() + b * rows, length, 1);
  }
  Device device(tested_device());
  const Weights weights(device, model.checkpoint(), graph);
  const Externals bound = weights.bind(graph);
  OwnedProgram program(device, std::move(graph), bound, "captions");
  const std::vector<float> sigma(lengths.size(), 0.4f);
  program->set_input("latents", latents);
  program->set_input("text", text);
  program->set_input("text_mask", HostTensor::from_ints({batch, rows}, mask));
  program->set_input("timestep", HostTensor::from_floats({batch}, sigma));
  program->run();
  return program->output("output");
}

HostTensor sample_of(const HostTensor& batch, int64_t index) { return rows_of(batch, index, 1); }

// Each sample of a batch is what it is alone, however many rows there are and whatever stands in those that are not
// there. 96 patches: none is filled up; captions are, to 32, 32 and 64 tokens.
TEST(ZImage, CaptionsOfABatchDoNotMeet) {
  const TempDir dir;
  const Model model(built_plugins(), write_separate(dir.path()), "");
  const std::vector<int64_t> lengths{5, 32, 33};
  const HostTensor batch = denoise_batch(model, lengths, 70, 3.0f);
  for (size_t i = 0; i < lengths.size(); ++i) {
    const HostTensor alone = denoise_batch(model, {lengths[i]}, lengths[i], 0.0f);
    EXPECT_LT(relative_error(sample_of(batch, static_cast<int64_t>(i)), alone), 2e-6) << lengths[i];
  }
  EXPECT_GT(relative_error(sample_of(batch, 0), sample_of(batch, 1)), 1e-3);
  EXPECT_GT(relative_error(sample_of(batch, 1), sample_of(batch, 2)), 1e-3);
  // A caption without a single token is taken as 32 fillings.
  const HostTensor filled = denoise_batch(model, {0, 40}, 40, 1.0f);
  for (const float value : filled.as<float>()) ASSERT_TRUE(std::isfinite(value));
}

// ---- full size

TEST(ZImage, FullSizeGraphAndLoraModules) {
  const Shapes shapes = full_z_image.shapes();
  EXPECT_EQ(shapes.size(), 453u);
  EXPECT_EQ(parameters_of(shapes), 6154908736);
  const Described model(plugin, shapes);
  Graph graph = model.denoiser({{"batch", 1}, {"height", 128}, {"width", 128}, {"text_length", 256}});
  EXPECT_EQ(graph.desc(graph.outputs.at("output")).shape, (Shape{1, 128, 128, 16}));
  std::set<std::string> used, known;
  for (const auto& [name, value] : graph.params) used.insert(name);
  for (const auto& [name, desc] : shapes) known.insert(name);
  known.erase("x_pad_token");  // 4096 patches need no filling
  EXPECT_EQ(used, known);      // no weight is left out
  const AdapterSelection selection({}, model.recipe(), 1);
  const std::vector<AdaptedModule> modules = adapt(graph, selection, true);
  EXPECT_EQ(modules.size(), 202u);  // 30 + 2 blocks of six, 2 of five
  EXPECT_GT(plan_memory(graph, parameters(graph)).live_peak, 0);
}

TEST(ZImage, PublishedKeyLists) {
  if (!fs::exists(key_lists() / "z_image.json")) GTEST_SKIP() << "no key lists in " << key_lists();
  EXPECT_EQ(key_list("z_image"), full_z_image.shapes());
  const CheckpointSpec spec = spec_of(plugin);
  expect_maps(*spec.component("denoiser"), "z_image.diffusers-transformer", "z_image");
  expect_maps(*spec.component("qwen3"), "qwen_3_4b", "qwen_3_4b");
  Shapes all = full_z_image.shapes();
  for (const auto& [name, desc] : key_list("qwen_3_4b")) all["qwen3:" + name] = desc;
  for (const auto& [name, desc] : key_list("ae")) all["vae:" + name] = desc;
  EXPECT_NO_THROW(Described(plugin, all));
}

}  // namespace
}  // namespace lh::test::z_image_test
