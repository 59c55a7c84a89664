// The training set: samples of images with captions, and with further images where the model is given some.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "config/config.h"
#include "data/further_images.h"
#include "data/sample.h"
#include "data/size_step.h"
#include "data/sound_spec.h"
#include "io/seen_files.h"

namespace lh {

struct Dataset {
  std::vector<Sample> samples;        // in a fixed order: dataset, resolution, file name, flip
  std::vector<Sample> validation;     // samples of images that are not trained on
  int64_t skipped = 0;                // corrupt images left out, each with a warning
  std::vector<std::string> not_read;  // files of image formats that are not read
  std::vector<std::string> animated;  // files of which the first image is used
  int64_t unused_reg = 0;             // regularization samples beyond as many as there are others
  int64_t small = 0;                  // samples of images that are smaller than their resolution asks for
  int64_t silent = 0;                 // samples that were to have sound, of videos without a track
  std::set<int64_t> batch_sizes() const;
};

// What datasets have that do not say it themselves.
struct DatasetDefaults {
  std::string trigger_word;
  int64_t batch_size = 1;
  std::optional<SoundSpec> sound = {};  // of models that make it beside clips
};

// Images that are set apart: this share of them, chosen by the seed.
struct ValidationSplit {
  double share = 0;
  uint64_t seed = 0;
};

// How many samples of each kind an epoch has.
std::map<BatchKind, int64_t> samples_by_kind(const std::vector<Sample>& samples);

// Whether an image with this content hash is known to decode (its latents are cached, so it did once).
using KnownGood = std::function<bool(const std::string& content_hash)>;

// An image file that was looked at: what it says of itself, or why it cannot be used.
struct OpenedImage {
  ImageFile file;
  std::string corrupt;     // it is read, and is no image that can be used
  std::string unreadable;  // nothing could be learnt of it
  bool animated = false;   // of its images the first is used
};
using OpenedImages = std::map<std::filesystem::path, OpenedImage>;

// What open_dataset sees, for those who tell the user more than what is trained on.
struct DatasetSurvey {
  struct Picture {
    size_t dataset = 0;  // among `datasets`
    ImageFile file;
    std::vector<std::string> texts;
    bool captioned = false;  // the texts are its own, no default
    std::string no_text;     // why its caption cannot be read; empty: it can, or there is none
    std::string why_not;     // it is trained on; empty: it is
    bool stops = false;      // for that the training is refused
  };
  // Looks at files in place of open_dataset; those that it does not give are looked at there.
  std::function<OpenedImages(const std::vector<std::filesystem::path>&)> open;
  std::vector<DatasetConfig> datasets;  // class folders being datasets of their own
  std::vector<Picture> pictures;
  std::vector<std::string> problems;  // which are not thrown then
};

// Scans and checks every dataset: the images of its folder, of every format that is read, with their captions and
// masks, and for each of `keys` the image of the same name in that key's folder (DatasetConfig::images). Every image is
// read, hashed and, unless known to be good, decoded; a corrupt one is left out with a warning, or refused where
// DatasetConfig::strict. Regularization samples are repeated until there are as many as others, as kohya's scripts do.
// An image that was seen to be good before and has not been touched since is not read: `seen` knows its hash and size.
// All problems (empty folder, missing captions, ...) come in one lh::Error(Code::data).
Dataset open_dataset(const std::vector<DatasetConfig>& datasets, const DatasetDefaults& defaults, SizeStep step,
                     const KnownGood& known_good = {}, const ImageKeys& keys = {}, const ValidationSplit& split = {},
                     DatasetSurvey* survey = nullptr, SeenFiles* seen = nullptr);

}  // namespace lh
