// The further images of a sample, for models that are given more than one: for each key of the model's recipe the file
// of the same name in the folder that datasets[].images has for it.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "config/config.h"

namespace lh {

// "a.png, b.png, ... (7 in all)"
std::string some_names(const std::vector<std::string>& names);

// The keys of models that paint a part of an image anew: that image, which is the sample's own in training, and where.
inline constexpr const char *inpaint_image_key = "image", *inpaint_mask_key = "mask";

// The keys of the further images that a model is given.
struct ImageKeys {
  ImageKeys(std::set<std::string> keys = {}, bool masks = false, std::set<std::string> others = {})
      : needed(std::move(keys)), inpaint(masks), possible(std::move(others)) {}
  std::set<std::string> needed;
  bool inpaint;                    // and inpaint_mask_key, for whose images masks are drawn where the user gives none
  std::set<std::string> possible;  // it could be given these as well
  std::set<std::string> chosen;    // of `needed`, those that it can do without, which something of the run has
};

// Among the keys of a run: some of its clips go on from their own first frames.
inline const std::string own_first_frame_key = "own first frame";

// The keys of the further images that samples of a run are made from, and with those of its datasets.
std::set<std::string> keys_of_images(const SampleConfig& config);
std::set<std::string> keys_of_images(const Config& config);

// What is wrong with the keys of datasets[].images or sample.images, `section`, for a model that is given images of
// these keys: those it does not have, and those that are missing.
std::vector<std::string> problems_of_images(const std::string& section, const ImagePaths& given, const ImageKeys& keys);

// The files for one key, by the index of the image that they belong to. Images without one go into `problems`.
std::vector<std::filesystem::path> files_beside(const DatasetConfig& config, const std::string& key,
                                                const std::vector<std::filesystem::path>& images,
                                                std::vector<std::string>& problems);

}  // namespace lh
