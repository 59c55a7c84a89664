// The training set: images with captions, and with further images where the model is given some, sorted into
// aspect-ratio buckets.
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
#include "data/caption_rule.h"
#include "data/further_images.h"
#include "data/image.h"
#include "data/size_step.h"
#include "io/seen_files.h"

namespace lh {

struct Bucket {
  int64_t width = 0, height = 0;  // pixels, multiples of the model's step
  int64_t frames = 1;             // of a clip
  auto operator<=>(const Bucket&) const = default;
};

// How an image is mirrored: left and right change places, top and bottom do.
struct Flip {
  bool x = false, y = false;
  auto operator<=>(const Flip&) const = default;
};

// An image file as it was when the data was opened.
struct ImageFile {
  std::filesystem::path path;
  std::string content_hash;  // SHA-256, hex
  ImageSize size;            // as it is, upright
  int64_t frames = 1;        // of a video
  double fps = 0;            // likewise
};
using ImageFiles = std::map<std::string, ImageFile>;  // by key of the model's recipe: "control"
// Of an image's content, for what is drawn by image.
uint64_t content_number(const ImageFile& file);

// How an image is changed on the way: where it is cropped, its colours (recolour).
struct Augment {
  CropAt at;
  double hue = 0, gamma = 1;
  bool operator==(const Augment&) const = default;
};

// What of an image a model is to paint anew (data/inpaint_mask.h): what a file has white, or a mask that is drawn.
struct InpaintMask {
  std::optional<ImageFile> file;
  int64_t number = 0;  // of the one that is drawn
};

// Which frames of a video are taken: `frames` of them, of which the bucket has those that fill the model's latents.
struct ClipSpec {
  int64_t frames = 1;
  double fps = 0;         // a second; 0: spread over the whole video
  int64_t start = -1;     // else the frame that the clip begins with; others follow as they are,
  double source_fps = 0;  // or, above 0, those that are kept of so many a second for `fps`
  bool follows() const { return start >= 0; }
  auto operator<=>(const ClipSpec&) const = default;
};

// An image file scaled and cropped to a bucket, and mirrored; with a mask that is cut likewise, what that leaves of it.
// Of a video, each frame of a clip likewise.
struct ImageCut {
  ImageFile file;
  Bucket bucket;
  Flip flip = {};
  Augment augment = {};
  std::optional<InpaintMask> inpaint = {};
  ClipSpec clip = {};
  bool only_first = false;  // of the bucket's frames, of which a model is told; the others are grey
  bool goes_on = false;     // from its first frame, with models that can do without
};

// Where an image counts: as white as its mask is, or as opaque as the image itself; nowhere less than `least`.
struct SampleMask {
  ImageFile file;
  bool alpha = false, invert = false;
  double least = 0;
};

struct Sample {
  ImageFile image;
  ImageFiles images;  // further ones that the model is given, cut like `image`
  std::optional<SampleMask> mask;
  std::string caption;             // of the first text, nothing being drawn
  std::vector<std::string> texts;  // one at least, of which `rule` makes captions
  CaptionRule rule;
  Bucket bucket;
  Flip flip = {};
  ClipSpec clip = {};
  bool is_reg = false;
  bool random_crop = false, random_scale = false, color_aug = false;
  int64_t augment_variants = 1;  // of which each use has one
  int64_t inpaint_masks = 0;     // the same, for models that paint by a mask
  bool goes_on = false;          // each clip, from its own first frame: see ImageCut
  double loss_weight = 1;
  int64_t repeats = 1;
  bool is_augmented() const { return random_crop || random_scale || color_aug; }
  ImageCut cut() const {
    return {.file = image, .bucket = bucket, .flip = flip, .clip = clip, .goes_on = goes_on && bucket.frames > 1};
  }
  ImageCut cut(int64_t variant) const;
  std::vector<ImageCut> cuts() const;  // all variants, or the one that is not changed
  uint64_t number() const { return content_number(image); }
  // With the mask that `images` has, or with one of those that are drawn; as it is where inpaint_masks is 0.
  ImageCut with_mask(ImageCut cut, int64_t number) const;
};

// What models that are conditioned on sizes are told of an image, in pixels: height and width of the image as it is,
// top and left of the crop in the scaled and mirrored image, height and width of the
// crop.
struct ImageNumbers {
  float original_height = 0, original_width = 0, crop_top = 0, crop_left = 0, height = 0, width = 0;
  bool operator==(const ImageNumbers&) const = default;
};
ImageNumbers image_numbers(const ImageCut& cut);

struct Dataset {
  std::vector<Sample> samples;        // in a fixed order: dataset, resolution, file name, flip
  std::vector<Sample> validation;     // samples of images that are not trained on
  int64_t skipped = 0;                // corrupt images left out, each with a warning
  std::vector<std::string> not_read;  // files of image formats that are not read
  std::vector<std::string> animated;  // files of which the first image is used
  int64_t unused_reg = 0;             // regularization samples beyond as many as there are others
  int64_t small = 0;                  // samples of images that are smaller than their resolution asks for
};

// Images that are set apart: this share of them, chosen by the seed.
struct ValidationSplit {
  double share = 0;
  uint64_t seed = 0;
};

// The bucket for an image: area at most resolution^2, aspect ratio kept as well as `step` allows; never enlarges an
// image that is smaller than the bucket unless it must (at least one step). Without buckets: the square.
Bucket choose_bucket(ImageSize size, int64_t resolution, int64_t step, bool buckets);

std::string text_of(const Bucket& bucket);  // "832 x 480", "33 frames of 832 x 480"
// Which frames of a video a sample or a cut has: "clip 33 of 33 at 0".
std::string clip_text(const Bucket& bucket, const ClipSpec& clip);

// How many samples of each bucket an epoch has.
std::map<Bucket, int64_t> samples_by_bucket(const std::vector<Sample>& samples);

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
Dataset open_dataset(const std::vector<DatasetConfig>& datasets, const std::string& trigger_word, SizeStep step,
                     const KnownGood& known_good = {}, const ImageKeys& keys = {}, const ValidationSplit& split = {},
                     DatasetSurvey* survey = nullptr, SeenFiles* seen = nullptr);

// Whether an image and its mask are of one shape, but for a pixel that rounding takes.
bool same_shape(const ImageSize& a, const ImageSize& b);
// Reads, hashes and decodes an image file, or a video. Throws lh::Error(Code::data).
ImageFile open_image(const std::filesystem::path& path);
ImageFile open_video(const std::filesystem::path& path);
// The pixels of a cut, not mirrored. Throws lh::Error(Code::data) where the file is no longer what it was.
Image read_cut(const ImageCut& cut);
// What a cut makes of a whole image or frame.
Image cut_of(const Image& whole, const ImageCut& cut);
// Throws lh::Error(Code::data) where the file is no longer what it was.
void require_unchanged(const ImageFile& file);
// A mask cut to a bucket, not mirrored: each of its places from 0 to 1, [height, width]. Throws as read_cut does.
std::vector<float> read_mask(const SampleMask& mask, const Bucket& bucket, CropAt at = {});

}  // namespace lh
