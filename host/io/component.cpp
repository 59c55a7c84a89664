// Finds a component behind its prefix in a single file, or in a diffusers folder; renames its keys where they are not
// the canonical ones.
#include "io/component.h"

#include <fmt/format.h>
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

// Is the marker, or a key that may stand for it, among the keys?
template <typename Has>
bool has_marker(const ComponentSpec& component, const Has& has) {
  return has(component.marker) || std::ranges::any_of(component.aliases, [&](const auto& alias) {
           const auto holes = KeyPattern(alias.first).match(component.marker);
           return holes && has(KeyPattern(alias.second).fill(*holes));
         });
}

// Missing keys get what their alias holds; then what nobody wants goes.
void apply_aliases(const ComponentSpec& component, std::map<std::string, Assembly>& weights) {
  for (const auto& [key, instead] : component.aliases) {
    const KeyPattern wanted(key), found(instead);
    std::vector<std::pair<std::string, std::string>> renames;  // from, to
    for (const auto& [name, assembly] : weights)
      if (const auto holes = found.match(name))
        if (const std::string to = wanted.fill(*holes); !weights.contains(to)) renames.emplace_back(name, to);
    for (const auto& [from, to] : renames) {
      auto node = weights.extract(from);
      node.key() = to;
      weights.insert(std::move(node));
    }
  }
  std::erase_if(weights, [&](const auto& item) { return ignored(component, item.first); });
}

Assembly as_stored(const ScaledKey& piece) { return {piece.weight.tensor->desc, Assemble::copy, {piece}}; }

// Canonical tensor in the making: pieces by source number of the rule.
struct Draft {
  const KeyRule* rule = nullptr;
  std::map<size_t, ScaledKey> pieces;
};

Assembly finish(const std::string& name, const Draft& draft) {
  Assembly recipe = as_stored(draft.pieces.begin()->second);
  if (draft.rule == nullptr) return recipe;
  recipe.part = draft.rule->part, recipe.parts = draft.rule->parts;
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
  if (recipe.parts > 1) {
    const Shape& whole = recipe.desc.shape;
    if (whole.rank() == 0 || whole[0] % recipe.parts != 0)
      wrong(fmt::format("the rows of {} are not {} equal parts", whole.text(), recipe.parts));
    recipe.desc.shape = whole.with(0, whole[0] / recipe.parts);
  }
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

// For rules with when_rows.
KeyMap::RowsPerColumn rows_per_column(const StoredKeys& keys) {
  return [&keys](const std::string& module) -> int64_t {
    const auto weight = keys.find(module + ".weight");
    if (weight == keys.end() || weight->second.tensor->desc.shape.rank() < 2) return 0;
    const Shape& shape = weight->second.tensor->desc.shape;
    const int64_t columns = shape.with(0, 1).numel();
    return columns == 0 || shape[0] % columns != 0 ? 0 : shape[0] / columns;
  };
}

// The rules that hold among these keys.
KeyMap key_map(const ComponentSpec& component, const StoredKeys& keys) {
  std::vector<KeyRule> rules = component.diffusers;
  std::erase_if(rules, [&](const KeyRule& rule) { return !rule.beside.empty() && !keys.contains(rule.beside); });
  std::ranges::stable_partition(rules, [](const KeyRule& rule) { return !rule.beside.empty(); });
  return KeyMap(rules);
}

bool has_native_marker(const ComponentSpec& component, const StoredKeys& keys) {
  return has_marker(component, [&](const std::string& key) { return keys.contains(key); });
}

bool has_renamed_marker(const ComponentSpec& component, const StoredKeys& keys) {
  if (component.diffusers.empty()) return has_native_marker(component, keys);
  const KeyMap map = key_map(component, keys);
  const auto rows = rows_per_column(keys);
  return std::ranges::any_of(keys, [&](const auto& item) {
    return std::ranges::any_of(map.native(item.first, rows), [&](const KeyMap::Native& native) {
      return has_marker(component, [&](const std::string& key) { return native.key == key; });
    });
  });
}

LoadedComponent as_named(const ComponentSpec& component, const StoredKeys& keys, const std::vector<FilePtr>& files) {
  LoadedComponent out{.weights = {}, .files = files};
  for (const auto& [key, piece] : resolve_scales(keys)) out.weights.emplace(key, as_stored(piece));
  apply_aliases(component, out.weights);
  return out;
}

// Through the key map.
LoadedComponent renamed(const ComponentSpec& component, const StoredKeys& keys, const std::vector<FilePtr>& files,
                        UnknownKeys unknown) {
  const KeyMap map = key_map(component, keys);
  const auto rows = rows_per_column(keys);
  std::map<std::string, Draft> drafts;
  std::vector<const StoredKey*> strangers;
  const ScaledKeys pieces = resolve_scales(keys);
  for (const auto& [key, piece] : pieces) {
    auto natives = map.native(key, rows);
    if (natives.empty()) {
      const bool alias = std::ranges::any_of(
          component.aliases, [&key = key](const auto& item) { return KeyPattern(item.second).match(key).has_value(); });
      if (alias || std::ranges::find(component.also, key) != component.also.end())
        natives.push_back({nullptr, 0, key});
      else if (!ignored(component, key))
        strangers.push_back(&piece.weight);
    }
    for (const KeyMap::Native& native : natives) {
      Draft& draft = drafts[native.key];
      draft.rule = native.rule;
      if (!draft.pieces.emplace(native.source, piece).second)
        fail(Code::data, "{}: \"{}\" and another tensor both stand for \"{}\"", piece.weight.file->path().string(), key,
             native.key);
    }
  }
  if (!strangers.empty() && unknown == UnknownKeys::refuse)
    fail(Code::data,
         "{}: tensor \"{}\" ({} in all) is not in the plugin's key map for `{}`. This is another model than the plugin "
         "knows, or its key map is incomplete",
         strangers[0]->file->path().string(), strangers[0]->tensor->name, strangers.size(), component.name);
  LoadedComponent out{.weights = {}, .files = files};
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
  for (const StoredKey* stranger : strangers) out.weights.emplace(stranger->tensor->name, as_stored({*stranger}));
  apply_aliases(component, out.weights);
  return out;
}

// The keys of a file that begin with a prefix, without it.
StoredKeys behind(const std::string& prefix, const FilePtr& file) {
  StoredKeys keys;
  for (const StoredTensor& tensor : file->tensors())
    if (tensor.name.starts_with(prefix)) keys.emplace(tensor.name.substr(prefix.size()), StoredKey{file, &tensor});
  return keys;
}

// Takes away what other components have behind prefixes of theirs.
void erase_foreign(const CheckpointSpec& spec, const ComponentSpec& component, const FilePtr& file, StoredKeys& keys) {
  for (const ComponentSpec& other : spec.components)
    for (const std::string& prefix : other.prefixes) {
      if (other.name == component.name || prefix.empty()) continue;
      const StoredKeys theirs = behind(prefix, file);
      if (has_native_marker(other, theirs) || has_renamed_marker(other, theirs))
        std::erase_if(keys, [&](const auto& item) { return item.first.starts_with(prefix); });
    }
}

// Behind the first prefix where the marker is, under its own name or one that the key map knows.
std::optional<LoadedComponent> in_file(const CheckpointSpec& spec, const ComponentSpec& component, const FilePtr& file,
                                       UnknownKeys unknown) {
  for (const std::string& prefix : component.prefixes) {
    StoredKeys keys = behind(prefix, file);
    const bool native = has_native_marker(component, keys);
    if (!native && !has_renamed_marker(component, keys)) continue;
    if (prefix.empty()) erase_foreign(spec, component, file, keys);
    for (const std::string& key : component.also)
      if (const StoredTensor* tensor = file->find(key)) keys.emplace(key, StoredKey{file, tensor});
    return native ? as_named(component, keys, {file}) : renamed(component, keys, {file}, unknown);
  }
  return std::nullopt;
}

}  // namespace

std::optional<LoadedComponent> load_component(const CheckpointSpec& spec, const ComponentSpec& component,
                                              const fs::path& path, FileCache& cache, UnknownKeys unknown) {
  if (!fs::is_directory(path)) return in_file(spec, component, cache.open(path), unknown);
  const bool inside = !component.folder.empty() && fs::is_directory(path / component.folder);
  const fs::path folder = inside ? path / component.folder : path;
  std::vector<FilePtr> files;
  for (const fs::path& file : weight_set(folder)) files.push_back(cache.open(file));
  if (files.empty()) return std::nullopt;
  const StoredKeys keys = stored_keys(files);
  if (!has_renamed_marker(component, keys)) return std::nullopt;
  LoadedComponent loaded = renamed(component, keys, files, unknown);
  loaded.folder = folder;
  return loaded;
}

std::map<std::string, LoadedComponent> load_components(const CheckpointSpec& spec,
                                                       const std::map<std::string, fs::path>& paths,
                                                       std::set<std::string>& useful) {
  FileCache cache;
  std::map<std::string, LoadedComponent> components;
  for (const ComponentSpec& component : spec.components)
    for (const std::string& key : {component.config_key, std::string("name_or_path"), std::string(extras_key)}) {
      const auto path = paths.find(key);
      if (path == paths.end()) continue;
      auto loaded = load_component(spec, component, path->second, cache, UnknownKeys::refuse);
      if (!loaded) continue;
      useful.insert(key);
      components.emplace(component.name, std::move(*loaded));
      break;
    }
  return components;
}

}  // namespace lh
