#include "cli/watch_pictures.h"

#include <nlohmann/json.hpp>

#include "config/load.h"
#include "core/error.h"
#include "data/caption_files.h"
#include "data/examine.h"
#include "data/image_list.h"

namespace lh {
namespace {

namespace fs = std::filesystem;

// The first of its texts; a caption that cannot be read is none here, and an error where it is trained on.
std::string caption_of(const fs::path& image, const DatasetConfig& dataset, const ImageList& list) {
  try {
    const std::vector<std::string> texts = texts_of(image, dataset, list.texts);
    return texts.empty() ? dataset.default_caption : texts.front();
  } catch (const Error&) {
    return "";
  }
}

}  // namespace

WatchPictures watch_pictures(const fs::path& run_folder, size_t most) {
  WatchPictures pictures;
  std::vector<fs::path> files;
  try {
    const Config config = load_config(run_folder / "config.yaml", ConfigNeeds{.model = false, .datasets = false});
    std::vector<std::string> problems;
    for (const DatasetConfig& dataset : with_class_folders(config.datasets, problems)) {
      const ImageList list = list_images(dataset, problems);
      pictures.total += static_cast<int64_t>(list.images.size());
      for (const fs::path& image : list.images) {
        if (files.size() == most) break;
        files.push_back(image);
        pictures.first.push_back({image.filename().string(), caption_of(image, dataset, list), {}});
      }
    }
    if (files.empty() && !problems.empty()) pictures.problem = problems.front();
  } catch (const Error& error) {
    pictures.problem = error.what();
  }
  const std::vector<ExaminedImage> examined = examine_images(files, usual_examination());
  for (size_t i = 0; i < examined.size(); ++i) pictures.first[i].thumbnail = examined[i].thumbnail;
  return pictures;
}

nlohmann::json pictures_view(const WatchPictures& pictures) {
  nlohmann::json list = nlohmann::json::array();
  for (const WatchPicture& picture : pictures.first)
    list.push_back({{"name", picture.name}, {"caption", picture.caption}, {"shown", !picture.thumbnail.empty()}});
  return {{"total", pictures.total}, {"problem", pictures.problem}, {"pictures", std::move(list)}};
}

}  // namespace lh
