#include "data/inpaint_mask.h"

#include <algorithm>

#include "core/random.h"
#include "data/read_cut.h"

namespace lh {
namespace {

// One axis of a figure: the pixels from `centre - reach` to `centre + reach`, as far as the image goes.
struct Extent {
  int64_t centre = 0, reach = 0;
  // 0 in the centre, 1 at the outer edge of the outermost pixels.
  double distance(int64_t at) const {
    return static_cast<double>(std::abs(at - centre)) / (static_cast<double>(reach) + 0.5);
  }
};

int64_t up_to(Random& random, int64_t most) {
  return static_cast<int64_t>(random.below(static_cast<uint64_t>(most) + 1));
}

// A length from one pixel to the whole side, anywhere where it lies within.
Extent draw_extent(Random& random, int64_t side) {
  const int64_t reach = up_to(random, side) / 2;
  return {reach + up_to(random, std::max<int64_t>(0, side - 1 - 2 * reach)), reach};
}

std::vector<uint8_t> draw_mask(const Bucket& size, Random random) {
  const bool whole = random.below(4) == 0, ellipse = random.below(2) == 0;
  const Extent columns = draw_extent(random, size.width), rows = draw_extent(random, size.height);
  std::vector<uint8_t> mask;
  mask.reserve(static_cast<size_t>(size.width * size.height));
  for (int64_t y = 0; y < size.height; ++y)
    for (int64_t x = 0; x < size.width; ++x) {
      const double across = columns.distance(x), down = rows.distance(y);
      const bool inside = ellipse ? across * across + down * down <= 1 : std::max(across, down) <= 1;
      mask.push_back(whole || inside ? 1 : 0);
    }
  return mask;
}

std::vector<uint8_t> white_of(const Image& image) {
  std::vector<uint8_t> mask;
  mask.reserve(image.rgb.size() / 3);
  for (size_t i = 0; i + 2 < image.rgb.size(); i += 3) {
    // 0.299 R + 0.587 G + 0.114 B in 16 bits behind the point, rounded.
    const uint32_t grey =
        (19595u * image.rgb[i] + 38470u * image.rgb[i + 1] + 7471u * image.rgb[i + 2] + 0x8000u) >> 16;
    mask.push_back(grey >= 128 ? 1 : 0);
  }
  return mask;
}

void mirror(std::vector<uint8_t>& mask, const Bucket& size, Flip flip) {
  const auto width = static_cast<std::ptrdiff_t>(size.width);
  if (flip.x)
    for (auto row = mask.begin(); row != mask.end(); row += width) std::reverse(row, row + width);
  if (!flip.y) return;
  for (std::ptrdiff_t top = 0, bottom = size.height - 1; top < bottom; ++top, --bottom)
    std::swap_ranges(mask.begin() + top * width, mask.begin() + (top + 1) * width, mask.begin() + bottom * width);
}

}  // namespace

std::vector<uint8_t> inpaint_mask(const ImageCut& cut) {
  const InpaintMask& asked = cut.inpaint.value();
  std::vector<uint8_t> mask = asked.file
                                  ? white_of(read_cut({*asked.file, cut.bucket, {}, {.at = cut.augment.at}}))
                                  : draw_mask(cut.bucket, Random(0, Purpose::inpaint_mask, content_number(cut.file),
                                                                 static_cast<uint32_t>(asked.number)));
  mirror(mask, cut.bucket, cut.flip);
  return mask;
}

}  // namespace lh
