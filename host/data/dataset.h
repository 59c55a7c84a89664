// The training set: images with captions, and with further images where the model is given some, sorted into
// aspect-ratio buckets.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "config/config.h"
#include "data/image.h"

namespace lh {

struct Bucket {
  int64_t width = 0, height = 0;  // pixels, multiples of the model's step
  auto operator<=>(const Bucket&) const = default;
};

// An image file as it was when the data was opened.
struct ImageFile {
  std::filesystem::path path;
  std::string content_hash;  // SHA-256, hex
  ImageSize size;            // as it is, upright
};
using ImageFiles = std::map<std::string, ImageFile>;  // by key of the model's recipe: "control"

// An image file scaled and cropped to a bucket, mirrored or not.
struct ImageCut {
  ImageFile file;
  Bucket bucket;
  bool flip = false;
};

struct Sample {
  ImageFile image;
  ImageFiles images;    // further ones that the model is given, cut like `image`
  std::string caption;  // trigger word applied
  Bucket bucket;
  bool flip = false;
  double caption_dropout_rate = 0;
  int64_t repeats = 1;
  ImageCut cut() const { return {image, bucket, flip}; }
};

// What models that are conditioned on sizes are told of a sample, in pixels: height and width of the image as it is,
// top and left of the crop in the scaled (and, where the sample is flipped, mirrored) image, height and width of the
// crop.
struct ImageNumbers {
  float original_height = 0, original_width = 0, crop_top = 0, crop_left = 0, height = 0, width = 0;
  bool operator==(const ImageNumbers&) const = default;
};
ImageNumbers image_numbers(const Sample& sample);

struct Dataset {
  std::vector<Sample> samples;  // in a fixed order: dataset, resolution, file name, flip
  int64_t skipped = 0;          // corrupt images left out, each with a warning
};

// The bucket for an image: area at most resolution^2, aspect ratio kept as well as `step` allows; never enlarges an
// image that is smaller than the bucket unless it must (at least one step). Without buckets: the square.
Bucket choose_bucket(ImageSize size, int64_t resolution, int64_t step, bool buckets);

// Whether an image with this content hash is known to decode (its latents are cached, so it did once).
using KnownGood = std::function<bool(const std::string& content_hash)>;

// Scans and checks every dataset: the folder's own .jpg, .jpeg, .png and .webp files with their captions, and for each
// of `keys` the image of the same name in that key's folder (DatasetConfig::images). Every image is read, hashed and,
// unless known to be good, decoded; a corrupt one is left out with a warning, or refused where DatasetConfig::strict.
// All problems (empty folder, missing captions, ...) come in one lh::Error(Code::data).
Dataset open_dataset(const std::vector<DatasetConfig>& datasets, const std::string& trigger_word, int64_t step,
                     const KnownGood& known_good = {}, const std::set<std::string>& keys = {});

// Reads, hashes and decodes an image file. Throws lh::Error(Code::data).
ImageFile open_image(const std::filesystem::path& path);
// The pixels of a cut, not mirrored. Throws lh::Error(Code::data) where the file is no longer what it was.
Image read_cut(const ImageCut& cut);

}  // namespace lh
