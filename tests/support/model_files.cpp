// Writes the layouts and offers names and shapes to plugins.
#include "support/model_files.h"

#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "io/key_map.h"
#include "io/lora_names.h"
#include "io/synthetic.h"
#include "run/program.h"
#include "run/weights.h"
#include "support/device.h"
#include "support/graph_run.h"
#include "support/paths.h"

namespace lh::test {

namespace fs = std::filesystem;

const Registry& built_plugins() {
  static const Registry one({fs::path(binary_dir()) / "lib" / "lora-host"}, {});
  return one;
}

namespace {

Offered<lh_model> model_plugin(const std::string& id) {
  for (const auto& offered : built_plugins().models())
    if (id == offered.descriptor->id) return offered;
  throw std::runtime_error("plugin " + id + " is not built");
}

}  // namespace

CheckpointSpec spec_of(const std::string& plugin) {
  return CheckpointSpec::parse(model_plugin(plugin).descriptor->checkpoint, plugin);
}

ModelConfig single(const std::filesystem::path& path) {
  ModelConfig config;
  config.name_or_path = path;
  return config;
}

std::vector<Given> tensors_of(const fs::path& path) {
  const Safetensors file(path);
  std::vector<Given> all;
  for (const StoredTensor& t : file.tensors()) all.push_back({t.name, file.read(t.name)});
  return all;
}

HostTensor read(const Checkpoint& checkpoint, const std::string& name) {
  HostTensor out(Desc{DType::f32, checkpoint.weights().at(name).shape});
  checkpoint.read(name, DType::f32, false, out.data);
  return out;
}

HostTensor rows_of(const HostTensor& tensor, int64_t first, int64_t count) {
  HostTensor out(Desc{tensor.desc.dtype, tensor.desc.shape.with(0, count)});
  const auto row = static_cast<std::ptrdiff_t>(tensor.data.size()) / tensor.desc.shape[0];
  std::copy_n(tensor.data.begin() + row * first, row * count, out.data.begin());
  return out;
}

std::vector<Given> in_diffusers(const ComponentSpec& component, const Given& given, const std::vector<Given>& all) {
  const size_t dot = given.name.rfind('.');
  const std::string module = given.name.substr(0, dot);
  const std::string suffix = dot == std::string::npos ? std::string() : given.name.substr(dot);
  const auto weight = std::ranges::find(all, module + ".weight", &Given::name);
  for (const KeyRule& rule : component.diffusers) {
    const auto holes = KeyPattern(rule.native).match(rule.exact ? given.name : module);
    if (!holes) continue;
    if (rule.when_rows != 0) {
      const Shape& shape = weight->tensor.desc.shape;
      if (shape[0] != rule.when_rows * shape[1]) continue;
    }
    std::vector<std::string> names;
    for (const std::string& source : rule.diffusers)
      names.push_back(KeyPattern(source).fill(*holes) + (rule.exact ? "" : suffix));
    const HostTensor& t = given.tensor;
    const int64_t rows = t.desc.shape.rank() == 0 ? 1 : t.desc.shape[0];
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
    const std::vector<int64_t> parts = part_rows(rows, weight->tensor.desc.shape[1], names.size());
    std::vector<Given> out;
    int64_t first = 0;
    for (size_t i = 0; i < names.size(); first += parts[i++]) out.push_back({names[i], rows_of(t, first, parts.at(i))});
    return out;
  }
  return {given};
}

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

void write_directory(const fs::path& folder, const CheckpointSpec& spec,
                     const std::map<std::string, std::vector<Given>>& components,
                     const std::vector<std::string>& renamed, const std::string& variant, const Change& change) {
  for (const auto& [name, tensors] : components) {
    const ComponentSpec& component = *spec.component(name);
    const bool other_names = std::ranges::find(renamed, name) != renamed.end();
    std::vector<Given> converted;
    for (const Given& given : tensors)
      for (Given& t : other_names ? in_diffusers(component, given, tensors) : std::vector{given})
        converted.push_back({t.name, change(t.tensor)});
    const std::string base = other_names ? "diffusion_pytorch_model" : "model";
    if (name == "denoiser")
      write_shards(folder / component.folder, base, variant, converted);
    else
      write_file(folder / component.folder / (base + variant + ".safetensors"), converted);
  }
}

void expect_same(const Checkpoint& got, const Checkpoint& want, const Change& change) {
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

fs::path key_lists() {
  const char* named = std::getenv("LORA_KEY_LISTS");
  return named != nullptr ? fs::path(named) : fs::path(source_dir()) / ".." / "shared" / "data" / "headers";
}

Shapes key_list(const std::string& name) {
  Shapes shapes;
  const nlohmann::json json = nlohmann::json::parse(get(key_lists() / (name + ".json")));
  const std::string prefix = "model.diffusion_model.";
  for (const auto& [key, entry] : json.at("tensors").items())
    shapes[key.starts_with(prefix) ? key.substr(prefix.size()) : key] = {
        DType::bf16, Shape(entry.at(1).get<std::vector<int64_t>>())};
  return shapes;
}

void expect_maps(const ComponentSpec& component, const std::string& folder_list, const std::string& file_list) {
  const KeyMap map(component.diffusers);
  const Shapes from = key_list(folder_list), to = key_list(file_list);
  const auto rows_per_column = [&](const std::string& module) {
    const Shape& shape = from.at(module + ".weight").shape;
    return shape.rank() == 2 ? shape[0] / shape[1] : 0;
  };
  std::map<std::string, int64_t> elements;  // of the native tensors that the folder gives
  for (const auto& [key, desc] : from) {
    const auto natives = map.native(key, rows_per_column);
    const auto ignored = [&](const std::string& name) {
      return std::ranges::any_of(component.ignore,
                                 [&](const auto& glob) { return !fnmatch(glob.c_str(), name.c_str(), 0); });
    };
    if (ignored(natives.empty() ? key : natives[0].key)) continue;
    ASSERT_FALSE(natives.empty()) << folder_list << ": " << key;
    for (const KeyMap::Native& native : natives)
      elements[native.key] += desc.shape.numel() / (native.rule == nullptr ? 1 : native.rule->parts);
  }
  for (const auto& [key, count] : elements) {
    ASSERT_TRUE(to.contains(key)) << folder_list << ": " << key;
    EXPECT_EQ(count, to.at(key).shape.numel()) << folder_list << ": " << key;
  }
  for (const auto& [key, desc] : to) {
    const bool copy = key == "shared.weight" || key == "encoder.embed_tokens.weight";  // one of the two is enough
    EXPECT_TRUE(elements.contains(key) || copy) << folder_list << ": " << key;
  }
}

void add_linear(Shapes& shapes, const std::string& name, int64_t out, int64_t in, bool bias) {
  shapes[name + ".weight"] = {DType::bf16, {out, in}};
  if (bias) shapes[name + ".bias"] = {DType::bf16, {out}};
}

void add_norm(Shapes& shapes, const std::string& name, int64_t width) {
  shapes[name + ".weight"] = shapes[name + ".bias"] = {DType::bf16, {width}};
}

void add_clip(Shapes& shapes, const std::string& prefix, int64_t width, int64_t layers, int64_t words) {
  const std::string root = prefix + "text_model.";
  shapes[root + "embeddings.token_embedding.weight"] = {DType::bf16, {words, width}};
  shapes[root + "embeddings.position_embedding.weight"] = {DType::bf16, {77, width}};
  for (int64_t i = 0; i < layers; ++i) {
    const std::string layer = fmt::format("{}encoder.layers.{}.", root, i);
    add_norm(shapes, layer + "layer_norm1", width);
    add_norm(shapes, layer + "layer_norm2", width);
    for (const char* part : {"q_proj", "k_proj", "v_proj", "out_proj"})
      add_linear(shapes, layer + "self_attn." + part, width, width);
    add_linear(shapes, layer + "mlp.fc1", 4 * width, width);
    add_linear(shapes, layer + "mlp.fc2", width, 4 * width);
  }
  add_norm(shapes, root + "final_layer_norm", width);
}

void add_t5(Shapes& shapes, const std::string& prefix, int64_t width, int64_t blocks, int64_t words) {
  shapes[prefix + "shared.weight"] = {DType::bf16, {words, width}};
  shapes[prefix + "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"] = {DType::bf16, {32, 2}};
  shapes[prefix + "encoder.final_layer_norm.weight"] = {DType::bf16, {width}};
  for (int64_t i = 0; i < blocks; ++i) {
    const std::string block = fmt::format("{}encoder.block.{}.layer.", prefix, i);
    for (const char* part : {"q", "k", "v"})
      add_linear(shapes, block + "0.SelfAttention." + part, 2 * 64, width, false);
    add_linear(shapes, block + "0.SelfAttention.o", width, 2 * 64, false);
    for (const char* part : {"wi_0", "wi_1"})
      add_linear(shapes, block + "1.DenseReluDense." + part, 2 * width, width, false);
    add_linear(shapes, block + "1.DenseReluDense.wo", width, 2 * width, false);
    for (const char* part : {"0", "1"}) shapes[block + part + ".layer_norm.weight"] = {DType::bf16, {width}};
  }
}

int64_t parameters_of(const Shapes& shapes) {
  int64_t all = 0;
  for (const auto& [name, desc] : shapes) all += desc.shape.numel();
  return all;
}

std::vector<Given> filled(const Shapes& shapes) {
  std::vector<Given> all;
  for (const auto& [name, desc] : shapes) {
    const WeightLaw law = weight_law(name, desc.shape);
    HostTensor tensor(Desc{DType::f32, desc.shape});
    generate(name, law.offset, law.deviation * std::sqrt(3.0), tensor.as<float>());
    all.push_back({name, as_type(tensor, desc.dtype)});
  }
  return all;
}

HostTensor output_of(const Model& model, Graph graph, const std::string& output) {
  Device device(tested_device());
  const Weights weights(device, model.checkpoint(), graph);
  const Externals bound = weights.bind(graph);
  OwnedProgram program(device, std::move(graph), bound, "test");
  for (const auto& [name, value] : program->graph().inputs) {
    const Desc& desc = program->graph().desc(value);
    if (desc.dtype == DType::i32) {
      std::vector<int32_t> ids(static_cast<size_t>(desc.shape.numel()));
      for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>((7 * i + name.size()) % 50);
      program->set_input(name, HostTensor::from_ints(desc.shape, ids));
    } else {
      HostTensor input = ramp(desc.shape, static_cast<int64_t>(name.size()));
      if (name == "timestep") std::ranges::fill(input.as<float>(), 0.6f);
      program->set_input(name, input);
    }
  }
  program->run();
  return program->output(output);
}

namespace {

std::map<std::string, std::string> settings_of(const std::string& variant) {
  return variant.empty() ? std::map<std::string, std::string>{}
                         : std::map<std::string, std::string>{{"variant", variant}};
}

}  // namespace

Described::Described(const std::string& plugin, const Shapes& shapes, const std::string& variant)
    : Described(plugin, shapes, settings_of(variant)) {}
Described::Described(const std::string& plugin, const Shapes& shapes,
                     const std::map<std::string, std::string>& settings)
    : shapes_(shapes), offered_(model_plugin(plugin)), model_(offered_, shapes_, nullptr, settings) {}

Recipe Described::recipe() const { return Recipe::parse(recipe_text(), offered_.descriptor->id); }

Graph Described::denoiser(const Sizes& sizes, const std::vector<int64_t>& skip_layers) const {
  return build("denoiser", sizes, skip_layers.empty() ? SizeLists{} : SizeLists{{"skip_layers", skip_layers}});
}

Graph Described::build(const std::string& role, const Sizes& sizes, const SizeLists& lists) const {
  Graph graph(DType::bf16);
  model_.build(graph, role, sizes, lists);
  return graph;
}

}  // namespace lh::test
