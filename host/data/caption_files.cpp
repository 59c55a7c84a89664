#include "data/caption_files.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/error.h"
#include "core/json_reason.h"
#include "core/lower.h"
#include "data/caption.h"
#include "data/further_images.h"
#include "data/image_formats.h"
#include "io/file.h"

namespace lh {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Texts = std::vector<std::string>;

constexpr int64_t max_metadata_bytes = 1 << 30;

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

json member(const json& entry, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (entry.contains(name)) return entry.at(name);
  return {};
}

// {"caption": ..., "tags": ...}; Hugging Face's files say text for caption.
Texts texts_of_entry(const json& entry, const DatasetConfig& dataset) {
  if (entry.is_string()) return chosen(entry.get<std::string>(), dataset);
  if (!entry.is_object()) fail(Code::data, "expected a mapping with caption, found {:.60}", entry.dump());
  Texts texts;
  for (const std::string& caption : texts_of(member(entry, {"caption", "text"}), "caption"))
    for (std::string& text : chosen(caption, dataset)) texts.push_back(std::move(text));
  const std::string tags =
      fmt::format("{}", fmt::join(texts_of(member(entry, {"tags"}), "tags"), dataset.caption_separator + " "));
  if (!tags.empty() && texts.empty()) texts.emplace_back();
  for (std::string& text : texts) {
    if (!tags.empty()) text += (text.empty() ? "" : dataset.caption_separator + " ") + tags;
    if (static_cast<int64_t>(text.size()) > max_caption_bytes)
      fail(Code::data, "a caption of {} bytes exceeds the limit of {}", text.size(), max_caption_bytes);
  }
  return texts;
}

json parsed(const std::string& text) {
  try {
    return json::parse(text);
  } catch (const json::exception& error) {
    fail(Code::data, "not JSON: {}", json_reason(error));
  }
}

// The file that a path in the metadata means; empty: there is none.
fs::path image_file(const fs::path& folder, const std::string& name) {
  const fs::path path = (folder / name).lexically_normal();
  std::error_code none;
  if (fs::is_regular_file(path, none)) return path;
  for (const std::string_view extension : image_extensions())
    if (fs::path with = path.string() + std::string(extension); fs::is_regular_file(with, none)) return with;
  return {};
}

class Metadata {
 public:
  Metadata(const DatasetConfig& dataset, std::vector<std::string>& problems)
      : dataset_(dataset), problems_(problems), file_(dataset.metadata_file.string()) {}

  std::map<fs::path, Texts> read() {
    std::string text;
    try {
      text = read_text(dataset_.metadata_file, max_metadata_bytes);
    } catch (const Error& error) {
      problems_.push_back(error.what());
      return {};
    }
    if (lower(dataset_.metadata_file.extension().string()) == ".jsonl")
      read_lines(text);
    else
      attempt(file_, [&] { read_object(parsed(text)); });
    if (!missing_.empty())
      problems_.push_back(fmt::format("{}: {} images that it names are not there: {} (paths are those in {})", file_,
                                      missing_.size(), some_names(missing_), dataset_.folder_path.string()));
    return std::move(found_);
  }

 private:
  template <typename Function>
  void attempt(const std::string& where, const Function& function) {
    try {
      function();
    } catch (const Error& error) {
      problems_.push_back(fmt::format("{}: {}", where, error.what()));
    }
  }
  void add(const std::string& name, const json& entry) {
    const fs::path image = image_file(dataset_.folder_path, name);
    if (image.empty())
      missing_.push_back(name);
    else
      found_[image] = texts_of_entry(entry, dataset_);
  }
  void read_object(const json& all) {
    if (!all.is_object()) fail(Code::data, "expected a mapping of image paths, found {:.60}", all.dump());
    for (const auto& [name, entry] : all.items()) attempt(file_ + ": " + name, [&, n = name, e = entry] { add(n, e); });
  }
  void read_lines(const std::string& text) {
    std::istringstream stream(text);
    int64_t number = 0;
    for (std::string line; std::getline(stream, line);) {
      ++number;
      if (line.find_first_not_of(" \t\r") == line.npos) continue;
      attempt(fmt::format("{}:{}", file_, number), [&] {
        const json entry = parsed(line);
        const json name =
            entry.is_object() ? member(entry, {"image_path", "video_path", "file_name", "image"}) : json();
        if (!name.is_string())
          fail(Code::data, "expected a mapping with image_path or video_path and caption, found {:.60}", line);
        add(name.get<std::string>(), entry);
      });
    }
  }

  const DatasetConfig& dataset_;
  std::vector<std::string>& problems_;
  std::string file_;
  std::map<fs::path, Texts> found_;
  std::vector<std::string> missing_;
};

}  // namespace

Texts read_texts(const fs::path& file, const DatasetConfig& dataset) {
  std::string text = read_caption(file);
  if (lower(file.extension().string()) != ".json") return chosen(std::move(text), dataset);
  try {
    return texts_of_entry(parsed(text), dataset);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("caption {}: {}", file.string(), error.what()));
  }
}

fs::path caption_file(const fs::path& image, const DatasetConfig& dataset) {
  fs::path file = image;
  return file.replace_extension(dataset.caption_ext.starts_with('.') ? dataset.caption_ext : "." + dataset.caption_ext);
}

Texts texts_of(const fs::path& image, const DatasetConfig& dataset, const std::map<fs::path, Texts>& metadata) {
  if (const auto found = metadata.find(image); found != metadata.end()) return found->second;
  const fs::path file = caption_file(image, dataset);
  std::error_code error;
  return fs::exists(file, error) ? read_texts(file, dataset) : Texts();
}

std::map<fs::path, fs::path> read_control_paths(const DatasetConfig& dataset, const fs::path& list, int64_t number,
                                                std::vector<std::string>& problems) {
  std::map<fs::path, fs::path> found;
  try {
    std::istringstream stream(read_text(list, max_metadata_bytes));
    for (std::string line; std::getline(stream, line);) {
      const json entry = json::parse(line, nullptr, false);  // what is wrong with it is said where captions are read
      if (!entry.is_object()) continue;
      const json image = member(entry, {"image_path", "file_name", "image"});
      for (const auto& [name, value] : entry.items()) {
        constexpr std::string_view first = "control_path";
        if (!name.starts_with(first) || !value.is_string() || !image.is_string()) continue;
        // control_path, control_path_0 and control_path_0000 are one.
        const std::string digits = name.size() > first.size() + 1 ? name.substr(first.size() + 1) : "0";
        if (digits.find_first_not_of("0123456789") == digits.npos && digits.size() < 9 && std::stoll(digits) == number)
          found[image_file(dataset.folder_path, image)] = image_file(dataset.folder_path, value);
      }
    }
  } catch (const Error& error) {
    problems.push_back(error.what());
  }
  return found;
}

std::map<fs::path, Texts> read_metadata(const DatasetConfig& dataset, std::vector<std::string>& problems) {
  return Metadata(dataset, problems).read();
}

}  // namespace lh
