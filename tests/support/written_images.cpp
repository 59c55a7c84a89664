#include "support/written_images.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "support/paths.h"

namespace lh::test {

std::vector<uint8_t> gif_colour(uint8_t i) { return {i, static_cast<uint8_t>(2 * i), static_cast<uint8_t>(255 - i)}; }

// Codes of 8 bits, the table being emptied before they would grow.
FileBytes gif(int64_t width, int64_t height, const std::vector<Frame>& frames, int64_t colours) {
  Written out;
  const int64_t size = colours == 128 ? 6 : 1;
  out.text("GIF89a").number(2, width).number(2, height).number(1, 0x80 | size).number(2, 0);
  for (int64_t i = 0; i < colours; ++i) out.bytes(gif_colour(static_cast<uint8_t>(i)));
  for (const Frame& frame : frames) {
    if (frame.transparent >= 0)
      out.text("\x21\xf9\x04").number(1, 1).number(2, 0).number(1, frame.transparent).number(1, 0);
    out.text(",").number(2, frame.left).number(2, frame.top).number(2, frame.width).number(2, frame.height);
    out.number(1, frame.interlaced ? 0x40 : 0).number(1, 7);
    std::vector<uint8_t> codes;
    for (size_t i = 0; i < frame.pixels.size(); ++i) {
      if (i % 100 == 0) codes.push_back(128);
      codes.push_back(frame.pixels[i]);
    }
    codes.push_back(129);
    for (size_t at = 0; at < codes.size(); at += 255) {
      const size_t count = std::min<size_t>(255, codes.size() - at);
      out.number(1, static_cast<int64_t>(count)).bytes(std::span(codes).subspan(at, count));
    }
    out.number(1, 0);
  }
  return out.text(";").file();
}

std::vector<uint8_t> numbers(int64_t count, int64_t below) {
  std::vector<uint8_t> all;
  for (int64_t i = 0; i < count; ++i) all.push_back(static_cast<uint8_t>(i * 7 % below));
  return all;
}

FileBytes bmp(int64_t width, int64_t height, int64_t bits, const std::vector<uint8_t>& rows,
              const std::vector<uint8_t>& palette) {
  constexpr int64_t headers = 14 + 40;
  Written out;
  const int64_t begin = headers + std::ssize(palette);
  out.text("BM").number(4, begin + std::ssize(rows)).number(4, 0).number(4, begin);
  out.number(4, 40).number(4, width).number(4, height).number(2, 1).number(2, bits).number(4, 0);
  out.number(4, std::ssize(rows)).number(8, 0).number(4, std::ssize(palette) / 4).number(4, 0);
  return out.bytes(palette).bytes(rows).file();
}

FileBytes tiff(int64_t width, int64_t height, const std::vector<uint8_t>& data, const TiffOptions& o) {
  struct Entry {
    int64_t tag, type, count, value;
  };
  constexpr int64_t header = 8, entry_bytes = 12;
  const int64_t entry_count = o.extra > 0 ? 11 : 10;
  const int64_t bits_at = header + 2 + entry_count * entry_bytes + 4, data_at = bits_at + 2 * o.channels;
  std::vector<Entry> entries{{256, 4, 1, width},
                             {257, 4, 1, height},
                             {258, 3, o.channels, o.channels > 2 ? bits_at : o.bits},
                             {259, 3, 1, 1},
                             {262, 3, 1, o.channels > 2 ? 2 : 1},
                             {273, 4, 1, data_at},
                             {274, 3, 1, o.orientation},
                             {277, 3, 1, o.channels},
                             {278, 4, 1, height},
                             {279, 4, 1, std::ssize(data)}};
  if (o.extra > 0) entries.push_back({338, 3, 1, o.extra});
  Written out;
  out.text("II").number(2, 42).number(4, header).number(2, entry_count);
  for (const Entry& e : entries) out.number(2, e.tag).number(2, e.type).number(4, e.count).number(4, e.value);
  out.number(4, 0);
  for (int64_t i = 0; i < o.channels; ++i) out.number(2, o.bits);
  return out.bytes(data).file();
}

FileBytes picture(const std::string& name) {
  std::ifstream in(std::filesystem::path(test_data()) / "pictures" / name, std::ios::binary);
  const std::string all((std::istreambuf_iterator<char>(in)), {});
  return Written().text(all).file();
}

}  // namespace lh::test
