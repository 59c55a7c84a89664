// One model in every layout of files that it comes in: each opens as the same tensors. LoRA files of the model, out and
// in. Full-size models by their key lists alone.
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <regex>
#include <set>

#include "compile/adapters.h"
#include "compile/compile.h"
#include "io/lora_file.h"
#include "io/lora_merge.h"
#include "passes/differentiate.h"
#include "run/weights.h"
#include "support/device.h"
#include "support/graph_run.h"
#include "support/model_shapes.h"
#include "support/paths.h"

namespace lh::layout_test {
namespace {

using namespace test;
namespace fs = std::filesystem;

const char* const plugin_id = "flux";

const Registry& registry() { return built_plugins(); }
CheckpointSpec spec() { return spec_of(plugin_id); }

ModelConfig original() {
  ModelConfig config = single(toy_folder() / "flux_toy.safetensors");
  config.given["vae_path"] = {toy_folder() / "ae.safetensors"};
  config.given["clip_path"] = {toy_folder() / "clip_l.safetensors"};
  config.given["t5_path"] = {toy_folder() / "t5xxl.safetensors"};
  return config;
}

const std::map<std::string, std::vector<Given>>& components() {
  static const std::map<std::string, std::vector<Given>> all{
      {"denoiser", tensors_of(toy_folder() / "flux_toy.safetensors")},
      {"vae", tensors_of(toy_folder() / "ae.safetensors")},
      {"clip_l", tensors_of(toy_folder() / "clip_l.safetensors")},
      {"t5", tensors_of(toy_folder() / "t5xxl.safetensors")}};
  return all;
}

// The whole model as a diffusers directory.
void write_directory(const fs::path& folder, const std::string& variant, const Change& change) {
  test::write_directory(folder, spec(), components(), {"denoiser", "vae"}, variant, change);
  put(folder / "model_index.json", R"({"_class_name": "FluxPipeline"})");
}

void write_all_in_one(const fs::path& path) {
  const std::map<std::string, std::string> prefixes{{"denoiser", "model.diffusion_model."},
                                                    {"vae", "vae."},
                                                    {"clip_l", "text_encoders.clip_l.transformer."},
                                                    {"t5", "text_encoders.t5xxl.transformer."}};
  std::vector<Given> all;
  for (const auto& [name, tensors] : components())
    for (const Given& t : tensors) all.push_back({prefixes.at(name) + t.name, t.tensor});
  write_file(path, all);
}

const Sizes small{{"batch", 1}, {"height", 8}, {"width", 4}, {"text_length", 5}};

std::vector<float> waves(const HostTensor& like, float phase) {
  std::vector<float> values(static_cast<size_t>(like.desc.shape.numel()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(phase + 0.7f * static_cast<float>(i));
  return values;
}

// The output of a graph over a model's weights, for inputs that follow from their names.
HostTensor run(Device& device, const Model& model, Graph graph, const std::string& output,
               const Adapters* adapters = nullptr) {
  const Weights weights(device, model.checkpoint(), graph);
  Externals bound = weights.bind(graph);
  if (adapters != nullptr) adapters->bind(graph, bound);
  OwnedProgram program(device, std::move(graph), bound, "layout test");
  for (const auto& [name, value] : program->graph().inputs) {
    HostTensor input(Desc{DType::f32, program->graph().desc(value).shape});
    const std::vector<float> values = waves(input, static_cast<float>(name.size()));
    std::ranges::copy(values, input.as<float>().begin());
    if (name == "timestep") std::ranges::fill(input.as<float>(), 0.6f);
    program->set_input(name, input);
  }
  program->run();
  return program->output(output);
}

const SelectAdapter no_adapter = [](const std::string&) -> const AdapterSpec* { return nullptr; };

HostTensor denoise(const Model& model) {
  Device device(tested_device());
  return run(device, model, build_sample_graph(model, small, no_adapter, DType::f32), "output");
}

TEST(Layout, DiffusersDirectory) {
  const TempDir dir;
  write_directory(dir / "model", "", as_is);
  const Model want(registry(), original(), "");
  const HostTensor expected = denoise(want);
  const Model got(registry(), single(dir / "model"), "");
  expect_same(got.checkpoint(), want.checkpoint());
  EXPECT_EQ(denoise(got).data, expected.data);
  Device device(tested_device());
  const Sizes sizes{{"batch", 1}, {"height", 2}, {"width", 2}};
  // Linears in the place of 1x1 convolutions: the same numbers, which another kernel may add in another order.
  EXPECT_LT(relative_error(run(device, got, got.build("vae.decode", sizes, DType::f32), "image"),
                           run(device, want, want.build("vae.decode", sizes, DType::f32), "image")),
            1e-6);
}

// transformers 5 writes CLIP without the text_model. level.
TEST(Layout, DiffusersDirectoryWithoutTextModelLevel) {
  const TempDir dir;
  write_directory(dir / "model", "", as_is);
  std::vector<Given> clip = components().at("clip_l");
  for (Given& t : clip) t.name = t.name.substr(std::string("text_model.").size());
  write_file(dir / "model" / "text_encoder" / "model.safetensors", clip);
  const Model want(registry(), original(), ""), got(registry(), single(dir / "model"), "");
  expect_same(got.checkpoint(), want.checkpoint());
}

TEST(Layout, DiffusersDirectoryOfAVariant) {
  const TempDir dir;
  write_directory(dir / "model", ".fp16", as_half);
  const Model want(registry(), original(), ""), got(registry(), single(dir / "model"), "");
  expect_same(got.checkpoint(), want.checkpoint(), as_half);
}

TEST(Layout, AllInOneFile) {
  const TempDir dir;
  write_all_in_one(dir / "all.safetensors");
  const Model want(registry(), original(), "");
  const HostTensor expected = denoise(want);
  const Model got(registry(), single(dir / "all.safetensors"), "");
  expect_same(got.checkpoint(), want.checkpoint());
  EXPECT_EQ(denoise(got).data, expected.data);
}

// ---- fp8
// ---------------------------------------------------------------------------------------------------------------

enum class Fp8 { plain, old_spelling, new_spelling };

struct Fp8File {
  std::vector<Given> tensors;
  std::map<std::string, float> scales;  // of the weights that are fp8
};

Fp8File in_fp8(Fp8 kind) {
  Fp8File out;
  for (const Given& t : components().at("denoiser")) {
    if (kind != Fp8::plain && (t.tensor.desc.shape.rank() != 2 || !t.name.ends_with(".weight"))) {
      out.tensors.push_back(t);
      continue;
    }
    HostTensor values = as_type(t.tensor, DType::f32);
    float scale = 1;
    if (kind != Fp8::plain) {
      float largest = 0;
      for (const float v : values.as<float>()) largest = std::max(largest, std::abs(v));
      scale = largest / 448;
      for (float& v : values.as<float>()) v /= scale;
    }
    out.scales[t.name] = scale;
    out.tensors.push_back({t.name, as_type(values, DType::f8_e4m3)});
    const std::string layer = t.name.substr(0, t.name.rfind('.'));
    const HostTensor factor = floats(Shape{}, {scale}), input = floats(Shape{}, {1});
    if (kind == Fp8::old_spelling) {
      out.tensors.push_back({layer + ".scale_weight", factor});
      out.tensors.push_back({layer + ".scale_input", input});
    } else if (kind == Fp8::new_spelling) {
      const std::string json = R"({"format": "float8_e4m3fn"})";
      HostTensor text(Desc{DType::u8, {static_cast<int64_t>(json.size())}});
      std::memcpy(text.data.data(), json.data(), json.size());
      out.tensors.push_back({layer + ".weight_scale", factor});
      out.tensors.push_back({layer + ".input_scale", input});
      out.tensors.push_back({layer + ".comfy_quant", text});
    }
  }
  if (kind == Fp8::old_spelling) out.tensors.push_back({"scaled_fp8", as_type(floats({2}, {0, 0}), DType::f8_e4m3)});
  return out;
}

void expect_fp8(Fp8 kind, const std::string& prefix) {
  const TempDir dir;
  const Fp8File file = in_fp8(kind);
  std::vector<Given> prefixed = file.tensors;
  for (Given& t : prefixed) t.name = prefix + t.name;
  write_file(dir / "fp8.safetensors", prefixed);
  const Model want(registry(), single(toy_folder() / "flux_toy.safetensors"), ""),
      got(registry(), single(dir / "fp8.safetensors"), "");
  ASSERT_EQ(got.checkpoint().weights().size(), want.checkpoint().weights().size());
  for (const auto& [name, desc] : want.checkpoint().weights()) {
    ASSERT_TRUE(got.checkpoint().weights().contains(name)) << name;
    const HostTensor w = read(want.checkpoint(), name), g = read(got.checkpoint(), name);
    const auto scale = file.scales.find(name);
    if (scale == file.scales.end()) {
      EXPECT_EQ(g.data, w.data) << name;
      continue;
    }
    // Half a step of three mantissa bits; below the normal numbers, half of 2^-9 scales.
    size_t wrong = 0;
    for (size_t i = 0; i < w.as<float>().size(); ++i) {
      const float value = w.as<float>()[i], limit = std::max(std::abs(value) / 16, scale->second / 1024) * 1.00001f;
      wrong += std::abs(g.as<float>()[i] - value) > limit;
    }
    EXPECT_EQ(wrong, 0u) << name;
  }
}

TEST(Layout, PlainFp8) { expect_fp8(Fp8::plain, ""); }
TEST(Layout, ScaledFp8OldSpelling) {
  expect_fp8(Fp8::old_spelling, "");
  expect_fp8(Fp8::old_spelling, "model.diffusion_model.");
}
TEST(Layout, ScaledFp8NewSpelling) { expect_fp8(Fp8::new_spelling, "model.diffusion_model."); }

// ---- LoRA
// --------------------------------------------------------------------------------------------------------------

// Adapters on every default target of the small model, none of them zero.
class LoraRoundTrip : public ::testing::Test {
 protected:
  LoraRoundTrip() : model(registry(), single(toy_folder() / "flux_toy.safetensors"), ""), device(tested_device()) {
    network.linear = 3;
    network.linear_alpha = 2;
    const AdapterSelection selection(network, model.recipe(), 1);
    const TrainGraph train = build_train_graph(model, small, selection, {});
    trained = std::make_unique<Adapters>(train.graph, train.modules);
    trained->allocate(device);
    trained->initialise(7);
    for (const AdapterTensor& t : trained->tensors()) {
      if (!t.name.ends_with(".lora_up.weight")) continue;
      HostTensor up(Desc{DType::f32, t.shape});
      const std::vector<float> values = waves(up, static_cast<float>(t.offset % 97));
      for (size_t i = 0; i < values.size(); ++i) up.as<float>()[i] = 0.3f * values[i];
      trained->upload("p", t, up);
    }
    plain = run(device, model, build_sample_graph(model, small, no_adapter, DType::f32), "output");
    want = run(device, model, build_sample_graph(model, small, selection, DType::f32), "output", trained.get());
  }
  HostTensor with(const std::vector<LoraInput>& files) {
    Model merged(registry(), single(toy_folder() / "flux_toy.safetensors"), "");
    merged.merge(files);
    return run(device, merged, build_sample_graph(merged, small, no_adapter, DType::f32), "output");
  }
  fs::path write(const std::string& format) {
    const fs::path path = dir / (format + ".safetensors");
    write_lora(path, trained->modules(), model.spec(), format, DType::f32, {});
    return path;
  }

  TempDir dir;
  Model model;
  Device device;
  NetworkConfig network;
  std::unique_ptr<Adapters> trained;
  HostTensor plain, want;
};

TEST_F(LoraRoundTrip, EveryFormatMergedGivesWhatWasTrained) {
  EXPECT_GT(relative_error(plain, want), 0.01);
  for (const char* format : {"kohya", "comfyui", "diffusers"}) {
    const fs::path path = write(format);
    EXPECT_LT(relative_error(with({{path, 1}}), want), 1e-5) << format;
    EXPECT_LT(relative_error(with({{path, 0.25}, {path, 0.75}}), want), 1e-5) << format;
    EXPECT_LT(relative_error(with({{path, 0}}), plain), 1e-6) << format;
  }
  EXPECT_LT(relative_error(with({{write("kohya"), 0.5}, {write("diffusers"), 0.5}}), want), 1e-5);
}

// Modules that every tool knows: linears of the blocks, none outside of them (docs/lora-files.md).
TEST_F(LoraRoundTrip, KeysAreThoseThatToolsLoad) {
  const std::regex kohya(
      R"(lora_unet_(double_blocks_\d+_(img|txt)_(attn_qkv|attn_proj|mlp_0|mlp_2|mod_lin)|)"
      R"(single_blocks_\d+_(linear1|linear2|modulation_lin))\.(lora_down\.weight|lora_up\.weight|alpha))");
  const std::regex diffusers(
      R"(transformer\.(transformer_blocks\.\d+\.(attn\.(to_[qkv]|add_[qkv]_proj|to_out\.0|to_add_out)|)"
      R"(ff(_context)?\.net\.(0\.proj|2)|norm1(_context)?\.linear)|)"
      R"(single_transformer_blocks\.\d+\.(attn\.to_[qkv]|proj_mlp|proj_out|norm\.linear))\.lora_[AB]\.weight)");
  const Safetensors first(write("kohya")), second(write("diffusers"));
  for (const StoredTensor& t : first.tensors()) EXPECT_TRUE(std::regex_match(t.name, kohya)) << t.name;
  for (const StoredTensor& t : second.tensors()) EXPECT_TRUE(std::regex_match(t.name, diffusers)) << t.name;
  EXPECT_EQ(first.tensors().size(), 3u * (1 * 10 + 4 * 3));  // 1 double block, 4 single blocks
  EXPECT_EQ(second.tensors().size(), 2u * (1 * 14 + 4 * 6));
}

// ---- full size
// ---------------------------------------------------------------------------------------------------------

// Names and shapes of the full-size transformer: 19 double and 38 single blocks of width 3072.
Shapes full_size(bool guided) {
  const FluxBlocks blocks{3072, 4096, 19, 38};
  const int64_t h = blocks.hidden;
  Shapes shapes = blocks.shapes();
  for (const auto& [name, in] :
       std::map<std::string, int64_t>{{"time_in", 256}, {"vector_in", 768}, {"guidance_in", 256}}) {
    if (name == "guidance_in" && !guided) continue;
    add_linear(shapes, name + ".in_layer", h, in);
    add_linear(shapes, name + ".out_layer", h, h);
  }
  for (int64_t i = 0; i < blocks.double_blocks; ++i)
    for (const char* stream : {"img", "txt"})
      add_linear(shapes, fmt::format("double_blocks.{}.{}_mod.lin", i, stream), 6 * h, h);
  for (int64_t i = 0; i < blocks.single_blocks; ++i)
    add_linear(shapes, fmt::format("single_blocks.{}.modulation.lin", i), 3 * h, h);
  add_linear(shapes, "final_layer.adaLN_modulation.1", 2 * h, h);
  return shapes;
}

TEST(FullSize, GraphAdaptersAndPlan) {
  for (const bool guided : {true, false}) {
    const Shapes shapes = full_size(guided);
    EXPECT_EQ(shapes.size(), guided ? 780u : 776u);
    EXPECT_EQ(parameters_of(shapes), guided ? 11901408320 : 11891178560);

    const Described model(plugin_id, shapes);
    EXPECT_EQ(model.confidence(), 100);
    const Recipe recipe = model.recipe();
    EXPECT_EQ(recipe.guided(), guided);
    const int64_t text = recipe.tokenizers.at("t5").length;
    EXPECT_EQ(text, guided ? 512 : 256);
    Graph graph = model.denoiser({{"batch", 1}, {"height", 128}, {"width", 128}, {"text_length", text}});  // 1024x1024
    EXPECT_EQ(graph.desc(graph.outputs.at("output")).shape, (Shape{1, 128, 128, 16}));
    std::set<std::string> used, known;
    for (const auto& [name, value] : graph.params) {
      used.insert(name);
      ASSERT_TRUE(shapes.contains(name)) << name;
      EXPECT_EQ(graph.desc(value).shape, shapes.at(name).shape) << name;
    }
    for (const auto& [name, desc] : shapes) known.insert(name);
    EXPECT_EQ(used, known);  // no weight is left out

    const AdapterSelection selection({}, recipe, 1);
    const std::vector<AdaptedModule> modules = adapt(graph, selection, true);
    EXPECT_EQ(modules.size(), 304u);
    for (const AdaptedModule& m : modules)
      EXPECT_TRUE(m.name.starts_with("double_blocks.") || m.name.starts_with("single_blocks.")) << m.name;
    EXPECT_GT(plan_memory(graph, lh::parameters(graph)).live_peak, 0);
  }
}

TEST(FullSize, PublishedKeyLists) {
  if (!fs::exists(key_lists() / "flux1-dev.json")) GTEST_SKIP() << "no key lists in " << key_lists();
  EXPECT_EQ(key_list("flux1-dev"), full_size(true));
  EXPECT_EQ(key_list("flux1-schnell"), full_size(false));
  const std::vector<std::array<std::string, 3>> folders{
      {"denoiser", "flux1-dev.diffusers-transformer", "flux1-dev"},
      {"denoiser", "flux1-schnell.diffusers-transformer", "flux1-schnell"},
      {"vae", "flux1.diffusers-vae", "ae"},
      {"clip_l", "flux1.diffusers-text_encoder", "clip_l"},
      {"t5", "flux1.diffusers-text_encoder_2", "t5xxl"}};
  const CheckpointSpec all = spec();
  for (const auto& [component, folder, file] : folders) expect_maps(*all.component(component), folder, file);
}

}  // namespace
}  // namespace lh::layout_test
