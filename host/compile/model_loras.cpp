// Opens the files of each set and reads again what differs between the sets.
#include "compile/model_loras.h"

#include <algorithm>

#include "compile/plugin_lora.h"
#include "core/error.h"

namespace lh {
namespace {

namespace fs = std::filesystem;

// A file, or the folder that it was downloaded to.
fs::path file_of(const std::string& key, const fs::path& path) {
  constexpr const char* name_in_folder = "pytorch_lora_weights.safetensors";
  std::error_code error;
  if (fs::is_directory(path, error) && fs::exists(path / name_in_folder, error)) return path / name_in_folder;
  if (fs::is_regular_file(path, error)) return path;
  const std::string text = path.string();
  const bool repository = !path.has_extension() && std::ranges::count(text, '/') == 1 && text.front() != '/';
  fail(Code::config, "model.{}: there is no file {}{}", key, text,
       repository
           ? ". It looks like a repository's name: nothing is downloaded here, so download its .safetensors file "
             "and give its path"
           : "");
}

void add(std::vector<LoraInput>& loras, const Registry& registry, const char* key, const fs::path& path) {
  if (!path.empty()) loras.push_back(lora_of_key(registry, key, path));
}

std::vector<LoraInput> always(const Registry& registry, const ModelConfig& config) {
  std::vector<LoraInput> loras;
  for (const std::string& text : config.lora_path) {
    const LoraInput given = lora_input("model.lora_path:", text);
    loras.push_back(lora_of_key(registry, "lora_path", given.path));
    loras.back().strength = given.strength;
  }
  return loras;
}

}  // namespace

LoraInput lora_of_key(const Registry& registry, const std::string& key, const fs::path& path) {
  const fs::path file = file_of(key, path);
  return {.path = file, .strength = 1, .foreign = plugin_lora(registry, Safetensors(file))};
}

std::vector<LoraInput> sample_loras(const Registry& registry, const ModelConfig& config) {
  std::vector<LoraInput> loras = always(registry, config);
  add(loras, registry, "inference_lora_path", config.inference_lora_path);
  return loras;
}

ModelLoras::ModelLoras(const Registry& registry, const ModelConfig& config, Model& model) : model_(model) {
  std::vector<LoraInput> training = always(registry, config);
  add(training, registry, "assistant_lora_path", config.assistant_lora_path);
  training_ = model.merge_of(training);
  const bool same = config.assistant_lora_path.empty() && config.inference_lora_path.empty();
  samples_ = same ? training_ : model.merge_of(sample_loras(registry, config));
  const auto print = [](const Merge& merge, const std::string& component) {
    return merge ? merge->fingerprint(component) : "";
  };
  for (const ComponentSpec& component : model.spec().components)
    if (component.name != "denoiser" && print(training_, component.name) != print(samples_, component.name))
      fail(Code::config,
           "model.{}: has modules of {}, which runs once for both training and samples. Use lora_path, which is for "
           "both",
           config.assistant_lora_path.empty() ? "inference_lora_path" : "assistant_lora_path", component.name);
  model.use(training_);
}

void ModelLoras::use(const Merge& merge, Device& device, Weights& weights, const Graph& graph) {
  std::vector<std::string> names;
  for (const std::string& name : weight_names(graph, model_.checkpoint()))
    if ((training_ && training_->changes(name)) || (samples_ && samples_->changes(name))) names.push_back(name);
  model_.use(merge);
  weights.read_again(device, model_.checkpoint(), graph, names);
}

}  // namespace lh
