// BMP by stb_image, which takes pixels that a file lacks for zeros, and what lies in memory for colours that its
// palette lacks: that all of both is there is seen here.
#include "data/codecs.h"

#ifdef LORA_BMP
#define STB_IMAGE_IMPLEMENTATION
#define STB_IMAGE_STATIC
#define STBI_ONLY_BMP
#define STBI_NO_STDIO
#define STBI_NO_HDR
#define STBI_NO_LINEAR
#include <stb_image.h>

#include <cstdlib>
#include <memory>

#include "core/error.h"

namespace lh {
namespace {

[[noreturn]] void refuse(const char* why) {
  fail(Code::data, "damaged, cut-short or unusual BMP: {} (save the image again, as PNG, or fetch the file anew)", why);
}

const stbi_uc* raw(Bytes file) { return reinterpret_cast<const stbi_uc*>(file.data()); }

int64_t number(Bytes file, size_t at, size_t bytes) {
  uint32_t value = 0;
  for (size_t i = bytes; i > 0; --i) value = value << 8 | std::to_integer<uint32_t>(file[at + i - 1]);
  return value;
}

// Rows of whole 32-bit words, from where the file says that they begin. In front of them, behind the header, is the
// palette.
struct Rows {
  int64_t header = 0;  // bytes; 12 in files of OS/2
  int64_t begin = 0;
  int64_t bits = 0;  // of a pixel; up to 8 are a place in the palette
  int64_t row = 0;   // bytes
};

constexpr int64_t file_header = 14, old_header = 12;

Rows rows_of(Bytes file, ImageSize size) {
  Rows rows{.header = number(file, file_header, 4), .begin = number(file, 10, 4)};
  rows.bits = number(file, rows.header == old_header ? 24 : 28, 2);
  rows.row = (size.width * rows.bits + 31) / 32 * 4;
  if (rows.begin + rows.row * size.height > static_cast<int64_t>(file.size())) refuse("the file ends too early");
  return rows;
}

void require_colours(Bytes file, ImageSize size) {
  const Rows rows = rows_of(file, size);
  if (rows.bits != 1 && rows.bits != 4 && rows.bits != 8) return;
  if (rows.header == old_header) refuse("a palette of OS/2 is not read");  // stb_image counts 4 colours too few
  const int64_t colours = (rows.begin - file_header - rows.header) / 4;
  for (int64_t y = 0; y < size.height; ++y) {
    for (int64_t x = 0; x < size.width; ++x) {
      const int64_t bit = x * rows.bits,
                    byte = number(file, static_cast<size_t>(rows.begin + y * rows.row + bit / 8), 1);
      const int64_t colour = byte >> (8 - rows.bits - bit % 8) & ((1 << rows.bits) - 1);
      if (colour >= colours) refuse("a pixel has a colour that the palette lacks");
    }
  }
}

}  // namespace

ImageHeader bmp_header(Bytes file) {
  constexpr size_t least = 14 + 12 + 4;  // up to the bits of a pixel, wherever they stand
  int width = 0, height = 0, channels = 0;
  if (file.size() < least) refuse("the file ends too early");
  if (stbi_info_from_memory(raw(file), static_cast<int>(file.size()), &width, &height, &channels) == 0)
    refuse(stbi_failure_reason());
  height = std::abs(height);  // negative where rows begin at the top
  check_image_size(width, height);
  rows_of(file, {width, height});
  return {.size = {width, height}};
}

Image decode_bmp(Bytes file) {
  const ImageSize size = bmp_header(file).size;
  require_colours(file, size);
  int width = 0, height = 0, channels = 0;
  const std::unique_ptr<stbi_uc, decltype(&std::free)> rgba(
      stbi_load_from_memory(raw(file), static_cast<int>(file.size()), &width, &height, &channels, 4), &std::free);
  if (rgba == nullptr) refuse(stbi_failure_reason());
  if (width != size.width || height != size.height) refuse("its header says two sizes");
  Image image{width, height, {}};
  for (int64_t i = 0; i < image.width * image.height; ++i) {
    const stbi_uc* pixel = rgba.get() + 4 * i;
    for (int c = 0; c < 3; ++c) image.rgb.push_back(over_white(pixel[c], pixel[3]));
    if (channels == 4) image.alpha.push_back(pixel[3]);
  }
  return image;
}

}  // namespace lh

#endif
