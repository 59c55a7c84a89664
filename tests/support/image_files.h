// Image files for tests, encoded with the libraries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "data/image.h"

namespace lh::test {

using FileBytes = std::vector<std::byte>;

// An image without symmetry, smooth enough for JPEG.
Image test_picture(int64_t width, int64_t height);

struct JpegOptions {
  int components = 3;  // 1 grey, 3 RGB, 4 CMYK as the pixels hold it
  bool progressive = false;
  bool ycck = false;               // of four components
  std::vector<uint8_t> exif = {};  // payload of APP1
};
FileBytes encode_jpeg(int64_t width, int64_t height, std::vector<uint8_t> pixels, const JpegOptions& options = {});

struct PngOptions {
  int color_type, bit_depth;  // libpng's
  bool interlaced = false;
  std::vector<uint8_t> palette = {};              // RGB triples
  std::vector<uint8_t> palette_alpha = {};        // tRNS of a palette
  std::vector<uint16_t> transparent_colour = {};  // tRNS of grey (1 value) or RGB (3)
  std::vector<uint8_t> exif = {};                 // payload of eXIf
};
FileBytes encode_png_as(int64_t width, int64_t height, size_t row_bytes, std::vector<uint8_t> rows,
                        const PngOptions& options);

// A TIFF block with one entry.
std::vector<uint8_t> exif_tiff(int orientation, bool little_endian);

void write_file(const std::filesystem::path& path, const FileBytes& bytes);

// What an image file shows, whatever else it says.
std::vector<uint8_t> pixels_of(const std::filesystem::path& path);

// What decode_image says of it, which names the file; empty where it is an image.
std::string decode_error(const FileBytes& file);
void write_text(const std::filesystem::path& path, const std::string& text);

// A new empty folder, removed at the end.
class TempFolder {
 public:
  explicit TempFolder(const std::string& name);
  ~TempFolder();
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace lh::test
