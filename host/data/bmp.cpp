// BMP by stb_image, which takes what a file lacks for zeros: that all of it is there is seen here.
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

// Rows of whole 32-bit words, from where the file says that they begin.
void require_pixels(Bytes file, ImageSize size) {
  constexpr size_t file_header = 14, old_header = 12;
  const bool old = number(file, file_header, 4) == old_header;
  const int64_t begin = number(file, 10, 4), bits = number(file, old ? 24 : 28, 2);
  const int64_t end = begin + (size.width * bits + 31) / 32 * 4 * size.height;
  if (end > static_cast<int64_t>(file.size())) refuse("the file ends too early");
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
  require_pixels(file, {width, height});
  return {.size = {width, height}};
}

Image decode_bmp(Bytes file) {
  const ImageSize size = bmp_header(file).size;
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
