// Puts the components together: which path holds which, and one list of canonical names.
#include "io/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/error.h"
#include "core/hash.h"
#include "io/component.h"
#include "io/lora_merge.h"
#include "io/repository.h"

namespace lh {

namespace fs = std::filesystem;

struct Checkpoint::Impl {
  CheckpointSpec spec;
  std::map<std::string, LoadedComponent> components;
  std::map<std::string, Desc> weights;
  std::map<std::string, const Assembly*> recipes;
  std::string paths;  // for error texts
  Documents documents;
  std::shared_ptr<const LoraMerge> merged;

  // What is added to a weight as it is read; empty: nothing.
  ChangeValues change(const std::string& name) const {
    if (!merged || !merged->changes(name)) return {};
    return [this, &name](std::span<float> values) { merged->apply(name, weights.at(name).shape, values); };
  }
  const Assembly& recipe(const std::string& name) const {
    const auto found = recipes.find(name);
    if (found == recipes.end()) fail(Code::data, "no weight \"{}\" in {} ({} weights)", name, paths, recipes.size());
    return *found->second;
  }
};

namespace {

constexpr const char* main_key = "name_or_path";

void check_keys(const CheckpointSpec& spec, const std::map<std::string, fs::path>& paths) {
  std::set<std::string> known{main_key, extras_key};
  for (const ComponentSpec& component : spec.components) known.insert(component.config_key);
  for (const auto& [key, path] : paths) {
    if (!known.contains(key))
      fail(Code::config, "model.{}: this model has no such file; it knows {}", key, fmt::join(known, ", "));
    if (!fs::exists(path))
      fail(Code::data, "model.{}: {} does not exist{}", key, path.string(), repository_hint(path, {}));
  }
  if (paths.empty()) fail(Code::config, "model.{} is missing: the model's file or diffusers folder", main_key);
}

// Nothing was found where the user said that something is.
[[noreturn]] void nothing_there(const CheckpointSpec& spec, const std::string& key, const fs::path& path) {
  std::string wanted;
  for (const ComponentSpec& component : spec.components) {
    if (component.config_key != key && key != main_key) continue;
    wanted += fmt::format("\n  {}: ", component.name);
    if (fs::is_directory(path)) {
      const fs::path folder = component.folder.empty() ? path : path / component.folder;
      wanted += fmt::format(
          "diffusion_pytorch_model or model .safetensors, or shards with their index, in {}, with \"{}\" after "
          "renaming",
          folder.string(), component.marker);
    } else {
      wanted += fmt::format("tensor \"{}\"", component.marker);
      std::vector<std::string> prefixes = component.prefixes;
      std::erase(prefixes, "");
      if (!prefixes.empty()) wanted += fmt::format(", alone or after {}", fmt::join(prefixes, " or "));
    }
  }
  fail(Code::data, "model.{}: {} holds no part of this model. Looked for:{}", key, path.string(), wanted);
}

}  // namespace

Checkpoint::Checkpoint(const CheckpointSpec& spec, const std::map<std::string, fs::path>& paths)
    : impl_(std::make_unique<Impl>()) {
  impl_->spec = spec;
  check_keys(spec, paths);
  std::set<std::string> useful;  // keys whose path held something
  impl_->components = load_components(spec, paths, useful);
  for (const ComponentSpec& component : spec.components)
    if (const auto loaded = impl_->components.find(component.name); loaded != impl_->components.end())
      impl_->documents.add(component.name, loaded->second.folder, loaded->second.files);
  if (const auto main = paths.find(main_key); main != paths.end()) impl_->documents.set_root(main->second);
  for (const auto& [key, path] : paths) {
    if (key != extras_key && !useful.contains(key)) nothing_there(spec, key, path);
    impl_->paths += fmt::format("{}{}", impl_->paths.empty() ? "" : ", ", path.string());
  }
  for (const auto& [component, loaded] : impl_->components)
    for (const auto& [key, recipe] : loaded.weights) {
      const std::string name = component == "denoiser" ? key : fmt::format("{}:{}", component, key);
      impl_->weights.emplace(name, recipe.desc);
      impl_->recipes.emplace(name, &recipe);
    }
}

Checkpoint::~Checkpoint() = default;
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;

std::shared_ptr<const LoraMerge> Checkpoint::merge_of(const std::vector<LoraInput>& loras) const {
  return loras.empty() ? nullptr : std::make_shared<const LoraMerge>(impl_->spec, impl_->weights, loras);
}

void Checkpoint::use(std::shared_ptr<const LoraMerge> merge) { impl_->merged = std::move(merge); }

bool Checkpoint::has(const std::string& component) const { return impl_->components.contains(component); }

const std::map<std::string, Desc>& Checkpoint::weights() const { return impl_->weights; }

const Documents& Checkpoint::documents() const { return impl_->documents; }

HostTensor Checkpoint::read_f32(const std::string& name) const {
  const auto found = weights().find(name);
  if (found == weights().end()) fail(Code::data, "the checkpoint has no tensor '{}'", name);
  HostTensor tensor(Desc{DType::f32, found->second.shape});
  read(name, DType::f32, false, tensor.data);
  return tensor;
}

void Checkpoint::read(const std::string& name, DType dtype, bool channels_last, std::span<std::byte> out) const {
  read_assembly(impl_->recipe(name), name, dtype, channels_last, out, impl_->change(name));
}

std::string Checkpoint::damage_in(const std::vector<std::string>& names) const {
  for (const std::string& name : names) {
    if (!weights().contains(name)) continue;
    const HostTensor tensor = read_f32(name);
    if (count_non_finite(DType::f32, tensor.data.data(), tensor.desc.shape.numel()) > 0)
      return fmt::format("{}: tensor \"{}\" holds a NaN or an infinity. The file is damaged: fetch it anew",
                         file_of(name).string(), name);
  }
  return {};
}

DType Checkpoint::exact_dtype(const std::string& name) const {
  const Assembly& recipe = impl_->recipe(name);
  const DType stored = recipe.pieces.front().weight.tensor->desc.dtype;
  const bool plain = std::ranges::all_of(
      recipe.pieces, [&](const ScaledKey& piece) { return !piece.scale && piece.weight.tensor->desc.dtype == stored; });
  return plain && is_float(stored) && !impl_->change(name) ? stored : DType::f32;
}

std::string_view Checkpoint::stored_type(const std::string& name) const {
  return stored_type_name(*impl_->recipe(name).pieces.front().weight.tensor);
}

std::optional<WeightForm> Checkpoint::stored_fp8(const std::string& name) const {
  const Assembly& recipe = impl_->recipe(name);
  return impl_->change(name) ? std::nullopt : lh::stored_fp8(recipe);
}

void Checkpoint::read_codes(const std::string& name, DType dtype, std::span<std::byte> codes,
                            std::span<std::byte> scale) const {
  const Assembly& recipe = impl_->recipe(name);
  if (const auto stored = stored_fp8(name); stored && stored->dtype == dtype)
    read_stored_fp8(recipe, codes, {reinterpret_cast<float*>(scale.data()), scale.size() / sizeof(float)});
  else
    read_rounded(recipe, name, dtype, codes, scale, impl_->change(name));
}

std::string Checkpoint::fingerprint(const std::string& component) const {
  const auto found = impl_->components.find(component);
  if (found == impl_->components.end()) fail(Code::data, "no component \"{}\" in {}", component, impl_->paths);
  std::string all = component;
  for (const FilePtr& file : found->second.files) all.append(" ").append(file->fingerprint());
  if (impl_->merged) all.append(impl_->merged->fingerprint(component));
  return sha256_hex(all);
}

fs::path Checkpoint::file_of(const std::string& name) const {
  return impl_->recipe(name).pieces.front().weight.file->path();
}

namespace {

// Keys of a path that is not this denoiser.
std::map<std::string, Desc> stored_names(const ComponentSpec& denoiser, const fs::path& path, FileCache& cache) {
  std::map<std::string, Desc> names;
  if (fs::is_directory(path)) {
    const bool inside = !denoiser.folder.empty() && fs::is_directory(path / denoiser.folder);
    for (const fs::path& file : weight_set(inside ? path / denoiser.folder : path))
      for (const StoredTensor& tensor : cache.open(file)->tensors()) names.emplace(tensor.name, tensor.desc);
    return names;
  }
  const std::vector<StoredTensor>& tensors = cache.open(path)->tensors();
  const auto prefix = std::ranges::find_if(denoiser.prefixes, [&](const std::string& p) {
    return std::ranges::any_of(tensors, [&](const StoredTensor& tensor) { return tensor.name.starts_with(p); });
  });
  const size_t length = prefix == denoiser.prefixes.end() ? 0 : prefix->size();
  for (const StoredTensor& tensor : tensors)
    if (length == 0 || tensor.name.starts_with(*prefix)) names.emplace(tensor.name.substr(length), tensor.desc);
  return names;
}

}  // namespace

ProbedWeights probe_weights(const CheckpointSpec& spec, const fs::path& path) {
  const ComponentSpec* denoiser = spec.component("denoiser");
  if (denoiser == nullptr) return {};
  if (!fs::exists(path)) fail(Code::data, "{} does not exist{}", path.string(), repository_hint(path, {}));
  FileCache cache;
  const auto loaded = load_component(spec, *denoiser, path, cache, UnknownKeys::keep);
  if (!loaded) return {.has_marker = false, .weights = stored_names(*denoiser, path, cache)};
  ProbedWeights probed{.has_marker = true, .weights = {}};
  probed.documents.set_root(path);
  probed.documents.add("denoiser", loaded->folder, loaded->files);
  for (const auto& [name, recipe] : loaded->weights) probed.weights.emplace(name, recipe.desc);
  return probed;
}

}  // namespace lh
