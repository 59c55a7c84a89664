// A sample of the training set: an image or a clip at the size of its bucket, with what belongs to it, and the cuts
// that are made of it.
#pragma once

#include <compare>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "data/bucket.h"
#include "data/caption_rule.h"
#include "data/image.h"

namespace lh {

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
  bool sound = false;        // of a video that has a sound track
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
  bool only_first = false;       // of the bucket's frames, of which a model is told; the others are grey
  bool goes_on = false;          // from its first frame, with models that can do without
  bool normalize_sound = false;  // the loudest place of its track is as loud as can be
};

// Where an image counts: as white as its mask is, or as opaque as the image itself; nowhere less than `least`.
struct SampleMask {
  ImageFile file;
  bool alpha = false, invert = false;
  double least = 0;
};

// Samples of one kind may be in one batch.
struct BatchKind {
  Bucket bucket;
  int64_t size = 1;  // samples in a batch
  auto operator<=>(const BatchKind&) const = default;
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
  bool normalize_sound = false;
  double loss_weight = 1;
  int64_t repeats = 1;
  int64_t batch_size = 1;
  BatchKind kind() const { return {bucket, batch_size}; }
  bool is_augmented() const { return random_crop || random_scale || color_aug; }
  ImageCut cut() const {
    return {.file = image,
            .bucket = bucket,
            .flip = flip,
            .clip = clip,
            .goes_on = goes_on && bucket.frames > 1,
            .normalize_sound = normalize_sound};
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

// Which frames of a video a sample or a cut has: "clip 33 of 33 at 0".
std::string clip_text(const Bucket& bucket, const ClipSpec& clip);

// Whether an image and its mask are of one shape, but for a pixel that rounding takes.
bool same_shape(const ImageSize& a, const ImageSize& b);

}  // namespace lh
