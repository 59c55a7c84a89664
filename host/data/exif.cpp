// EXIF orientation: finding it in a TIFF block, and turning an image upright.
#include <cstring>
#include <utility>

#include "data/codecs.h"
#include "data/tiff_reader.h"

namespace lh {

int exif_orientation(Bytes tiff) {
  constexpr uint32_t orientation_tag = 0x0112, type_short = 3, type_long = 4;
  TiffReader reader(tiff);
  if (!reader.ok) return 1;
  const uint64_t entry = reader.entry(reader.u32(4), orientation_tag);
  if (entry == 0) return 1;
  const uint32_t type = reader.u16(entry + 2), count = reader.u32(entry + 4);
  const uint32_t value = type == type_short ? reader.u16(entry + 8) : type == type_long ? reader.u32(entry + 8) : 0;
  return reader.ok && count == 1 && value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
}

Bytes without_exif_mark(Bytes block) {
  constexpr char mark[6] = {'E', 'x', 'i', 'f', 0, 0};
  const bool marked = block.size() >= sizeof mark && std::memcmp(block.data(), mark, sizeof mark) == 0;
  return marked ? block.subspan(sizeof mark) : block;
}

int exif_block_orientation(Bytes block) { return exif_orientation(without_exif_mark(block)); }

Image apply_orientation(Image image, int orientation) {
  if (orientation < 2 || orientation > 8) return image;
  const int64_t w = image.width, h = image.height;
  Image out;
  out.width = orientation >= 5 ? h : w;
  out.height = orientation >= 5 ? w : h;
  out.rgb.resize(image.rgb.size());
  // Pixel (x, y) of the result lies at (sx, sy) of the stored image.
  const auto source = [&](int64_t x, int64_t y) -> std::pair<int64_t, int64_t> {
    switch (orientation) {
      case 2: return {w - 1 - x, y};
      case 3: return {w - 1 - x, h - 1 - y};
      case 4: return {x, h - 1 - y};
      case 5: return {y, x};
      case 6: return {y, h - 1 - x};
      case 7: return {w - 1 - y, h - 1 - x};
      default: return {w - 1 - y, x};
    }
  };
  uint8_t* to = out.rgb.data();
  for (int64_t y = 0; y < out.height; ++y) {
    for (int64_t x = 0; x < out.width; ++x, to += 3) {
      const auto [sx, sy] = source(x, y);
      std::memcpy(to, image.rgb.data() + (sy * w + sx) * 3, 3);
    }
  }
  return out;
}

}  // namespace lh
