#include "data/caption_files.h"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "core/error.h"
#include "core/json_text.h"
#include "core/lower.h"
#include "data/caption.h"

namespace lh {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Texts = std::vector<std::string>;

// The lines that say something, without blanks around them.
Texts lines_of(const std::string& text) {
  Texts lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    const size_t first = line.find_first_not_of(" \t\r");
    if (first != line.npos) lines.push_back(line.substr(first, line.find_last_not_of(" \t\r") - first + 1));
  }
  return lines;
}

// What datasets[].caption_lines makes of one text.
Texts chosen(std::string text, const DatasetConfig& dataset) {
  if (dataset.caption_lines == "whole") return {std::move(text)};
  Texts lines = lines_of(text);
  if (lines.empty()) return {""};
  if (dataset.caption_lines == "first" && lines.size() > 1) lines.resize(1);
  return lines;
}

// A text, or texts in a list.
Texts texts_of(const json& value, const char* key) {
  if (value.is_null()) return {};
  if (value.is_string()) return {value.get<std::string>()};
  Texts texts;
  if (value.is_array())
    for (const json& item : value)
      if (item.is_string()) texts.push_back(item.get<std::string>());
  if (!value.is_array() || texts.size() != value.size())
    fail(Code::data, "{}: expected a text or a list of texts, found {:.60}", key, value.dump());
  return texts;
}

}  // namespace

json first_member(const json& entry, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (entry.contains(name)) return entry.at(name);
  return {};
}

Texts texts_of_entry(const json& entry, const DatasetConfig& dataset) {
  if (entry.is_string()) return chosen(entry.get<std::string>(), dataset);
  if (!entry.is_object()) fail(Code::data, "expected a mapping with caption, found {:.60}", entry.dump());
  Texts texts;
  for (const std::string& caption : texts_of(first_member(entry, {"caption", "text"}), "caption"))
    for (std::string& text : chosen(caption, dataset)) texts.push_back(std::move(text));
  const std::string tags =
      fmt::format("{}", fmt::join(texts_of(first_member(entry, {"tags"}), "tags"), dataset.caption_separator + " "));
  if (!tags.empty() && texts.empty()) texts.emplace_back();
  for (std::string& text : texts) {
    if (!tags.empty()) text += (text.empty() ? "" : dataset.caption_separator + " ") + tags;
    if (static_cast<int64_t>(text.size()) > max_caption_bytes)
      fail(Code::data, "a caption of {} bytes exceeds the limit of {}", text.size(), max_caption_bytes);
  }
  return texts;
}

Texts read_texts(const fs::path& file, const DatasetConfig& dataset) {
  std::string text = read_caption(file);
  if (lower(file.extension().string()) != ".json") return chosen(std::move(text), dataset);
  try {
    return texts_of_entry(parse_json(text), dataset);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("caption {}: {}", file.string(), error.what()));
  }
}

fs::path caption_file(const fs::path& image, const DatasetConfig& dataset) {
  const std::string extension = dataset.caption_ext.starts_with('.') ? dataset.caption_ext : "." + dataset.caption_ext;
  fs::path file = image, capitals = image;
  file.replace_extension(extension);
  capitals.replace_extension(upper(extension));  // A.TXT beside A.JPG, as some systems name files
  std::error_code none;
  return !fs::exists(file, none) && fs::exists(capitals, none) ? capitals : file;
}

std::string captions_elsewhere(const std::vector<fs::path>& without, const DatasetConfig& dataset) {
  std::error_code none;
  const auto beside = [](const fs::path& file, const fs::path& image) {
    return fmt::format("{} is beside {}", file.filename().string(), image.filename().string());
  };
  for (const fs::path& image : without) {
    for (const char* extension : caption_extensions) {
      DatasetConfig other = dataset;
      other.caption_ext = extension;
      if (caption_file("x", other) == caption_file("x", dataset)) continue;  // which holds none
      if (const fs::path file = caption_file(image, other); fs::exists(file, none))
        return fmt::format("{}: set caption_ext: {}", beside(file, image), extension);
    }
    const fs::path whole = image.string() + caption_file("x", dataset).extension().string();
    if (fs::exists(whole, none))
      return fmt::format("{}: name it {}", beside(whole, image), caption_file(image, dataset).filename().string());
  }
  for (const char* list : {"metadata.jsonl", "metadata.json"})
    if (dataset.metadata_file.empty() && fs::exists(dataset.folder_path / list, none))
      return fmt::format("{} is there: set metadata_file: {}", list, (dataset.folder_path / list).string());
  return "";
}

Texts texts_of(const fs::path& image, const DatasetConfig& dataset, const std::map<fs::path, Texts>& metadata) {
  if (const auto found = metadata.find(image); found != metadata.end()) return found->second;
  const fs::path file = caption_file(image, dataset);
  std::error_code error;
  return fs::exists(file, error) ? read_texts(file, dataset) : Texts();
}

}  // namespace lh
