// One model in every layout of files that it comes in: each opens as the same tensors. LoRA files of the model, out and
// in. Full-size models by their key lists alone.
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <regex>
#include <set>

#include "graph/differentiate.h"
#include "io/key_map.h"
#include "io/lora_file.h"
#include "run/weights.h"
#include "sample/lora_stack.h"
#include "support/device.h"
#include "support/graph_run.h"
#include "support/io_files.h"
#include "train/adapters.h"
#include "train/compile.h"

namespace lh {
namespace {

using namespace test;
namespace fs = std::filesystem;

const fs::path toy = fs::path(LORA_SOURCE_DIR) / "examples" / "toy_flux";
const char* const plugin_id = "flux";

const Registry& registry() {
  static const Registry one({fs::path(LORA_BINARY_DIR) / "lib" / "lora-host"}, {});
  return one;
}

CheckpointSpec spec() {
  for (const auto& offered : registry().models())
    if (offered.descriptor->id == std::string(plugin_id))
      return CheckpointSpec::parse(offered.descriptor->checkpoint, plugin_id);
  throw std::runtime_error("the plugin is not built");
}

ModelConfig single(const fs::path& path) {
  ModelConfig config;
  config.name_or_path = path;
  return config;
}

ModelConfig original() {
  ModelConfig config = single(toy / "flux_toy.safetensors");
  config.files = {{"vae_path", toy / "ae.safetensors"},
                  {"clip_path", toy / "clip_l.safetensors"},
                  {"t5_path", toy / "t5xxl.safetensors"}};
  return config;
}

std::vector<Given> tensors_of(const fs::path& path) {
  const Safetensors file(path);
  std::vector<Given> all;
  for (const StoredTensor& t : file.tensors()) all.push_back({t.name, file.read(t.name)});
  return all;
}

const std::map<std::string, std::vector<Given>>& components() {
  static const std::map<std::string, std::vector<Given>> all{{"denoiser", tensors_of(toy / "flux_toy.safetensors")},
                                                             {"vae", tensors_of(toy / "ae.safetensors")},
                                                             {"clip_l", tensors_of(toy / "clip_l.safetensors")},
                                                             {"t5", tensors_of(toy / "t5xxl.safetensors")}};
  return all;
}

HostTensor read(const Checkpoint& checkpoint, const std::string& name) {
  HostTensor out(Desc{DType::f32, checkpoint.weights().at(name).shape});
  checkpoint.read(name, DType::f32, false, out.data);
  return out;
}

// Rows [first, first + count) of a tensor.
HostTensor rows_of(const HostTensor& tensor, int64_t first, int64_t count) {
  HostTensor out(Desc{tensor.desc.dtype, tensor.desc.shape.with(0, count)});
  const auto row = static_cast<std::ptrdiff_t>(tensor.data.size()) / tensor.desc.shape[0];
  std::copy_n(tensor.data.begin() + row * first, row * count, out.data.begin());
  return out;
}

// The key map backwards: what a diffusers folder holds for one native tensor.
std::vector<Given> in_diffusers(const ComponentSpec& component, const Given& given, const std::vector<Given>& all) {
  const size_t dot = given.name.rfind('.');
  const std::string module = given.name.substr(0, dot), suffix = given.name.substr(dot);
  for (const KeyRule& rule : component.diffusers) {
    const auto holes = KeyPattern(rule.native).match(rule.exact ? given.name : module);
    if (!holes) continue;
    std::vector<std::string> names;
    for (const std::string& source : rule.diffusers)
      names.push_back(KeyPattern(source).fill(*holes) + (rule.exact ? "" : suffix));
    const HostTensor& t = given.tensor;
    const int64_t rows = t.desc.shape[0];
    if (rule.assemble == Assemble::swap_halves) {
      std::vector<Given> out{{names[0], rows_of(t, rows / 2, rows / 2)}};
      HostTensor& swapped = out[0].tensor;
      const HostTensor head = rows_of(t, 0, rows / 2);
      swapped.data.insert(swapped.data.end(), head.data.begin(), head.data.end());
      swapped.desc = t.desc;
      return out;
    }
    if (rule.assemble == Assemble::copy) {
      Given out{names[0], t};
      // The autoencoder's attention: 1x1 convolutions in the original, matrices in a diffusers folder.
      if (given.name.find(".attn_1.") != std::string::npos && t.desc.shape.rank() == 4)
        out.tensor.desc.shape = Shape{rows, t.desc.shape[1]};
      return {out};
    }
    // q, k and v have as many rows as the module has columns; an MLP beside them has the rest.
    const auto weight = std::ranges::find(all, module + ".weight", &Given::name);
    const int64_t each = weight->tensor.desc.shape[1];
    std::vector<Given> out;
    for (size_t i = 0; i < names.size(); ++i) {
      const int64_t first = static_cast<int64_t>(i) * each;
      out.push_back({names[i], rows_of(t, first, i + 1 < names.size() ? each : rows - first)});
    }
    return out;
  }
  return {given};
}

// The first half of the tensors in one shard, the rest in another, and the index.
void write_shards(const fs::path& folder, const std::string& base, const std::string& variant,
                  const std::vector<Given>& tensors) {
  nlohmann::json map;
  const auto half = static_cast<std::ptrdiff_t>(tensors.size() / 2);
  for (const int part : {1, 2}) {
    const std::vector<Given> list(part == 1 ? tensors.begin() : tensors.begin() + half,
                                  part == 1 ? tensors.begin() + half : tensors.end());
    const std::string name = fmt::format("{}{}-{:05}-of-00002.safetensors", base, variant, part);
    for (const Given& t : list) map[t.name] = name;
    write_file(folder / name, list);
  }
  put(folder / fmt::format("{}.safetensors.index{}.json", base, variant), nlohmann::json{{"weight_map", map}}.dump());
}

using Change = std::function<HostTensor(const HostTensor&)>;

// The whole model as a diffusers directory.
void write_directory(const fs::path& folder, const std::string& variant, const Change& change) {
  const CheckpointSpec all = spec();
  for (const auto& [name, tensors] : components()) {
    const ComponentSpec& component = *all.component(name);
    const bool renamed = name == "denoiser" || name == "vae";  // text encoders have one spelling
    std::vector<Given> converted;
    for (const Given& given : tensors)
      for (Given& t : renamed ? in_diffusers(component, given, tensors) : std::vector{given})
        converted.push_back({t.name, change(t.tensor)});
    const std::string base = renamed ? "diffusion_pytorch_model" : "model";
    if (name == "denoiser")
      write_shards(folder / component.folder, base, variant, converted);
    else
      write_file(folder / component.folder / (base + variant + ".safetensors"), converted);
  }
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

const Change as_is = [](const HostTensor& t) { return t; };
const Change as_half = [](const HostTensor& t) { return as_type(t, DType::f16); };

// Same names; same numbers, after `change` of the original's. Shapes may differ in axes of length 1.
void expect_same(const Checkpoint& got, const Checkpoint& want, const Change& change = as_is) {
  std::set<std::string> names, expected;
  for (const auto& [name, desc] : got.weights()) names.insert(name);
  for (const auto& [name, desc] : want.weights()) expected.insert(name);
  ASSERT_EQ(names, expected);
  for (const std::string& name : names) {
    const HostTensor w = as_type(change(read(want, name)), DType::f32), g = read(got, name);
    EXPECT_EQ(g.desc.shape.numel(), w.desc.shape.numel()) << name;
    EXPECT_EQ(g.data, w.data) << name;
  }
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
  EXPECT_EQ(run(device, got, got.build("vae.decode", sizes, DType::f32), "image").data,
            run(device, want, want.build("vae.decode", sizes, DType::f32), "image").data);
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
  const Model want(registry(), single(toy / "flux_toy.safetensors"), ""),
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
  LoraRoundTrip() : model(registry(), single(toy / "flux_toy.safetensors"), ""), device(tested_device()) {
    network.linear = 3;
    network.linear_alpha = 2;
    const AdapterSelection selection(network, model.recipe(), 1);
    const TrainGraph train = build_train_graph(model, small, selection, {});
    trained = std::make_unique<Adapters>(train.graph, train.modules, std::vector<std::string>{});
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
    const LoraStack stack(model, files);
    const Graph graph = build_sample_graph(
        model, small, [&](const std::string& m) { return stack.select(m); }, DType::f32);
    const Adapters loaded = stack.load(device, graph);
    return run(device, model, graph, "output", &loaded);
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

TEST_F(LoraRoundTrip, BothFormatsGiveWhatWasTrained) {
  EXPECT_GT(relative_error(plain, want), 0.01);
  for (const char* format : {"kohya", "diffusers"}) {
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

// A file may have some parts of a fused module, and layers whose halves diffusers has the other way round.
TEST_F(LoraRoundTrip, RowsOfOtherToolsGoWhereTheyBelong) {
  const int64_t h = 256;  // width of the small model
  const std::string key = "transformer.single_transformer_blocks.0.attn.to_k", last = "transformer.norm_out.linear";
  const fs::path path = dir / "parts.safetensors";
  write_file(path, {{key + ".lora_A.weight", counting({1, h}, 1)},
                    {key + ".lora_B.weight", counting({h, 1}, 1)},
                    {last + ".lora_A.weight", counting({1, h}, 1)},
                    {last + ".lora_B.weight", counting({2 * h, 1}, 1)}});
  const LoraStack stack(model, {{path, 1}});
  const Graph graph = build_sample_graph(
      model, small, [&](const std::string& m) { return stack.select(m); }, DType::f32);
  const Adapters loaded = stack.load(device, graph);
  ASSERT_EQ(loaded.tensors().size(), 4u);
  for (const AdapterTensor& t : loaded.tensors()) {
    const HostTensor values = loaded.download("p", t);
    for (int64_t row = 0; t.name.ends_with("lora_up.weight") && row < t.shape[0]; ++row) {
      const int64_t want = t.name.starts_with("final_layer.") ? (row + h) % (2 * h) + 1
                           : row / h == 1                     ? row - h + 1
                                                              : 0;
      ASSERT_EQ(values.as<float>()[static_cast<size_t>(row)], static_cast<float>(want)) << t.name << " " << row;
    }
  }
}

TEST_F(LoraRoundTrip, RefusesWhatItWouldLeaveOut) {
  const fs::path path = dir / "other.safetensors";
  const auto error = [&] { return error_of([&] { LoraStack(model, {{path, 1}}); }); };
  const std::string name = "lora_unet_single_blocks_0_linear2";
  write_file(path, {{name + ".hada_w1_a", counting({2, 2})}});
  EXPECT_NE(error().find(name + ".hada_w1_a"), std::string::npos) << error();
  write_file(path, {{name + ".lora_down.weight", counting({1, 1280})},
                    {name + ".lora_up.weight", counting({256, 1})},
                    {name + ".dora_scale", counting({1, 1280})}});
  EXPECT_NE(error().find(name + ".dora_scale"), std::string::npos) << error();
  write_file(path, {{"lora_unet_single_blocks_99_linear2.lora_down.weight", counting({1, 1280})},
                    {"lora_unet_single_blocks_99_linear2.lora_up.weight", counting({256, 1})}});
  EXPECT_NE(error().find("single_blocks_99"), std::string::npos) << error();
}

// ---- full size
// ---------------------------------------------------------------------------------------------------------

using Shapes = std::map<std::string, Desc>;

void add_linear(Shapes& shapes, const std::string& name, int64_t out, int64_t in) {
  shapes[name + ".weight"] = {DType::bf16, {out, in}};
  shapes[name + ".bias"] = {DType::bf16, {out}};
}

// Names and shapes of the full-size transformer: 19 double and 38 single blocks of width 3072.
Shapes full_size(bool guided) {
  const int64_t h = 3072, mlp = 4 * h;
  Shapes shapes;
  add_linear(shapes, "img_in", h, 64);
  add_linear(shapes, "txt_in", h, 4096);
  for (const auto& [name, in] :
       std::map<std::string, int64_t>{{"time_in", 256}, {"vector_in", 768}, {"guidance_in", 256}}) {
    if (name == "guidance_in" && !guided) continue;
    add_linear(shapes, name + ".in_layer", h, in);
    add_linear(shapes, name + ".out_layer", h, h);
  }
  const auto norms = [&](const std::string& name) {
    for (const char* side : {".query_norm.scale", ".key_norm.scale"}) shapes[name + side] = {DType::bf16, {128}};
  };
  for (int i = 0; i < 19; ++i)
    for (const char* stream : {"img", "txt"}) {
      const std::string block = fmt::format("double_blocks.{}.{}_", i, stream);
      add_linear(shapes, block + "mod.lin", 6 * h, h);
      add_linear(shapes, block + "attn.qkv", 3 * h, h);
      add_linear(shapes, block + "attn.proj", h, h);
      add_linear(shapes, block + "mlp.0", mlp, h);
      add_linear(shapes, block + "mlp.2", h, mlp);
      norms(block + "attn.norm");
    }
  for (int i = 0; i < 38; ++i) {
    const std::string block = fmt::format("single_blocks.{}.", i);
    add_linear(shapes, block + "modulation.lin", 3 * h, h);
    add_linear(shapes, block + "linear1", 3 * h + mlp, h);
    add_linear(shapes, block + "linear2", h, h + mlp);
    norms(block + "norm");
  }
  add_linear(shapes, "final_layer.adaLN_modulation.1", 2 * h, h);
  add_linear(shapes, "final_layer.linear", 64, h);
  return shapes;
}

// The plugin over names and shapes, without any file.
class Described {
 public:
  explicit Described(const Shapes& shapes) : shapes_(shapes) {
    for (const auto& offered : registry().models())
      if (offered.descriptor->id == std::string(plugin_id)) offered_ = offered;
    offered_.host->weights = &shapes_;
    if (offered_.descriptor->create(offered_.host, &self_) != LH_OK) throw std::runtime_error(offered_.host->failure);
  }
  ~Described() {
    offered_.descriptor->destroy(self_);
    offered_.host->weights = nullptr;
  }
  int32_t confidence() const { return offered_.descriptor->probe(offered_.host); }
  Recipe recipe() const { return Recipe::parse(offered_.descriptor->recipe(self_), plugin_id); }
  Graph denoiser(const Sizes& sizes) const {
    Graph graph(DType::bf16);
    lh_graph building{.host = offered_.host, .graph = &graph};
    std::vector<lh_attr> attrs;
    for (const auto& [name, size] : sizes) {
      lh_attr attr{.name = name.c_str(), .type = LH_ATTR_I64, .count = 1, .v = {}};
      attr.v.i = size;
      attrs.push_back(attr);
    }
    const lh_status status =
        offered_.descriptor->build(self_, &building, "denoiser", attrs.data(), static_cast<uint32_t>(attrs.size()));
    if (status != LH_OK) throw std::runtime_error(building.error + offered_.host->failure);
    return graph;
  }

 private:
  Shapes shapes_;
  Offered<lh_model> offered_;
  void* self_ = nullptr;
};

TEST(FullSize, GraphAdaptersAndPlan) {
  for (const bool guided : {true, false}) {
    const Shapes shapes = full_size(guided);
    EXPECT_EQ(shapes.size(), guided ? 780u : 776u);
    int64_t parameters = 0;
    for (const auto& [name, desc] : shapes) parameters += desc.shape.numel();
    EXPECT_EQ(parameters, guided ? 11901408320 : 11891178560);

    const Described model(shapes);
    EXPECT_EQ(model.confidence(), 100);
    const Recipe recipe = model.recipe();
    EXPECT_EQ(recipe.guidance, guided);
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

// Key lists of published files, where they are at hand.
fs::path key_lists() {
  const char* named = std::getenv("LORA_KEY_LISTS");
  return named != nullptr ? fs::path(named) : fs::path(LORA_SOURCE_DIR) / ".." / "shared" / "data" / "headers";
}

Shapes key_list(const std::string& name) {
  Shapes shapes;
  const nlohmann::json json = nlohmann::json::parse(get(key_lists() / (name + ".json")));
  for (const auto& [key, entry] : json.at("tensors").items())
    shapes[key] = {DType::bf16, Shape(entry.at(1).get<std::vector<int64_t>>())};
  return shapes;
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
  for (const auto& [component, folder, file] : folders) {
    const ComponentSpec& known = *all.component(component);
    const KeyMap map(known.diffusers);
    const Shapes from = key_list(folder), to = key_list(file);
    std::map<std::string, int64_t> elements;  // of the native tensors that the folder gives
    for (const auto& [key, desc] : from) {
      const auto natives = map.native(key, [](const std::string&) { return int64_t{0}; });
      ASSERT_EQ(natives.size(), 1u) << folder << ": " << key;
      elements[natives[0].key] += desc.shape.numel();
    }
    for (const auto& [key, count] : elements) {
      ASSERT_TRUE(to.contains(key)) << folder << ": " << key;
      EXPECT_EQ(count, to.at(key).shape.numel()) << folder << ": " << key;
    }
    for (const auto& [key, desc] : to) {
      const bool copy = key == "shared.weight" || key == "encoder.embed_tokens.weight";  // one of the two is enough
      EXPECT_TRUE(elements.contains(key) || copy) << folder << ": " << key;
    }
  }
}

}  // namespace
}  // namespace lh
