// Finds a component behind its prefix in a single file, or behind the key map in a diffusers folder.
#include "io/component.h"

#include <fnmatch.h>

#include <algorithm>

#include "core/error.h"
#include "io/key_map.h"

namespace lh {
namespace {

namespace fs = std::filesystem;

bool ignored(const ComponentSpec& component, const std::string& key) {
  return std::ranges::any_of(component.ignore,
                             [&](const std::string& glob) { return ::fnmatch(glob.c_str(), key.c_str(), 0) == 0; });
}

// Is the marker, or the key that may stand for it, among the keys?
template <typename Has>
bool has_marker(const ComponentSpec& component, const std::string& prefix, const Has& has) {
  if (has(prefix + component.marker)) return true;
  const auto alias = component.aliases.find(component.marker);
  return alias != component.aliases.end() && has(prefix + alias->second);
}

// Missing keys get what their alias holds; then what nobody wants goes.
void apply_aliases(const ComponentSpec& component, std::map<std::string, Assembly>& weights) {
  for (const auto& [key, instead] : component.aliases) {
    if (weights.contains(key) || !weights.contains(instead)) continue;
    auto node = weights.extract(instead);
    node.key() = key;
    weights.insert(std::move(node));
  }
  std::erase_if(weights, [&](const auto& item) { return ignored(component, item.first); });
}

Assembly as_stored(const Piece& piece) { return {piece.weight.tensor->desc, Assemble::copy, {piece}}; }

// Prefixes that belong to other components of this file.
std::vector<std::string> foreign_prefixes(const CheckpointSpec& spec, const ComponentSpec& component,
                                          const Safetensors& file) {
  std::vector<std::string> prefixes;
  for (const ComponentSpec& other : spec.components)
    for (const std::string& prefix : other.prefixes)
      if (other.name != component.name && !prefix.empty() &&
          has_marker(other, prefix, [&](const std::string& key) { return file.find(key) != nullptr; }))
        prefixes.push_back(prefix);
  return prefixes;
}

std::optional<LoadedComponent> behind_prefix(const CheckpointSpec& spec, const ComponentSpec& component,
                                             const FilePtr& file) {
  const auto has = [&](const std::string& key) { return file->find(key) != nullptr; };
  const auto prefix =
      std::ranges::find_if(component.prefixes, [&](const std::string& p) { return has_marker(component, p, has); });
  if (prefix == component.prefixes.end()) return std::nullopt;
  std::vector<std::string> foreign;
  if (prefix->empty()) foreign = foreign_prefixes(spec, component, *file);
  StoredKeys keys;
  for (const StoredTensor& tensor : file->tensors()) {
    const auto starts = [&](const std::string& other) { return tensor.name.starts_with(other); };
    if (starts(*prefix) && std::ranges::none_of(foreign, starts))
      keys.emplace(tensor.name.substr(prefix->size()), StoredKey{file, &tensor});
  }
  LoadedComponent out{{}, {file}};
  for (const auto& [key, piece] : resolve_scales(keys)) out.weights.emplace(key, as_stored(piece));
  apply_aliases(component, out.weights);
  return out;
}

// Canonical tensor in the making: pieces by source number of the rule.
struct Draft {
  const KeyRule* rule = nullptr;
  std::map<size_t, Piece> pieces;
};

Assembly finish(const std::string& name, const Draft& draft) {
  Assembly recipe = as_stored(draft.pieces.begin()->second);
  if (draft.rule == nullptr) return recipe;
  recipe.assemble = draft.rule->assemble;
  recipe.pieces.clear();
  const auto wrong = [&](const std::string& what) {
    const StoredKey& first = draft.pieces.begin()->second.weight;
    fail(Code::data, "{}: \"{}\" is made of \"{}\" and its like: {}", first.file->path().string(), name,
         first.tensor->name, what);
  };
  int64_t rows = 0;
  for (const auto& [source, piece] : draft.pieces) {
    const Desc& desc = piece.weight.tensor->desc;
    if (draft.pieces.size() > 1) {
      if (desc.shape.rank() == 0) wrong("a scalar has no rows to put together");
      rows = checked_add(rows, desc.shape[0]);
      if (recipe.desc.shape.with(0, 0) != desc.shape.with(0, 0))
        wrong(fmt::format("shapes {} and {} do not fit together", recipe.desc.shape.text(), desc.shape.text()));
      if (desc.dtype != recipe.desc.dtype) recipe.desc.dtype = DType::f32;  // holds whatever the parts are
    }
    recipe.pieces.push_back(piece);
  }
  if (draft.pieces.size() > 1) recipe.desc.shape = recipe.desc.shape.with(0, rows);
  const Shape shape = recipe.desc.shape;
  if (recipe.assemble == Assemble::swap_halves && (shape.rank() == 0 || shape[0] % 2 != 0))
    wrong(fmt::format("{} has no two halves", shape.text()));
  if (recipe.assemble == Assemble::transpose) {
    if (shape.rank() != 2) wrong(fmt::format("{} is no matrix to transpose", shape.text()));
    recipe.desc.shape = Shape{shape[1], shape[0]};
  }
  if (draft.rule->conv1x1 && shape.rank() == 2) recipe.desc.shape = Shape{shape[0], shape[1], 1, 1};
  return recipe;
}

std::optional<LoadedComponent> behind_key_map(const ComponentSpec& component, const std::vector<FilePtr>& files,
                                              UnknownKeys unknown) {
  const Pieces pieces = resolve_scales(stored_keys(files));
  const KeyMap map(component.diffusers);
  const auto rows_per_column = [&](const std::string& module) -> int64_t {
    const auto weight = pieces.find(module + ".weight");
    if (weight == pieces.end() || weight->second.weight.tensor->desc.shape.rank() < 2) return 0;
    const Shape& shape = weight->second.weight.tensor->desc.shape;
    const int64_t columns = shape.with(0, 1).numel();
    return columns == 0 || shape[0] % columns != 0 ? 0 : shape[0] / columns;
  };
  std::map<std::string, Draft> drafts;
  std::vector<const StoredKey*> strangers;
  for (const auto& [key, piece] : pieces) {
    auto native = map.native(key, rows_per_column);
    if (!native) {
      const bool alias = std::ranges::any_of(component.aliases, [&](const auto& item) { return item.second == key; });
      if (alias)
        native = KeyMap::Native{nullptr, 0, key};
      else if (ignored(component, key))
        continue;
      else {
        strangers.push_back(&piece.weight);
        continue;
      }
    }
    Draft& draft = drafts[native->key];
    draft.rule = native->rule;
    if (!draft.pieces.emplace(native->source, piece).second)
      fail(Code::data, "{}: \"{}\" and another tensor both stand for \"{}\"", piece.weight.file->path().string(), key,
           native->key);
  }
  if (!has_marker(component, "", [&](const std::string& key) { return drafts.contains(key); })) return std::nullopt;
  if (!strangers.empty() && unknown == UnknownKeys::refuse)
    fail(Code::data,
         "{}: tensor \"{}\" ({} in all) is not in the plugin's key map for `{}`. This is another model than the plugin "
         "knows, or its key map is incomplete",
         strangers[0]->file->path().string(), strangers[0]->tensor->name, strangers.size(), component.name);
  LoadedComponent out{{}, files};
  for (const auto& [name, draft] : drafts) {
    const size_t wanted = draft.rule == nullptr ? 1 : draft.rule->diffusers.size();
    if (draft.pieces.size() == wanted) {
      out.weights.emplace(name, finish(name, draft));
    } else if (unknown == UnknownKeys::refuse) {
      const StoredKey& found = draft.pieces.begin()->second.weight;
      fail(Code::data, "{}: \"{}\" needs {} tensors ({}), found {} of them (\"{}\"). The folder is incomplete",
           found.file->path().string(), name, wanted, fmt::join(draft.rule->diffusers, ", "), draft.pieces.size(),
           found.tensor->name);
    }
  }
  apply_aliases(component, out.weights);
  return out;
}

}  // namespace

std::optional<LoadedComponent> load_component(const CheckpointSpec& spec, const ComponentSpec& component,
                                              const fs::path& path, FileCache& cache, UnknownKeys unknown) {
  if (!fs::is_directory(path)) {
    const FilePtr file = cache.open(path);
    if (auto found = behind_prefix(spec, component, file)) return found;
    if (component.diffusers.empty()) return std::nullopt;
    return behind_key_map(component, {file}, unknown);  // a file of a diffusers folder, given by itself
  }
  const bool inside = !component.folder.empty() && fs::is_directory(path / component.folder);
  std::vector<FilePtr> files;
  for (const fs::path& file : weight_set(inside ? path / component.folder : path)) files.push_back(cache.open(file));
  if (files.empty()) return std::nullopt;
  return behind_key_map(component, files, unknown);
}

}  // namespace lh
