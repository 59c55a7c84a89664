// Flux.2 beyond its golden cases: every layout of files, variants, refusals, prompts, sizes and batches, and the
// published models by their key lists.
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
#include "support/flux2_shapes.h"
#include "support/graph_run.h"
#include "support/model_shapes.h"
#include "support/paths.h"
#include "support/wrong_models.h"

namespace lh::test::flux2_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const char* const plugin = "flux2";
constexpr Flux2 dev{6144, 15360, 8, 48, true}, klein_4b{3072, 7680, 5, 20, false}, klein_9b{4096, 12288, 8, 24, false};

using Components = std::map<std::string, std::vector<Given>>;

// The autoencoder with its quant convolutions where ComfyUI and diffusers have them.
std::vector<Given> autoencoder() {
  std::vector<Given> all = golden_weights("vae_flux2_encode");
  for (Given& t : all)
    if (const size_t at = t.name.find("quant_conv."); at != t.name.npos)
      t.name = t.name.substr(t.name.starts_with("decoder.") ? at - 5 : at);  // post_
  return all;
}

// Whole small models whose parts fit each other: native tensors of each component.
const Components& klein() {
  static const Components all = [] {
    Shapes text;
    add_llm(text, "", {small_flux2_encoder, 4, 2, 64, 60});
    return Components{{"denoiser", filled(small_klein.shapes())}, {"vae", autoencoder()}, {"qwen3", filled(text)}};
  }();
  return all;
}
const Components& guided() {
  static const Components all = [] {
    Shapes text;
    add_mistral(text, "", {small_flux2_encoder, 4, 2, 64, 278});
    return Components{
        {"denoiser", filled(small_flux2_dev.shapes())}, {"vae", autoencoder()}, {"mistral", filled(text)}};
  }();
  return all;
}

// A file for each component.
ModelConfig write_separate(const fs::path& folder, const Components& components) {
  ModelConfig config = single(folder / "denoiser.safetensors");
  for (const auto& [name, tensors] : components) {
    write_file(folder / (name + ".safetensors"), tensors);
    if (name != "denoiser") config.given[name + "_path"] = {folder / (name + ".safetensors")};
  }
  return config;
}

const SelectAdapter no_adapter = [](const std::string&) -> const AdapterSpec* { return nullptr; };

// ---- layouts

struct Layout {
  const char* name;
  const Components& (*components)();
  std::function<ModelConfig(const fs::path& folder, const Components& components)> write;
  Change change = as_is;  // of the original's numbers
};

void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }

ModelConfig all_in_one(const fs::path& folder, const Components& components, const std::string& denoiser,
                       const std::string& text, const Change& change) {
  std::vector<Given> all;
  for (const auto& [name, tensors] : components)
    for (const Given& t : tensors)
      all.push_back({(name == "denoiser" ? denoiser : name == "vae" ? "vae." : text) + t.name, change(t.tensor)});
  all.push_back({text + "tekken_model", counting({4})});  // which nothing reads
  write_file(folder / "all.safetensors", all);
  return single(folder / "all.safetensors");
}

ModelConfig directory(const fs::path& folder, const Components& components, const std::string& variant,
                      const Change& change) {
  write_directory(folder, spec_of(plugin), components, {"denoiser", "vae"}, variant, change);
  return single(folder);
}

const Change as_fp8 = [](const HostTensor& t) {
  return t.desc.shape.rank() == 2 && t.desc.shape[0] > 1 ? as_type(t, DType::f8_e4m3) : t;
};

const Layout layouts[] = {
    {"all_in_one", klein,
     [](const fs::path& p, const Components& c) {
       return all_in_one(p, c, "model.diffusion_model.", "text_encoders.qwen3_4b.transformer.", as_is);
     }},
    {"all_in_one_of_the_larger_half", klein,
     [](const fs::path& p, const Components& c) {
       return all_in_one(p, c, "", "text_encoders.qwen3_8b.transformer.", as_half);
     },
     as_half},
    {"all_in_one_dev", guided,
     [](const fs::path& p, const Components& c) {
       return all_in_one(p, c, "model.diffusion_model.", "text_encoders.mistral3_24b.transformer.", as_is);
     }},
    {"folder", klein, [](const fs::path& p, const Components& c) { return directory(p, c, "", as_is); }},
    {"folder_of_a_variant", klein,
     [](const fs::path& p, const Components& c) { return directory(p, c, ".fp16", as_half); }, as_half},
    {"folder_dev", guided, [](const fs::path& p, const Components& c) { return directory(p, c, "", as_is); }},
    {"transformer_in_fp8",
     klein,
     [](const fs::path& p, Components c) {
       for (Given& t : c.at("denoiser")) t.tensor = as_fp8(t.tensor);
       return write_separate(p, c);
     },
     {}},
    {"transformer_with_the_names_of_diffusers", guided,
     [](const fs::path& p, Components c) {
       std::vector<Given> renamed;
       for (const Given& t : c.at("denoiser"))
         for (const Given& part : in_diffusers(*spec_of(plugin).component("denoiser"), t, c.at("denoiser")))
           renamed.push_back(part);
       c.at("denoiser") = renamed;
       return write_separate(p, c);
     }},
    {"original_autoencoder", klein,
     [](const fs::path& p, Components c) {
       c.at("vae") = golden_weights("vae_flux2_encode");
       return write_separate(p, c);
     }},
    {"encoder_that_sees", guided,
     [](const fs::path& p, Components c) {
       for (Given& t : c.at("mistral")) t.name = "language_model." + t.name;
       for (const char* other : {"vision_tower.ln_pre.weight", "multi_modal_projector.norm.weight",
                                 "language_model.lm_head.weight", "language_model.model.norm.weight"})
         c.at("mistral").push_back({other, counting({2})});
       return write_separate(p, c);
     }},
};

class Flux2Layouts : public testing::TestWithParam<Layout> {};

// In a diffusers directory the folder of the text encoder is looked at for both, and in one file the final norm of
// Mistral is left as it is: neither is read.
bool is_read(const std::string& name, const std::string& encoder) {
  const bool other = name.starts_with(encoder == "qwen3" ? "mistral:" : "qwen3:");
  return !other && name != "mistral:model.norm.weight" && !name.ends_with("tekken_model");
}

TEST_P(Flux2Layouts, OpenAsTheSameModel) {
  const TempDir dir;
  fs::create_directories(dir / "separate");
  fs::create_directories(dir / "model");
  const Components& components = GetParam().components();
  const std::string encoder = components.contains("qwen3") ? "qwen3" : "mistral";
  const Model want(built_plugins(), write_separate(dir / "separate", components), "");
  const Model got(built_plugins(), GetParam().write(dir / "model", components), "");
  EXPECT_EQ(got.id(), plugin);
  EXPECT_EQ(got.recipe().variant, want.recipe().variant);
  const bool fp8 = !GetParam().change;  // of the denoiser alone
  size_t known = 0;
  for (const auto& [name, desc] : got.checkpoint().weights()) {
    if (!is_read(name, encoder)) continue;
    ++known;
    HostTensor original = read(want.checkpoint(), name);
    if (fp8 && name.find(':') == name.npos) original = converted(as_fp8(original), DType::f32);
    if (!fp8) original = converted(GetParam().change(original), DType::f32);
    EXPECT_EQ(read(got.checkpoint(), name).data, original.data) << name;
  }
  EXPECT_EQ(known, want.checkpoint().weights().size());
  EXPECT_NO_THROW(got.build("denoiser", {{"batch", 1}, {"height", 3}, {"width", 5}, {"text_length", 9}}, DType::f32));
  EXPECT_NO_THROW(got.build("conditioner", {{"batch", 2}, {encoder + ".length", 9}}, DType::f32));
  EXPECT_NO_THROW(got.build("vae.encode", {{"batch", 1}, {"height", 48}, {"width", 80}}, DType::f32));
}

INSTANTIATE_TEST_SUITE_P(All, Flux2Layouts, testing::ValuesIn(layouts),
                         [](const auto& info) { return std::string(info.param.name); });

// ---- variants

TEST(Flux2, VariantsAreToldByWeightsTheUserAndTheFolder) {
  struct Row {
    Flux2 size;
    const char *given, *variant;
    int64_t steps;
    double guidance;
  };
  const Row rows[] = {{small_flux2_dev, "", "dev", 50, 4},    {small_flux2_dev, "dev", "dev", 50, 4},
                      {klein_4b, "", "klein-base-4b", 50, 4}, {klein_9b, "klein-base", "klein-base-9b", 50, 4},
                      {klein_4b, "klein", "klein-4b", 4, 1},  {klein_9b, "klein", "klein-9b", 4, 1}};
  for (const Row& row : rows) {
    const Described model(plugin, row.size.shapes(), row.given);
    EXPECT_EQ(model.confidence(), 100);
    const Recipe recipe = model.recipe();
    EXPECT_EQ(recipe.variant, row.variant);
    EXPECT_EQ(recipe.sampling.steps, row.steps) << row.variant;
    EXPECT_EQ(recipe.sampling.guidance, row.guidance) << row.variant;
    EXPECT_EQ(recipe.sampling.scheduler, "mu_by_steps") << row.variant;
    EXPECT_EQ(recipe.inputs.contains("guidance"), row.size.guidance) << row.variant;
  }
  for (const auto& [size, given, text] :
       {std::tuple{small_klein, "dev", "variant is dev, but the checkpoint has no guidance_in.in_layer.weight"},
        std::tuple{small_flux2_dev, "klein", "variant is klein, but the checkpoint has a guidance_in"}})
    try {
      const Described model(plugin, size.shapes(), given);
      ADD_FAILURE() << given << " was taken";
    } catch (const std::runtime_error& e) {
      EXPECT_THAT(e.what(), HasSubstr(text));
    }

  const TempDir dir;
  const ModelConfig config = directory(dir.path(), klein(), "", as_is);
  for (const auto& [distilled, variant] : {std::pair{"true", "klein-4b"}, std::pair{"false", "klein-base-4b"}}) {
    put(dir / "model_index.json",
        fmt::format(R"({{"_class_name": "Flux2KleinPipeline", "is_distilled": {}}})", distilled));
    EXPECT_EQ(Model(built_plugins(), config, "").recipe().variant, variant);
  }
}

// The same weights make pictures and edit them: what the run has says which.
TEST(Flux2, ReferencesAreInputsOfRunsThatHaveThem) {
  const TempDir dir;
  const ModelConfig config = write_separate(dir.path(), klein());
  const Sizes sizes{{"batch", 1}, {"height", 3}, {"width", 5}, {"text_length", 7}};
  const std::pair<std::set<std::string>, std::vector<std::string>> rows[] = {
      {{}, {}},
      {{"control"}, {"reference"}},
      {{"control", "control_2"}, {"reference", "reference_2"}},
      {{"control", "control_2", "control_3", "control_4", "mask"},
       {"reference", "reference_2", "reference_3", "reference_4"}}};
  for (const auto& [images, references] : rows) {
    const Model model(built_plugins(), config, "", images);
    check_model(model, DType::f32);
    const Graph graph = model.build("denoiser", sizes, DType::f32);
    std::vector<std::string> found;
    for (const auto& [name, value] : graph.inputs)
      if (name.starts_with("reference")) found.push_back(name);
    EXPECT_EQ(found, references);
    EXPECT_EQ(graph.desc(graph.outputs.at("output")).shape, (Shape{1, 3, 5, 128}));
  }
}

// ---- prompts

struct Prompt {
  std::vector<int32_t> ids, mask;
};
Prompt tokens_of(const ModelConfig& config, const std::string& encoder, const std::string& prompt) {
  const Model model(built_plugins(), config, "");
  Device device(tested_device());
  TextEncoding text(device, model, DType::f32, {});
  EXPECT_EQ(text.tokens().sizes().at(encoder + ".length"), 512);
  const Tokens tokens = *text.tokens().of(prompt);
  const auto values = [&](const char* name) {
    const std::span<const int32_t> all = tokens.at(encoder + name).as<int32_t>();
    return std::vector<int32_t>(all.begin(), all.end());
  };
  return {values(".input_ids"), values(".attention_mask")};
}

std::vector<int32_t> repeated(std::vector<int32_t> front, size_t size, int32_t value) {
  front.resize(size, value);
  return front;
}

TEST(Flux2, PromptsOfKleinAreTokensOfQwen3) {
  const TempDir dir;
  const ModelConfig config = write_separate(dir.path(), klein());
  const Prompt prompt = tokens_of(config, "qwen3", "a photo of a cat");
  EXPECT_EQ(prompt.ids, repeated({151644, 872, 198, 64, 6548, 315, 264, 8251, 151645, 198, 151644, 77091, 198, 151667,
                                  271, 151668, 271},
                                 512, 151643));
  EXPECT_EQ(prompt.mask, repeated(std::vector<int32_t>(17, 1), 512, 0));
  const Prompt empty = tokens_of(config, "qwen3", "");
  EXPECT_EQ(empty.ids,
            repeated({151644, 872, 198, 151645, 198, 151644, 77091, 198, 151667, 271, 151668, 271}, 512, 151643));
}

// By a small tokenizer with Mistral's control tokens: 17 and 18 around the system's text, 3 and 4 around the prompt.
TEST(Flux2, PromptsOfDevHavePadsInFront) {
  const TempDir dir;
  ModelConfig config = write_separate(dir.path(), guided());
  config.given["tokenizer_path"] = {fs::path(test_data()) / "mistral_small"};
  const Prompt prompt = tokens_of(config, "mistral", "cat");
  const std::string system =
      "You are an AI that reasons about image descriptions. You give structured responses focusing on object "
      "relationships, object\nattribution and actions without speculation.";
  std::vector<int32_t> ids{1, 17};
  for (size_t at = 0; at < system.size();) {  // bytes, and one merge that the text has: "ca"
    const bool merged = system.compare(at, 2, "ca") == 0;
    ids.push_back(merged ? 276 : 20 + static_cast<unsigned char>(system[at]));
    at += merged ? 2 : 1;
  }
  for (const int32_t id : {18, 3, 277, 4}) ids.push_back(id);
  const size_t pads = 512 - ids.size();
  std::vector<int32_t> want(pads, 11), mask(pads, 0);
  want.insert(want.end(), ids.begin(), ids.end());
  EXPECT_EQ(prompt.ids, want);
  EXPECT_EQ(prompt.mask, repeated(mask, 512, 1));
}

// Files for one variant beside those of another.
TEST(Flux2, FilesThatDoNotBelongTogether) {
  const TempDir dir;
  ModelConfig config = write_separate(dir.path(), klein());
  Shapes wide;
  add_llm(wide, "", {64, 4, 2, 64, 60});
  write_file(dir / "wide.safetensors", filled(wide));
  config.given["qwen3_path"] = {dir / "wide.safetensors"};
  EXPECT_THAT(error_of([&] { const Model model(built_plugins(), config, ""); }),
              HasSubstr("txt_in.weight takes 96 columns, but three states of qwen3 give 192"));

  write_file(dir / "mistral.safetensors", guided().at("mistral"));
  config.given["qwen3_path"] = {dir / "mistral.safetensors"};
  const Model model(built_plugins(), config, "");
  EXPECT_THAT(error_of([&] {
                model.build("conditioner", {{"batch", 1}, {"qwen3.length", 9}}, DType::f32);
              }),
              HasSubstr("model.qwen3_path is not qwen3: of Qwen3, which klein reads with, and Mistral"));

  config.given["qwen3_path"] = {dir / "qwen3.safetensors"};
  write_file(dir / "ae.safetensors", golden_weights("vae_flux_encode"));
  config.given["vae_path"] = {dir / "ae.safetensors"};
  EXPECT_THAT(error_of([&] { const Model other(built_plugins(), config, ""); }),
              HasSubstr("vae:decoder.conv_in.weight: expected shape [*, 32, 3, 3]"));
}

// ---- what is not Flux.2, or not whole

const WrongModel wrongs[] = {
    {"width",
     [](Shapes& s) {
       s["img_in.weight"].shape = {200, 128};
     },
     "img_in.weight: expected a multiple of 128 rows (heads of 128), found 200"},
    {"further_channels",
     [](Shapes& s) {
       s["img_in.weight"].shape = {128, 260};
     },
     "img_in.weight: expected as many columns as final_layer.linear has rows, 128, found 260"},
    {"modulation",
     [](Shapes& s) {
       s["double_stream_modulation_txt.lin.weight"].shape = {384, 128};
     },
     "double_stream_modulation_txt.lin.weight: expected shape [768, 128], found [384, 128]"},
    {"no_single_blocks", [](Shapes& s) { s.erase("single_blocks.0.linear1.weight"); },
     "missing tensor single_blocks.0.linear1.weight"},
    {"mlp",
     [](Shapes& s) {
       s["double_blocks.0.txt_mlp.0.weight"].shape = {384, 128};
     },
     "double_blocks.0.txt_mlp.0.weight: expected shape [768, 128], found [384, 128]"},
    {"norm_of_keys", [](Shapes& s) { s["single_blocks.1.norm.key_norm.scale"].shape = {64}; },
     "single_blocks.1.norm.key_norm.scale: expected shape [128], found [64]"},
    {"statistics",
     [](Shapes& s) {
       for (const Given& t : autoencoder())
         if (t.name != "bn.running_var") s["vae:" + t.name] = t.tensor.desc;
     },
     "missing tensor vae:bn.running_var [128]"},
};

TEST(Flux2, WrongTensorsAreNamed) { expect_refused(plugin, small_klein.shapes(), wrongs); }

const WrongModel relatives[] = {
    {"control",
     [](Shapes& s) {
       s = {{"control_transformer_blocks.0.after_proj.weight", {DType::bf16, {8, 8}}}};
     },
     "this is a ControlNet (control_transformer_blocks)"},
    {"flux_3",
     [](Shapes& s) {
       s = {{"early_stream_modulations.video.linear.weight", {DType::bf16, {8, 8}}}};
     },
     "this is a Flux.3 model"},
    {"kontext",
     [](Shapes& s) {
       add_linear(s, "double_blocks.0.img_mod.lin", 768, 128);
       s.erase("double_stream_modulation_img.lin.weight");
     },
     "this is a Flux.1 model (Kontext,"},
};

TEST(Flux2, RelativesAreRefusedByName) { expect_files_refused({plugin}, small_klein.shapes(), relatives); }

// ---- sizes and batches

// Samples that are the same but for their text and time.
HostTensor denoise_batch(const Model& model, const std::vector<int64_t>& seeds, int64_t height, int64_t width,
                         int64_t rows) {
  const auto batch = static_cast<int64_t>(seeds.size());
  Graph graph = build_sample_graph(
      model, {{"batch", batch}, {"height", height}, {"width", width}, {"text_length", rows}}, no_adapter, DType::f32);
  HostTensor latents(Desc{DType::f32, {batch, height, width, 128}}), text(Desc{DType::f32, {batch, rows, 96}});
  std::vector<float> sigma, guidance;
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t seed = seeds[static_cast<size_t>(b)];
    std::ranges::copy(ramp({height * width * 128}, 3).as<float>(),
                      latents.as<float>().begin() + b * height * width * 128);
    std::ranges::copy(ramp({rows * 96}, seed).as<float>(), text.as<float>().begin() + b * rows * 96);
    sigma.push_back(0.1f * static_cast<float>(seed));
    guidance.push_back(static_cast<float>(seed));
  }
  Device device(tested_device());
  const Weights weights(device, model.checkpoint(), graph);
  const Externals bound = weights.bind(graph);
  OwnedProgram program(device, std::move(graph), bound, "batch");
  program->set_input("latents", latents);
  program->set_input("text", text);
  program->set_input("timestep", floats({batch}, sigma));
  program->set_input("guidance", floats({batch}, guidance));
  program->run();
  return program->output("output");
}

TEST(Flux2, SamplesOfABatchDoNotMeet) {
  const TempDir dir;
  const Model model(built_plugins(), write_separate(dir.path(), guided()), "");
  for (const auto& [height, width] : {std::pair{3, 5}, std::pair{1, 7}, std::pair{9, 2}}) {
    const HostTensor both = denoise_batch(model, {3, 8}, height, width, 5);
    EXPECT_EQ(both.desc.shape, (Shape{2, height, width, 128}));
    EXPECT_LT(relative_error(rows_of(both, 0, 1), denoise_batch(model, {3}, height, width, 5)), 2e-6);
    EXPECT_LT(relative_error(rows_of(both, 1, 1), denoise_batch(model, {8}, height, width, 5)), 2e-6);
    EXPECT_GT(relative_error(rows_of(both, 0, 1), rows_of(both, 1, 1)), 1e-3);
  }
}

// Scales of norms may be called weights.
TEST(Flux2, NamesOfNorms) {
  const TempDir dir;
  Components other = klein();
  for (Given& t : other.at("denoiser"))
    if (t.name.ends_with("_norm.scale")) t.name.replace(t.name.size() - 5, 5, "weight");
  fs::create_directories(dir / "a");
  fs::create_directories(dir / "b");
  const Model want(built_plugins(), write_separate(dir / "a", klein()), ""),
      got(built_plugins(), write_separate(dir / "b", other), "");
  const Sizes sizes{{"batch", 1}, {"height", 3}, {"width", 5}, {"text_length", 9}};
  const auto output = [&](const Model& model) {
    return output_of(model, build_sample_graph(model, sizes, no_adapter, DType::f32), "output");
  };
  EXPECT_EQ(output(got).data, output(want).data);
}

// The latents are the mean of the posterior: nothing is drawn.
TEST(Flux2, LatentsAreNotDrawn) {
  const TempDir dir;
  const Model model(built_plugins(), write_separate(dir.path(), klein()), "");
  const HostTensor posterior = output_of(
      model, model.build("vae.encode", {{"batch", 1}, {"height", 32}, {"width", 48}}, DType::f32), "posterior");
  EXPECT_EQ(posterior.desc.shape, (Shape{1, 2, 3, 256}));
  const std::span<const float> values = posterior.as<float>();
  for (size_t i = 0; i < values.size(); ++i) {
    if (i % 256 >= 128) {
      ASSERT_EQ(values[i], 0);
    }
  }
}

// ---- full size

TEST(Flux2, FullSizeGraphsAndLoraModules) {
  struct Row {
    const Flux2& size;
    size_t tensors;
    int64_t parameters;
    size_t modules;
  };
  for (const Row& row :
       {Row{dev, 299, 32223281152, 160}, Row{klein_4b, 149, 3875544576, 80}, Row{klein_9b, 201, 9078581248, 112}}) {
    const Shapes shapes = row.size.shapes();
    EXPECT_EQ(shapes.size(), row.tensors);
    EXPECT_EQ(parameters_of(shapes), row.parameters);
    const Described model(plugin, shapes);
    Graph graph = model.denoiser({{"batch", 1}, {"height", 64}, {"width", 64}, {"text_length", 512}});
    EXPECT_EQ(graph.desc(graph.outputs.at("output")).shape, (Shape{1, 64, 64, 128}));
    std::set<std::string> used, known;
    for (const auto& [name, value] : graph.params) used.insert(name);
    for (const auto& [name, desc] : shapes) known.insert(name);
    EXPECT_EQ(used, known);  // no weight is left out
    const AdapterSelection selection({}, model.recipe(), 1);
    const std::vector<AdaptedModule> modules = adapt(graph, selection, true);
    EXPECT_EQ(modules.size(), row.modules);
    for (const AdaptedModule& m : modules)
      EXPECT_TRUE(m.name.starts_with("double_blocks.") || m.name.starts_with("single_blocks.")) << m.name;
    EXPECT_GT(plan_memory(graph, parameters(graph)).live_peak, 0);
  }
}

TEST(Flux2, PublishedKeyLists) {
  if (!fs::exists(key_lists() / "flux2-dev.json")) GTEST_SKIP() << "no key lists in " << key_lists();
  const CheckpointSpec spec = spec_of(plugin);
  for (const auto& [name, size, text] :
       {std::tuple{"flux2-dev", dev, ""}, std::tuple{"flux2-klein-4b", klein_4b, "qwen_3_4b"},
        std::tuple{"flux2-klein-9b", klein_9b, "qwen_3_8b"}}) {
    EXPECT_EQ(key_list(name), size.shapes()) << name;
    expect_maps(*spec.component("denoiser"), std::string(name) + ".diffusers-transformer", name);
    Shapes all = size.shapes();
    for (const auto& [key, desc] : key_list("flux2_ae")) all["vae:" + key] = desc;
    if (*text != 0) {
      expect_maps(*spec.component("qwen3"), text, text);
      for (const auto& [key, desc] : key_list(text)) all["qwen3:" + key] = desc;
    }
    EXPECT_NO_THROW(Described(plugin, all)) << name;
  }
}

}  // namespace
}  // namespace lh::test::flux2_test
