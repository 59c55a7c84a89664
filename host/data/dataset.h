// The training set: images with captions, sorted into aspect-ratio buckets.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "config/config.h"
#include "data/image.h"

namespace lh {

struct Bucket {
  int64_t width = 0, height = 0;  // pixels, multiples of the model's step
  auto operator<=>(const Bucket&) const = default;
};

struct Sample {
  std::filesystem::path image;
  std::string caption;       // trigger word applied
  std::string content_hash;  // SHA-256 of the image file, hex
  ImageSize size;            // of the image as it is, upright
  Bucket bucket;
  bool flip = false;
  double caption_dropout_rate = 0;
  int64_t repeats = 1;
};

// What models that are conditioned on sizes are told of a sample, in pixels: height and width of the image as it is,
// top and left of the crop in the scaled (and, where the sample is flipped, mirrored) image, height and width of the
// crop.
struct PictureNumbers {
  float original_height = 0, original_width = 0, crop_top = 0, crop_left = 0, height = 0, width = 0;
  bool operator==(const PictureNumbers&) const = default;
};
PictureNumbers picture_numbers(const Sample& sample);

struct Dataset {
  std::vector<Sample> samples;  // in a fixed order: dataset, resolution, file name, flip
  int64_t skipped = 0;          // corrupt images left out, each with a warning
};

// The bucket for an image: area at most resolution^2, aspect ratio kept as well as `step` allows; never enlarges an
// image that is smaller than the bucket unless it must (at least one step). Without buckets: the square.
Bucket choose_bucket(ImageSize size, int64_t resolution, int64_t step, bool buckets);

// Whether an image with this content hash is known to decode (its latents are cached, so it did once).
using KnownGood = std::function<bool(const std::string& content_hash)>;

// Scans and checks every dataset: the folder's own .jpg, .jpeg, .png and .webp files with their captions. Every image
// is read, hashed and, unless known to be good, decoded; a corrupt one is left out with a warning, or refused where
// DatasetConfig::strict. All problems (empty folder, missing captions, ...) come in one lh::Error(Code::data).
Dataset open_dataset(const std::vector<DatasetConfig>& datasets, const std::string& trigger_word, int64_t step,
                     const KnownGood& known_good = {});

}  // namespace lh
