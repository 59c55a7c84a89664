#include "data/further_images.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "config/nearest.h"
#include "config/value.h"
#include "data/caption_files.h"
#include "data/clips.h"
#include "data/image_formats.h"

namespace lh {

namespace fs = std::filesystem;

std::string some_names(const std::vector<std::string>& names) {
  constexpr size_t limit = 5;
  std::string text;
  for (size_t i = 0; i < names.size() && i < limit; ++i) text += (i == 0 ? "" : ", ") + names[i];
  return names.size() > limit ? fmt::format("{}, ... ({} in all)", text, names.size()) : text;
}

std::set<std::string> keys_of_images(const SampleConfig& config) {
  std::set<std::string> keys;
  for (const auto& [key, paths] : config.images) keys.insert(key);
  for (const SampleItem& item : config.prompts)
    for (const auto& [key, path] : item.images) keys.insert(key);
  return keys;
}

std::set<std::string> keys_of_images(const Config& config) {
  std::set<std::string> keys = keys_of_images(config.sample);
  for (const DatasetConfig& dataset : config.datasets) {
    for (const auto& [key, paths] : dataset.images) keys.insert(key);
    if (dataset.do_i2v && has_videos(dataset)) keys.insert(own_first_frame_key);
  }
  return keys;
}

std::vector<std::string> problems_of_images(const std::string& section, const ImagePaths& given,
                                            const ImageKeys& keys) {
  std::vector<std::string> problems;
  std::set<std::string> all = keys.needed;
  if (keys.inpaint) all.insert(inpaint_mask_key);
  all.insert(keys.possible.begin(), keys.possible.end());
  const std::vector<std::string_view> known(all.begin(), all.end());
  for (const auto& [key, paths] : given) {
    if (all.contains(key)) continue;
    const std::string near = nearest_of(key, known);
    const std::string fix = all.empty()    ? "Remove it"
                            : near.empty() ? fmt::format("It has {}", fmt::join(all, ", "))
                                           : fmt::format("Did you mean {}?", near);
    problems.push_back(
        fmt::format("{}{}.{}: the model is given no image of this key. {}", paths.at(0).place(), section, key, fix));
  }
  for (const std::string& key : keys.needed)
    if (!given.contains(key))
      problems.push_back(fmt::format(
          "{}.{}: missing: the model is given a further image of this key{}", section, key,
          keys.chosen.contains(key) ? ", since other datasets or samples of the run have one. Give one here too, or "
                                      "remove it there"
                                    : ""));
  return problems;
}

namespace {

// Which of several further images: 0 of control, 1 of control_2.
int64_t number_of(std::string_view key) {
  const size_t digits = key.find_last_of('_') + 1;  // 0 where there is none
  int64_t number = 1;
  const auto [end, error] = std::from_chars(key.data() + digits, key.data() + key.size(), number);
  return digits == 0 || error != std::errc() || end != key.data() + key.size() ? 0 : number - 1;
}

}  // namespace

std::vector<fs::path> files_beside(const DatasetConfig& config, const std::string& key,
                                   const std::vector<fs::path>& images, std::vector<std::string>& problems) {
  const GivenValue& given = config.images.at(key).at(0);
  const fs::path folder = schema::expand_home(given.text);
  std::map<std::string, std::vector<fs::path>> by_stem;
  std::error_code error;
  if (folder.extension() == ".jsonl") {
    std::map<fs::path, fs::path> listed = read_control_paths(config, folder, number_of(key), problems);
    std::vector<fs::path> files;
    std::vector<std::string> none;
    for (const fs::path& image : images) {
      files.push_back(listed[image]);
      if (files.back().empty()) none.push_back(image.filename().string());
    }
    if (!none.empty())
      problems.push_back(fmt::format("{}images.{}: {} of {} images have no control_path in {} that is there: {}",
                                     given.place(), key, none.size(), images.size(), folder.string(),
                                     some_names(none)));
    return files;
  }
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (is_image_name(entry->path())) by_stem[entry->path().stem().string()].push_back(entry->path());
  if (error) {
    problems.push_back(fmt::format("{}images.{}: {}: {} (give the folder with an image for each of {})", given.place(),
                                   key, folder.string(), error.message(), config.folder_path.string()));
    return {};
  }
  std::vector<fs::path> files;
  std::vector<std::string> missing, several;
  for (const fs::path& image : images) {
    std::vector<fs::path>& found = by_stem[image.stem().string()];
    if (found.empty()) missing.push_back(image.filename().string());
    if (found.size() > 1) several.push_back(image.filename().string());
    files.push_back(found.empty() ? fs::path() : found[0]);
  }
  const auto report = [&](const std::vector<std::string>& names, const char* what) {
    if (!names.empty())
      problems.push_back(fmt::format("{}images.{}: {} of {} images of {} {} {}: {}", given.place(), key, names.size(),
                                     images.size(), config.folder_path.string(), what, folder.string(),
                                     some_names(names)));
  };
  report(missing, "have none of the same name in");
  report(several, "have more than one of the same name in");
  return files;
}

}  // namespace lh
