#include "data/sample.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "core/random.h"
#include "data/further_images.h"

namespace lh {

std::string clip_text(const Bucket& bucket, const ClipSpec& clip) {
  if (clip.follows())
    return fmt::format("clip {} from {} at {} of {}", bucket.frames, clip.start, clip.fps, clip.source_fps);
  return fmt::format("clip {} of {} at {}", bucket.frames, clip.frames, clip.fps);
}

bool same_shape(const ImageSize& a, const ImageSize& b) {
  return std::abs(a.width * b.height - a.height * b.width) <= std::max({a.width, a.height, b.width, b.height});
}

ImageNumbers image_numbers(const ImageCut& cut) {
  const ImageSize& size = cut.file.size;
  const CropGeometry crop = crop_geometry(size, {cut.bucket.width, cut.bucket.height}, cut.augment.at);
  const int64_t left = cut.flip.x ? crop.scaled.width - crop.left - cut.bucket.width : crop.left;
  const int64_t top = cut.flip.y ? crop.scaled.height - crop.top - cut.bucket.height : crop.top;
  const auto number = [](int64_t pixels) { return static_cast<float>(pixels); };
  return {number(size.height), number(size.width),        number(top),
          number(left),        number(cut.bucket.height), number(cut.bucket.width)};
}

// Places and colours are those of the image's content, so that a run with another seed finds them in the cache. Colours
// as kohya's scripts move them: of three images one, its hue by up to 16 degrees or its gamma by up to 5%.
ImageCut Sample::cut(int64_t variant) const {
  ImageCut made = cut();
  if (!is_augmented()) return made;
  Random random(0, Purpose::augment_variant, number(), static_cast<uint32_t>(variant));
  const double x = random.uniform(), y = random.uniform();
  if (random_crop) made.augment.at = {x, y};
  if (random_scale) made.augment.at.scale = random.uniform();
  if (!color_aug || random.uniform() > 0.33) return made;
  const bool hue = random.uniform() > 0.5;
  const double share = 2 * random.uniform() - 1;
  (hue ? made.augment.hue : made.augment.gamma) = hue ? 16 * share : 1 + 0.05 * share;
  return made;
}

std::vector<ImageCut> Sample::cuts() const {
  std::vector<ImageCut> all;
  for (int64_t i = 0; i < augment_variants; ++i) all.push_back(cut(i));
  return all;
}

uint64_t content_number(const ImageFile& file) {
  const std::string& hash = file.content_hash;
  uint64_t number = 0;
  std::from_chars(hash.data(), hash.data() + std::min<size_t>(16, hash.size()), number, 16);
  return number;
}

ImageCut Sample::with_mask(ImageCut cut, int64_t number) const {
  if (inpaint_masks == 0) return cut;
  const auto given = images.find(inpaint_mask_key);
  cut.inpaint = given != images.end() ? InpaintMask{given->second} : InpaintMask{.file = {}, .number = number};
  return cut;
}

}  // namespace lh
