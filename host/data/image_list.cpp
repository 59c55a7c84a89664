#include "data/image_list.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "core/log.h"
#include "data/caption_files.h"
#include "data/clips.h"
#include "data/further_images.h"
#include "data/image_formats.h"
#include "data/video.h"

namespace lh {
namespace {

namespace fs = std::filesystem;

bool is_hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

class Folder {
 public:
  explicit Folder(const DatasetConfig& dataset) : dataset_(dataset) {}

  ImageList list(std::vector<std::string>& problems) {
    const fs::path& folder = dataset_.folder_path;
    std::error_code error;
    if (!fs::is_directory(folder, error)) {
      problems.push_back(fmt::format("dataset {}: {} (set folder_path to the folder with the images)", folder.string(),
                                     fs::exists(folder, error) ? "this is not a folder" : "there is no such folder"));
      return {};
    }
    if (dataset_.metadata_file.empty())
      look(folder, problems);
    else
      for (auto& [image, texts] : list_.texts = read_metadata(dataset_, problems)) list_.images.push_back(image);
    if (list_.images.empty() && problems.empty())
      problems.push_back(
          fmt::format("dataset {}: expected {}, found none ({} other entries{}){}{}", folder.string(),
                      videos() ? "videos, for " + why_videos(dataset_) : "images (" + formats_that_are_read() + ")",
                      others_, where_else(), list_.not_read.empty() ? "" : "; not read: " + some_names(list_.not_read),
                      !videos() && videos_ > 0 ? "; videos are read with num_frames above 1" : ""));
    std::ranges::sort(list_.images, {}, [](const fs::path& path) -> const std::string& { return path.native(); });
    std::ranges::sort(list_.not_read);
    return std::move(list_);
  }

 private:
  // Where images may be that were not looked for.
  std::string where_else() const {
    if (dataset_.recursive) return "";
    std::string counted;  // the first of those with their repeats
    std::error_code none;
    for (fs::directory_iterator entry(dataset_.folder_path, none), end; !none && entry != end; entry.increment(none)) {
      const std::string name = entry->path().filename().string();
      const size_t digits = name.find_first_not_of("0123456789");
      const bool counts = digits != 0 && digits != name.npos && name[digits] == '_' && entry->is_directory(none);
      if (counts && (counted.empty() || name < counted)) counted = name;
    }
    return "; sub-folders are searched with recursive: true" +
           (counted.empty() ? "" : fmt::format(", those as {} with class_folders: true", counted));
  }

  void look(const fs::path& folder, std::vector<std::string>& problems) {
    std::error_code error, none;
    // A link to a folder that it lies in would give all images again, and without end where there are two.
    const fs::path itself = fs::canonical(folder, none);
    if (std::ranges::find(within_, itself) != within_.end())
      return log_warning("dataset {}: {} is a link to a folder that it lies in, and is not searched again",
                         dataset_.folder_path.string(), folder.string());
    within_.push_back(itself);
    look_into(folder, error, problems);
    within_.pop_back();
    if (error)
      problems.push_back(fmt::format("dataset {}: the folder cannot be listed: {}", folder.string(), error.message()));
  }

  void look_into(const fs::path& folder, std::error_code& error, std::vector<std::string>& problems) {
    fs::directory_iterator entry(folder, error), end;
    for (; !error && entry != end; entry.increment(error)) {
      const fs::path& path = entry->path();
      std::error_code none;
      if (dataset_.recursive && entry->is_directory(none)) {
        if (!is_hidden(path)) look(path, problems);
        continue;
      }
      const bool video = is_video_name(path);
      if ((videos() ? video : is_image_name(path)) && !(dataset_.recursive && is_hidden(path))) {
        list_.images.push_back(path);
        continue;
      }
      ++others_;
      videos_ += video ? 1 : 0;
      if (!videos() && is_any_image_name(path) && !is_image_name(path))
        list_.not_read.push_back(path.filename().string());
    }
  }

  bool videos() const { return has_videos(dataset_); }

  const DatasetConfig& dataset_;
  std::vector<fs::path> within_;  // folders on the way to the one that is looked into, by their own paths
  ImageList list_;
  int64_t others_ = 0, videos_ = 0;  // entries that are not taken; those of them that are videos
};

}  // namespace

ImageList list_images(const DatasetConfig& dataset, std::vector<std::string>& problems) {
  std::vector<std::string> own;
  ImageList list = Folder(dataset).list(own);
  problems.insert(problems.end(), own.begin(), own.end());
  return list;
}

std::vector<DatasetConfig> with_class_folders(const std::vector<DatasetConfig>& datasets,
                                              std::vector<std::string>& problems) {
  std::vector<DatasetConfig> all;
  for (const DatasetConfig& dataset : datasets) {
    if (!dataset.class_folders) {
      all.push_back(dataset);
      continue;
    }
    std::vector<fs::path> folders;
    std::vector<std::string> others;
    std::error_code error, none;
    for (fs::directory_iterator entry(dataset.folder_path, error), end; !error && entry != end; entry.increment(error))
      if (entry->is_directory(none) && !is_hidden(entry->path())) folders.push_back(entry->path());
    if (error)
      problems.push_back(
          fmt::format("dataset {}: the folder cannot be listed: {}", dataset.folder_path.string(), error.message()));
    std::ranges::sort(folders);
    const size_t before = all.size();
    for (const fs::path& folder : folders) {
      const std::string name = folder.filename().string();
      DatasetConfig each = dataset;
      each.class_folders = false;
      each.folder_path = folder;
      const auto [end, failed] = std::from_chars(name.data(), name.data() + name.size(), each.num_repeats);
      const auto digits = static_cast<size_t>(end - name.data());
      if (failed != std::errc{} || each.num_repeats < 1 || (digits < name.size() && name[digits] != '_')) {
        others.push_back(name);
        continue;
      }
      if (digits + 1 < name.size()) each.default_caption = name.substr(digits + 1);
      all.push_back(std::move(each));
    }
    if (!others.empty())
      log_info("dataset {}: class_folders: left out, for no number of repeats and _ stand in front: {}",
               dataset.folder_path.string(), some_names(others));
    if (!error && all.size() == before)
      problems.push_back(fmt::format(
          "dataset {}: class_folders: expected sub-folders such as 10_sks dog, found {} (10 is how often each image is "
          "used in an epoch; without class_folders the images of the folder itself are used)",
          dataset.folder_path.string(), others.empty() ? "none" : some_names(others)));
  }
  return all;
}

std::vector<fs::path> masks_beside(const DatasetConfig& dataset, const std::vector<fs::path>& images,
                                   std::vector<std::string>& problems) {
  std::map<fs::path, fs::path> by_stem;  // within mask_path, without extension
  std::error_code error;
  fs::recursive_directory_iterator entry(dataset.mask_path, error), end;
  for (; !error && entry != end; entry.increment(error))
    if (is_image_name(entry->path()))
      by_stem.emplace(entry->path().lexically_relative(dataset.mask_path).replace_extension(), entry->path());
  if (error)
    problems.push_back(fmt::format("dataset {}: mask_path {}: {} (give the folder with the masks)",
                                   dataset.folder_path.string(), dataset.mask_path.string(), error.message()));
  std::vector<fs::path> masks;
  for (const fs::path& image : images) {
    auto found = by_stem.find(image.lexically_relative(dataset.folder_path).replace_extension());
    if (found == by_stem.end()) found = by_stem.find(image.stem());
    masks.push_back(found == by_stem.end() ? fs::path() : found->second);
  }
  return masks;
}

}  // namespace lh
