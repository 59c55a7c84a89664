// EXIF orientation: finding it in a TIFF block, and turning an image upright.
#include <cstring>
#include <utility>

#include "data/codecs.h"

namespace lh {
namespace {

// Bounds-checked reads of either byte order; a read past the end makes `ok` false and yields 0.
class TiffReader {
 public:
  explicit TiffReader(Bytes bytes) : bytes_(bytes) {
    little_ = at(0) == 'I';
    const uint8_t mark = little_ ? 'I' : 'M';
    ok = at(0) == mark && at(1) == mark && u16(2) == 42;
  }
  uint32_t u16(uint64_t offset) {
    return little_ ? at(offset) | at(offset + 1) << 8 : at(offset) << 8 | at(offset + 1);
  }
  uint32_t u32(uint64_t offset) {
    return little_ ? u16(offset) | u16(offset + 2) << 16 : u16(offset) << 16 | u16(offset + 2);
  }
  bool ok = true;

 private:
  uint32_t at(uint64_t offset) {
    if (offset < bytes_.size()) return std::to_integer<uint32_t>(bytes_[offset]);
    ok = false;
    return 0;
  }
  Bytes bytes_;
  bool little_ = false;
};

}  // namespace

int exif_orientation(Bytes tiff) {
  constexpr uint32_t orientation_tag = 0x0112, type_short = 3, type_long = 4;
  TiffReader reader(tiff);
  if (!reader.ok) return 1;
  const uint64_t directory = reader.u32(4);
  const uint32_t entries = reader.u16(directory);
  for (uint32_t i = 0; i < entries && reader.ok; ++i) {
    const uint64_t entry = directory + 2 + 12ull * i;
    if (reader.u16(entry) != orientation_tag) continue;
    const uint32_t type = reader.u16(entry + 2), count = reader.u32(entry + 4);
    const uint32_t value = type == type_short ? reader.u16(entry + 8) : type == type_long ? reader.u32(entry + 8) : 0;
    return reader.ok && count == 1 && value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

int exif_block_orientation(Bytes block) {
  constexpr char mark[6] = {'E', 'x', 'i', 'f', 0, 0};
  const bool marked = block.size() >= sizeof mark && std::memcmp(block.data(), mark, sizeof mark) == 0;
  return exif_orientation(marked ? block.subspan(sizeof mark) : block);
}

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
