// Images: what is taken has the pixels that its header says, and gives the same ones again.
#include <png.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "core/utf8.h"
#include "data/codecs.h"
#include "data/image_formats.h"
#include "fuzz/targets.h"
#include "support/image_files.h"
#include "support/written_images.h"

#ifdef LORA_WEBP
#include <webp/encode.h>
#endif

namespace lh::fuzz {
namespace {

constexpr int64_t most_pixels = 1 << 14;  // of an image that is decoded here: larger ones take longer and show no more

// repeats: two decodes of a file give the same pixels, whatever is wrong with it.
bool check(Bytes file, bool repeats = true) {
  return taken([&] {
    if (const ImageFormat* format = format_of(file);
        format != nullptr && format->read() && format->parameters != nullptr)
      require(!invalid_utf8(format->parameters(file)), "what an image says of itself is UTF-8");
    const ImageSize size = image_size(file, "image");
    require(size.width >= 1 && size.height >= 1 && size.width <= max_image_side && size.height <= max_image_side &&
                size.width * size.height <= max_image_pixels,
            "sizes are within the limits");
    if (size.width * size.height > most_pixels) return;
    const Image image = decode_image(file, "image");
    require(image.width == size.width && image.height == size.height, "the image has the size of its header");
    require(image.rgb.size() == static_cast<size_t>(image.width * image.height * 3), "every pixel is there");
    if (repeats) require(decode_image(file, "image").rgb == image.rgb, "an image is the same every time");
  });
}

bool reads(std::string_view name) { return std::ranges::find(image_formats(), name, &ImageFormat::name)->read(); }

std::string text_of_file(const test::FileBytes& bytes) { return std::string(text_of(bytes)); }

void put_big_endian(std::string& file, size_t at, uint32_t value) {
  for (size_t i = 0; i < 4; ++i) file[at + i] = static_cast<char>(value >> (24 - 8 * i));
}

// The chunks as they are, with checksums that fit: else hardly any change would come past the first chunk.
std::string with_checksums(std::string file) {
  for (size_t at = 8; at + 12 <= file.size();) {
    uint32_t length = 0;
    for (size_t i = 0; i < 4; ++i) length = length << 8 | static_cast<unsigned char>(file[at + i]);
    if (length > file.size() - at - 12) break;
    const auto* type = reinterpret_cast<const Bytef*>(file.data() + at + 4);
    put_big_endian(file, at + 8 + length, static_cast<uint32_t>(::crc32(0, type, length + 4)));
    at += size_t{12} + length;
  }
  return file;
}

}  // namespace

bool png(Bytes input) {
  if (input.empty()) return false;
  if (std::to_integer<int>(input.back()) % 4 == 0) return check(input);
  return check(bytes_of(with_checksums(std::string(text_of(input)))));
}

std::vector<std::string> png_seeds() {
  const auto pixels = [](size_t count) { return std::vector<uint8_t>(count, 0x5a); };
  const auto rgb = test::test_picture(5, 3).rgb;
  return {
      text_of_file(test::encode_png_as(5, 3, 15, rgb, {PNG_COLOR_TYPE_RGB, 8})),
      text_of_file(test::encode_png_as(4, 4, 16, pixels(64), {PNG_COLOR_TYPE_RGBA, 8, true})),
      text_of_file(test::encode_png_as(3, 2, 6, pixels(12), {PNG_COLOR_TYPE_GRAY, 16})),
      text_of_file(test::encode_png_as(
          4, 2, 1, pixels(2), {PNG_COLOR_TYPE_PALETTE, 2, false, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9}, {0, 128}})),
      text_of_file(test::encode_png_as(5, 3, 15, rgb,
                                       {PNG_COLOR_TYPE_RGB, 8, false, {}, {}, {1, 2, 3}, test::exif_tiff(6, true)})),
      text_of_file(encode_png(test::test_picture(5, 3), "a photo")),
      text_of_file(encode_png(test::test_picture(5, 3), "M\xc3\xa4rchen")),
  };
}

bool jpeg(Bytes input) { return check(input); }

std::vector<std::string> jpeg_seeds() {
  const auto app1 = [](std::vector<uint8_t> tiff) {
    const std::vector<uint8_t> mark = {'E', 'x', 'i', 'f', 0, 0};
    tiff.insert(tiff.begin(), mark.begin(), mark.end());
    return tiff;
  };
  const auto rgb = test::test_picture(9, 5).rgb;
  const std::vector<uint8_t> grey(45, 77), cmyk(180, 99);
  std::vector<uint8_t> comment;
  for (const std::byte b : exif_with_comment("M\xc3\xa4rchen")) comment.push_back(std::to_integer<uint8_t>(b));
  return {
      text_of_file(test::encode_jpeg(9, 5, rgb)),
      text_of_file(test::encode_jpeg(9, 5, rgb, {.progressive = true, .exif = app1(test::exif_tiff(6, false))})),
      text_of_file(test::encode_jpeg(9, 5, grey, {.components = 1, .exif = app1(test::exif_tiff(3, true))})),
      text_of_file(test::encode_jpeg(9, 5, cmyk, {.components = 4, .ycck = true})),
      text_of_file(test::encode_jpeg(9, 5, rgb, {.exif = app1(comment)})),
  };
}

bool webp(Bytes input) { return check(input); }

std::vector<std::string> webp_seeds() {
#ifdef LORA_WEBP
  const auto packed = [](size_t size, uint8_t* out) {
    std::string file(reinterpret_cast<const char*>(out), size);
    WebPFree(out);
    return file;
  };
  uint8_t* out = nullptr;
  const auto rgb = test::test_picture(7, 5).rgb;
  const std::vector<uint8_t> rgba(7 * 5 * 4, 0x81);
  std::vector<std::string> seeds;
  size_t size = WebPEncodeRGB(rgb.data(), 7, 5, 21, 80, &out);
  seeds.push_back(packed(size, out));
  size = WebPEncodeLosslessRGBA(rgba.data(), 7, 5, 28, &out);
  seeds.push_back(packed(size, out));
  // An extended file: VP8X, the picture, EXIF.
  const auto chunk = [](const std::string& name, std::string data) {
    std::string length(4, '\0');
    for (size_t i = 0; i < 4; ++i) length[i] = static_cast<char>(data.size() >> (8 * i));
    if (data.size() % 2 != 0) data += '\0';
    return name + length + data;
  };
  const auto tiff = test::exif_tiff(8, true);
  const std::string body = std::string("WEBP") + chunk("VP8X", std::string("\x08\0\0\0\x06\0\0\x04\0\0", 10)) +
                           seeds[0].substr(12) + chunk("EXIF", std::string(tiff.begin(), tiff.end()));
  seeds.push_back(chunk("RIFF", body));
  return seeds;
#else
  return {"RIFF\4\0\0\0WEBP"};
#endif
}

// Formats whose library may be missing: their files are then refused, and there is nothing to look at.
bool gif(Bytes input) { return !reads("GIF") || check(input); }

std::vector<std::string> gif_seeds() {
  const test::Frame whole{.width = 7, .height = 5, .pixels = test::numbers(35)}, part{.left = 1,
                                                                                      .top = 2,
                                                                                      .width = 3,
                                                                                      .height = 2,
                                                                                      .pixels = {1, 2, 3, 3, 2, 1},
                                                                                      .interlaced = true,
                                                                                      .transparent = 3};
  return {text_of_file(test::gif(7, 5, {whole})), text_of_file(test::gif(7, 5, {part, whole}, 4))};
}

bool bmp(Bytes input) { return !reads("BMP") || check(input); }

std::vector<std::string> bmp_seeds() {
  const std::vector<uint8_t> rows(64, 0x5a);
  return {text_of_file(test::bmp(5, 4, 24, rows)), text_of_file(test::bmp(4, -4, 32, rows)),
          text_of_file(test::bmp(4, 2, 8, {0, 1, 2, 3, 3, 2, 1, 0}, std::vector<uint8_t>(16, 77)))};
}

bool tiff(Bytes input) { return !reads("TIFF") || check(input); }

std::vector<std::string> tiff_seeds() {
  const std::vector<uint8_t> data(120, 0x81);
  return {text_of_file(test::tiff(8, 5, data)),
          text_of_file(test::tiff(6, 5, data, {.channels = 4, .orientation = 8, .extra = 2})),
          text_of_file(test::tiff(10, 6, data, {.channels = 1, .bits = 16}))};
}

// What libheif 1.15 finds no tile for in a picture of tiles stays as the memory was.
bool heif(Bytes input) { return !(reads("AVIF") && reads("HEIC")) || check(input, false); }

std::vector<std::string> heif_seeds() {
  std::vector<std::string> seeds;
  for (const char* name : {"picture.avif", "picture.heic", "alpha.avif", "turned.heic"})
    seeds.push_back(text_of_file(test::picture(name)));
  return seeds;
}

}  // namespace lh::fuzz
