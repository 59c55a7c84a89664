// Which image files a dataset has, or video files where it has several frames of each: those of its folder, of the
// folders in it, or those that its metadata file names.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "config/config.h"

namespace lh {

struct ImageList {
  std::vector<std::filesystem::path> images;                        // sorted by the bytes of their names
  std::vector<std::string> not_read;                                // files of image formats that are not read, by name
  std::map<std::filesystem::path, std::vector<std::string>> texts;  // by image, where there is a metadata file
};
ImageList list_images(const DatasetConfig& dataset, std::vector<std::string>& problems);

// Datasets with class_folders become one for each of their sub-folders "10_name", whose images are repeated 10 times
// and without a caption file have the caption `name`; other sub-folders are left out and named.
std::vector<DatasetConfig> with_class_folders(const std::vector<DatasetConfig>& datasets,
                                              std::vector<std::string>& problems);

// The mask of each image: the file of the same name in datasets[].mask_path, in a sub-folder like the image's where
// there is one. Empty: it has none.
std::vector<std::filesystem::path> masks_beside(const DatasetConfig& dataset,
                                                const std::vector<std::filesystem::path>& images,
                                                std::vector<std::string>& problems);

}  // namespace lh
