// Finds the files of a component in the layouts that people have, and opens each once.
#include "io/weight_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "core/error.h"
#include "core/json_text.h"
#include "io/seen_files.h"

namespace lh {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 2> base_names{"diffusion_pytorch_model", "model"};
constexpr int64_t index_limit = 64 << 20;

// A file that somebody has open under this path is not read again: every plugin looks at the same one, and a header of
// many tensors takes long to check.
FilePtr open_shared(const fs::path& path) {
  static std::mutex mutex;
  static std::map<std::pair<fs::path, FileStamp>, std::weak_ptr<const WeightFile>> opened;
  const std::optional<FileStamp> stamp = stamp_of(path);
  if (!stamp) return open_weight_file(path);  // says what is wrong
  const std::pair key(path, *stamp);
  {
    const std::lock_guard lock(mutex);
    std::erase_if(opened, [](const auto& entry) { return entry.second.expired(); });
    if (const auto there = opened.find(key); there != opened.end())
      if (FilePtr file = there->second.lock()) return file;
  }
  FilePtr file = open_weight_file(path);
  const std::lock_guard lock(mutex);
  opened[key] = file;
  return file;
}

// Shards that an index file names, in order, all of them there.
std::vector<fs::path> shards(const fs::path& index) {
  const nlohmann::json json = json_or_nothing(read_text(index, index_limit));
  if (json.is_discarded() || !json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object())
    fail(Code::data, "{}: expected JSON with a \"weight_map\" of tensor names to files", index.string());
  std::set<std::string> names;
  for (const auto& [tensor, file] : json["weight_map"].items()) {
    if (!file.is_string()) fail(Code::data, "{}: weight_map entry \"{}\" is not text", index.string(), tensor);
    const auto name = file.get<std::string>();
    if (name.empty() || fs::path(name).filename() != name || name == "." || name == "..")
      fail(Code::data, "{}: weight_map names the file \"{}\", expected a plain name in the same folder", index.string(),
           name);
    names.insert(name);
  }
  std::vector<fs::path> files;
  std::vector<std::string> missing;
  for (const std::string& name : names) {
    files.push_back(index.parent_path() / name);
    std::error_code none;  // a name that is too long for a file is none that is there
    if (!fs::exists(files.back(), none)) missing.push_back(name);
  }
  if (!missing.empty())
    fail(Code::data, "{}: {} of its {} shards are missing: {}. Download them into the same folder", index.string(),
         missing.size(), names.size(), fmt::join(missing, ", "));
  return files;
}

// The set of `variant` ("" = plain).
std::vector<fs::path> find_set(const fs::path& folder, const std::string& variant) {
  const std::string dot = variant.empty() ? "" : "." + variant;
  for (const std::string_view base : base_names) {
    for (const std::string& index :
         {fmt::format("{}.safetensors.index{}.json", base, dot), fmt::format("{}{}.safetensors.index.json", base, dot)})
      if (fs::exists(folder / index)) return shards(folder / index);
    const fs::path single = folder / fmt::format("{}{}.safetensors", base, dot);
    if (fs::exists(single)) return {single};
  }
  return {};
}

// "fp16" of "model.fp16.safetensors", "model.fp16-00001-of-00002.safetensors" or "model.safetensors.index.fp16.json".
std::string variant_of(std::string_view name) {
  for (const std::string_view base : base_names) {
    if (!name.starts_with(base) || name.size() <= base.size() || name[base.size()] != '.') continue;
    std::string_view rest = name.substr(base.size() + 1);
    if (constexpr std::string_view index = "safetensors.index."; rest.starts_with(index))
      rest.remove_prefix(index.size());
    else if (!rest.ends_with(".safetensors"))
      continue;
    std::string variant(rest.substr(0, rest.find_first_of(".-")));
    if (variant != "safetensors" && variant != "json") return variant;
  }
  return {};
}

}  // namespace

FilePtr FileCache::open(const fs::path& path) {
  FilePtr& file = files_[path.lexically_normal()];
  if (!file) file = open_shared(path);
  return file;
}

std::vector<fs::path> weight_set(const fs::path& folder) {
  if (auto plain = find_set(folder, ""); !plain.empty()) return plain;
  std::set<std::string> variants;
  std::string pickle;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (const std::string variant = variant_of(name); !variant.empty()) variants.insert(variant);
    const bool weights = std::ranges::any_of(base_names, [&](auto base) { return name.starts_with(base); });
    if ((weights || name.starts_with("pytorch_model")) && entry.path().extension() == ".bin") pickle = name;
  }
  if (variants.contains("fp16")) variants = {"fp16"};
  for (const std::string& variant : variants)
    if (auto files = find_set(folder, variant); !files.empty()) return files;
  if (!variants.empty())
    fail(Code::data, "{}: shards of the variant {} without their index file. Download the .index.json too",
         folder.string(), *variants.begin());
  if (!pickle.empty())
    fail(Code::data,
         "{}: only {}, a PyTorch pickle, which can run code when it is read. Download the .safetensors files of this "
         "model, or convert it with a tool that you trust (save_pretrained(..., safe_serialization=True))",
         folder.string(), pickle);
  return {};
}

StoredKeys stored_keys(const std::vector<FilePtr>& files) {
  StoredKeys keys;
  for (const FilePtr& file : files)
    for (const StoredTensor& tensor : file->tensors())
      if (const auto [it, added] = keys.emplace(tensor.name, StoredKey{file, &tensor}); !added)
        fail(Code::data, "tensor \"{}\" is both in {} and in {}: remove the file that does not belong there",
             tensor.name, it->second.file->path().string(), file->path().string());
  return keys;
}

}  // namespace lh
