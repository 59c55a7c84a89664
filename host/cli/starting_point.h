// Settings to begin with: by what the LoRA is for, how many images there are, and what fits on the card.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "config/print.h"
#include "plugin/recipe.h"

namespace lh {

// What the images are like, as far as their headers say; or the videos of a folder that has no images.
struct DataLook {
  int64_t images = 0, captioned = 0;
  std::string caption_ext = {};  // of their files, where it is not that of the configuration
  int64_t side = 0;              // of the square with as many pixels as the median image
  int64_t frames = 0;            // of the shortest video; 0: they are images
  const char* noun() const { return frames > 0 ? "video" : "image"; }
};
DataLook look_at_data(DatasetConfig dataset);

enum class LoraPurpose { subject, style, concept_ };
std::optional<LoraPurpose> purpose_of(const std::string& word);

// Sizes to train at, the smallest first: the usual ones that the images have the pixels for.
std::vector<int64_t> resolutions_for(const DataLook& look);

// Sets what follows from purpose and data, and says why behind each key.
void begin_with(LoraPurpose purpose, const DataLook& look, Config& config, KeyComments& comments);
// For models that are given further images: samples are made from those of the first image of the dataset.
void sample_from_first(const Recipe& recipe, Config& config, KeyComments& comments);

}  // namespace lh
