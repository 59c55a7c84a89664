// Images of formats that tests write byte by byte, so that any file can be made: GIF, BMP, TIFF. AVIF and HEIC lie in
// tests/data/pictures, made of test_picture(64, 48) at quality 95.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "support/image_files.h"

namespace lh::test {

// A file under construction, little endian.
class Written {
 public:
  Written& text(std::string_view s) {
    for (const char c : s) file_.push_back(static_cast<std::byte>(c));
    return *this;
  }
  Written& number(size_t bytes, int64_t value) {
    for (size_t i = 0; i < bytes; ++i) file_.push_back(static_cast<std::byte>(value >> (8 * i)));
    return *this;
  }
  template <typename Range>
  Written& bytes(const Range& range) {
    for (const auto v : range) file_.push_back(static_cast<std::byte>(v));
    return *this;
  }
  const FileBytes& file() const { return file_; }

 private:
  FileBytes file_;
};

struct Frame {
  int64_t left = 0, top = 0, width = 0, height = 0;
  std::vector<uint8_t> pixels;  // numbers of colours
  bool interlaced = false;
  int transparent = -1;
};
// Colour i is gif_colour(i), of 128 or 4.
FileBytes gif(int64_t width, int64_t height, const std::vector<Frame>& frames, int64_t colours = 128);
std::vector<uint8_t> gif_colour(uint8_t i);
std::vector<uint8_t> numbers(int64_t count, int64_t below = 128);

FileBytes bmp(int64_t width, int64_t height, int64_t bits, const std::vector<uint8_t>& rows,
              const std::vector<uint8_t>& palette = {});

struct TiffOptions {
  int64_t channels = 3, bits = 8, orientation = 1, extra = 0;  // extra: 1 colours multiplied by alpha, 2 not
};
FileBytes tiff(int64_t width, int64_t height, const std::vector<uint8_t>& data, const TiffOptions& options = {});

// One of tests/data/pictures.
FileBytes picture(const std::string& name);

}  // namespace lh::test
