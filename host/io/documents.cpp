// Reads texts beside a checkpoint and metadata of its files, once each.
#include "io/documents.h"

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/json_text.h"

namespace lh {
namespace {

namespace fs = std::filesystem;

constexpr int64_t limit = 4 << 20;

// Relative, downwards, and of a file.
void check_name(const std::string& name) {
  const fs::path path(name);
  bool up = false;
  for (const fs::path& part : path) up |= part == "..";
  if (name.empty() || path.is_absolute() || up || !path.has_filename())
    fail(Code::plugin, "'{}' is no name of a document: expected a relative path without '..'", name);
}

std::string read_document(const fs::path& path) {
  if (fs::is_directory(path)) fail(Code::data, "{}: a folder, expected a text file", path.string());
  std::string text = read_text(path, limit);
  const bool json = path.extension() == ".json";
  if (text.find('\0') != std::string::npos) fail(Code::data, "{}: holds a zero byte, so it is no text", path.string());
  try {
    const nlohmann::json checked = json ? nlohmann::json::parse(text) : nlohmann::json(text);
    if (!json) (void)checked.dump();  // as one JSON string any text is checked to be UTF-8
  } catch (const nlohmann::json::exception& error) {
    fail(Code::data, "{}: {}: {}. Download it again", path.string(), json ? "no valid JSON" : "no UTF-8 text",
         json_reason(error));
  }
  return text;
}

}  // namespace

Documents::Found Documents::document(const std::string& component, const std::string& name) const {
  check_name(name);
  fs::path folder = fs::is_directory(root_) ? root_ : fs::path();
  if (!component.empty()) {
    const auto place = places_.find(component);
    if (place == places_.end()) return {{}, fmt::format("{}: the checkpoint has no component '{}'", name, component)};
    folder = place->second.folder;
    if (folder.empty())
      return {{},
              fmt::format("{}: the weights of {} are in the single file {}, which has no such document beside it", name,
                          component, place->second.files.at(0)->path().string())};
  } else if (folder.empty()) {
    return {{},
            root_.empty() ? fmt::format("{}: the model has no folder", name)
                          : fmt::format("{}: the model is the single file {}, which has no such document beside it",
                                        name, root_.string())};
  }
  const fs::path path = folder / name;
  if (!fs::exists(path)) return {{}, fmt::format("{} does not exist", path.string())};
  return {read_document(path), {}};
}

Documents::Found Documents::metadata(const std::string& component, const std::string& key) const {
  const auto place = places_.find(component);
  if (place == places_.end())
    return {{}, fmt::format("metadata '{}': the checkpoint has no component '{}'", key, component)};
  std::string paths;
  for (const FilePtr& file : place->second.files) {
    if (const auto entry = file->metadata().find(key); entry != file->metadata().end()) return {entry->second, {}};
    paths += (paths.empty() ? "" : ", ") + file->path().string();
  }
  return {{}, fmt::format("no metadata '{}' in {}", key, paths)};
}

}  // namespace lh
