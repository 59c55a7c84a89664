// One file with the captions of all images of a dataset, or with their reference pictures.
#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>

#include "core/error.h"
#include "core/json_text.h"
#include "core/lower.h"
#include "data/caption_files.h"
#include "data/further_images.h"
#include "data/image_formats.h"
#include "io/file.h"

namespace lh {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Texts = std::vector<std::string>;

constexpr int64_t max_metadata_bytes = 1 << 30;

// The image that a line is about; null: it does not say.
json image_of(const json& entry) {
  return entry.is_object() ? first_member(entry, {"image_path", "video_path", "file_name", "image"}) : json();
}

// The keys of a JSON object that are there more than once, of which its parser keeps the last.
Texts keys_given_twice(const std::string& text) {
  Texts twice;
  std::set<std::string> seen;
  [[maybe_unused]] const json rest = json::parse(text, [&](int level, json::parse_event_t event, const json& value) {
    if (event == json::parse_event_t::key && level == 1 && !seen.insert(value.get<std::string>()).second)
      twice.push_back(value.get<std::string>());
    return level <= 1;  // what is within needs no memory
  });
  return twice;
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
      attempt(file_, [&] { read_object(text); });
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
  void add(const std::string& name, const json& entry, const std::string& where) {
    const fs::path image = image_file(dataset_.folder_path, name);
    if (image.empty()) return missing_.push_back(name);
    const auto [before, first] = places_.try_emplace(image, where);
    if (!first) refuse_second(name, before->second);
    found_[image] = texts_of_entry(entry, dataset_);
  }
  [[noreturn]] static void refuse_second(const std::string& name, const std::string& before) {
    fail(Code::data,
         "{} is there twice, first in {}: give it one entry, whose caption may be a list of texts, of which one is "
         "drawn for each use",
         name, before);
  }
  void read_object(const std::string& text) {
    const json all = parse_json(text);
    if (!all.is_object()) fail(Code::data, "expected a mapping of image paths, found {:.60}", all.dump());
    for (const std::string& name : keys_given_twice(text))
      attempt(file_, [&] { refuse_second(name, "the same mapping"); });
    for (const auto& item : all.items()) {
      const std::string where = fmt::format("{}: {}", file_, item.key());
      attempt(where, [&] { add(item.key(), item.value(), where); });
    }
  }
  void read_lines(const std::string& text) {
    std::istringstream stream(text);
    int64_t number = 0;
    for (std::string line; std::getline(stream, line);) {
      ++number;
      if (line.find_first_not_of(" \t\r") == line.npos) continue;
      const std::string where = fmt::format("{}:{}", file_, number);
      attempt(where, [&] {
        const json entry = parse_json(line);
        const json name = image_of(entry);
        if (!name.is_string())
          fail(Code::data, "expected a mapping with image_path or video_path and caption, found {:.60}", line);
        add(name.get<std::string>(), entry, where);
      });
    }
  }

  const DatasetConfig& dataset_;
  std::vector<std::string>& problems_;
  std::string file_;
  std::map<fs::path, Texts> found_;
  std::map<fs::path, std::string> places_;  // of their entries
  std::vector<std::string> missing_;
};

// Of a key of the JSONL: 0 of control_path, control_path_0 and control_path_0000; nothing: another key.
std::optional<int64_t> control_number(std::string_view name) {
  constexpr std::string_view first = "control_path";
  if (!name.starts_with(first)) return std::nullopt;
  name.remove_prefix(first.size());
  if (name.empty()) return 0;
  int64_t number = 0;
  const auto [end, error] = std::from_chars(name.data() + 1, name.data() + name.size(), number);
  if (name.front() != '_' || error != std::errc() || end != name.data() + name.size() || number < 0)
    return std::nullopt;
  return number;
}

}  // namespace

std::map<fs::path, fs::path> read_control_paths(const DatasetConfig& dataset, const fs::path& list, int64_t number,
                                                std::vector<std::string>& problems) {
  std::map<fs::path, fs::path> found;
  try {
    std::istringstream stream(read_text(list, max_metadata_bytes));
    for (std::string line; std::getline(stream, line);) {
      const json entry = json_or_nothing(line);  // what is wrong with it is said where captions are read
      const json image = image_of(entry);
      if (!image.is_string()) continue;
      for (const auto& [name, value] : entry.items())
        if (value.is_string() && control_number(name) == number)
          found[image_file(dataset.folder_path, image)] = image_file(dataset.folder_path, value);
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
