// The image decoders behind image.h, working on a file's bytes. They throw lh::Error(Code::data) with the cause alone;
// image.cpp adds the file's name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "data/image.h"

namespace lh {

using Bytes = std::span<const std::byte>;

struct ImageHeader {
  ImageSize size;         // as stored, before orientation
  int orientation = 1;    // EXIF, 1..8
  bool animated = false;  // has more images than the first, which is the one that is taken
};

// Those beside JPEG and PNG are there where their library was (image_formats.cpp).
ImageHeader jpeg_header(Bytes file);
ImageHeader png_header(Bytes file);
ImageHeader webp_header(Bytes file);
ImageHeader gif_header(Bytes file);
ImageHeader bmp_header(Bytes file);
ImageHeader tiff_header(Bytes file);
ImageHeader heif_header(Bytes file);
// Pixels as stored: RGB, alpha over white and kept, orientation not applied.
Image decode_jpeg(Bytes file);
Image decode_png(Bytes file);
Image decode_webp(Bytes file);
Image decode_gif(Bytes file);
Image decode_bmp(Bytes file);
Image decode_tiff(Bytes file);
Image decode_heif(Bytes file);
// How the image was made, in the words of the program that made it: the text `parameters` of a PNG, the comment of
// EXIF elsewhere. UTF-8; empty where nothing is said.
std::string png_parameters(Bytes file);
std::string jpeg_parameters(Bytes file);
std::string webp_parameters(Bytes file);
bool decodes_avif();
bool decodes_heic();

// Orientation from a TIFF block (EXIF without its "Exif\0\0" mark); 1 when absent or malformed.
int exif_orientation(Bytes tiff);
// The same for the payload of a chunk or segment that may begin with the mark.
int exif_block_orientation(Bytes block);
Bytes without_exif_mark(Bytes block);
// EXIF that is a comment alone, and the comment of any; UTF-8, empty where there is none.
std::vector<std::byte> exif_with_comment(const std::string& text);
std::string exif_comment(Bytes block);
Image apply_orientation(Image image, int orientation);

// Limits of every image, checked before memory is taken for pixels.
inline constexpr int64_t max_image_side = 16384, max_image_pixels = 100'000'000, max_image_file = 256ll << 20;
void check_image_size(int64_t width, int64_t height);

// One colour value over white.
inline uint8_t over_white(uint8_t value, uint8_t alpha) {
  return static_cast<uint8_t>((value * alpha + 255 * (255 - alpha) + 127) / 255);
}

// image.h's functions for bytes already in memory; `name` is for errors.
std::vector<std::byte> read_image_file(const std::filesystem::path& path);
Image decode_image(Bytes file, const std::filesystem::path& name);
Image decode_alpha(Bytes file, const std::filesystem::path& name);  // grey: how opaque each pixel is
ImageSize image_size(Bytes file, const std::filesystem::path& name);
bool image_is_animated(Bytes file, const std::filesystem::path& name);  // of which the first image is taken

}  // namespace lh
