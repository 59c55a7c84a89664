// Text for a weights file of any kind.
#include "io/inspect.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

#include "core/error.h"
#include "io/foreign_lora.h"
#include "io/lora_inspect.h"
#include "io/record.h"
#include "io/weight_files.h"
#include "io/weight_names.h"

namespace lh {
namespace {

namespace fs = std::filesystem;

std::string size_text(int64_t bytes) {
  static constexpr std::array<const char*, 4> units{"bytes", "KiB", "MiB", "GiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < units.size(); ++unit) value /= 1024;
  return unit == 0 ? fmt::format("{} bytes", bytes) : fmt::format("{:.2f} {} ({} bytes)", value, units[unit], bytes);
}

std::string summary(const std::vector<FilePtr>& files) {
  std::map<std::string_view, int64_t> dtypes;
  int64_t tensors = 0, parameters = 0, bytes = 0;
  for (const FilePtr& file : files)
    for (const StoredTensor& tensor : file->tensors()) {
      ++dtypes[stored_type_name(tensor)];
      ++tensors;
      parameters = checked_add(parameters, tensor.desc.shape.numel());
      bytes = checked_add(bytes, stored_bytes(tensor));
    }
  std::string counts;
  for (const auto& [name, count] : dtypes) counts += fmt::format("{}{} {}", counts.empty() ? "" : ", ", count, name);
  return fmt::format("  {} tensors ({}), {} parameters, {}\n", tensors, counts, parameters, size_text(bytes));
}

std::string metadata_text(const std::map<std::string, std::string>& metadata) {
  std::string out;
  for (const auto& [key, value] : metadata) out += fmt::format("    {}: {}\n", printable(key), printable(value));
  return metadata.empty() ? "  no metadata\n" : "  metadata\n" + out;
}

std::string folder_text(const fs::path& folder, FileCache& cache) {
  std::vector<FilePtr> files;
  for (const fs::path& file : weight_set(folder)) files.push_back(cache.open(file));
  if (files.empty()) return {};
  std::string out =
      fmt::format("{} ({} file{})\n", folder.string(), files.size(), files.size() == 1 ? "" : "s") + summary(files);
  return out + metadata_text(files.front()->metadata());
}

// A folder of single files, as user interfaces keep them, is no model: each is.
[[noreturn]] void refuse_folder(const fs::path& folder) {
  std::set<std::string> files;
  for (const auto& entry : fs::directory_iterator(folder))
    if (named_as_weights(entry.path())) files.insert(entry.path().filename().string());
  if (files.empty()) fail(Code::data, "{}: no safetensors weights here or in its folders", folder.string());
  fail(Code::data, "{}: expected a diffusers folder, found single files. Give one of them: {}", folder.string(),
       fmt::join(files, ", "));
}

}  // namespace

std::string inspect(const fs::path& path, const std::vector<ModelNames>& models) {
  FileCache cache;
  if (!fs::is_directory(path)) {
    const FilePtr file = cache.open(path);
    std::string out = fmt::format("{}\n", path.string()) + summary({file});
    if (const std::string record = words_of_record(*file); !record.empty()) out += fmt::format("  {}\n", record);
    if (is_lora(*file) || is_foreign(*file)) out += lora_text(read_lora(path), models);
    return out + metadata_text(file->metadata());
  }
  std::string out = folder_text(path, cache);
  std::set<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(path))
    if (entry.is_directory()) folders.insert(entry.path());
  for (const fs::path& folder : folders) out += folder_text(folder, cache);
  if (out.empty()) refuse_folder(path);
  return out;
}

}  // namespace lh
