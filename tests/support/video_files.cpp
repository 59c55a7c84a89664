#include "support/video_files.h"

#include <fstream>
#include <iterator>

#include "support/paths.h"
#include "support/written_images.h"

namespace lh::test {
namespace {

// A chunk, which ends at an even byte.
FileBytes chunk(std::string_view id, const FileBytes& content) {
  Written out;
  out.text(id).number(4, std::ssize(content)).bytes(content);
  if (content.size() % 2 == 1) out.number(1, 0);
  return out.file();
}

FileBytes list(std::string_view kind, const std::vector<FileBytes>& chunks, std::string_view id = "LIST") {
  Written out;
  out.text(kind);
  for (const FileBytes& c : chunks) out.bytes(c);
  return chunk(id, out.file());
}

// Rows from below, each of whole words, blue first.
FileBytes stored(const Image& image) {
  Written out;
  for (int64_t y = image.height - 1; y >= 0; --y) {
    for (int64_t x = 0; x < image.width; ++x)
      for (int64_t c = 2; c >= 0; --c) out.number(1, image.rgb[static_cast<size_t>(3 * (y * image.width + x) + c)]);
    out.number(static_cast<size_t>(image.width % 4), 0);
  }
  return out.file();
}

}  // namespace

Image film_frame(int64_t number, int64_t width, int64_t height) {
  const auto grey = static_cast<uint8_t>((20 + 15 * number) % 256);
  const uint8_t colours[4][3] = {{200, 40, 40}, {40, 160, 60}, {50, 70, 210}, {grey, grey, grey}};
  Image image{width, height, {}};
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x) {
      const auto& colour = colours[(y >= height / 2 ? 2 : 0) + (x >= width / 2 ? 1 : 0)];
      image.rgb.insert(image.rgb.end(), std::begin(colour), std::end(colour));
    }
  return image;
}

std::vector<Image> film(int64_t frames, int64_t width, int64_t height) {
  std::vector<Image> all;
  for (int64_t i = 0; i < frames; ++i) all.push_back(film_frame(i, width, height));
  return all;
}

FileBytes avi(const std::vector<Image>& frames, AviRate rate) {
  const int64_t width = frames.empty() ? 8 : frames[0].width, height = frames.empty() ? 8 : frames[0].height;
  const int64_t count = std::ssize(frames), bytes = (3 * width + width % 4) * height;
  Written main, stream, format;
  main.number(4, 1'000'000 * rate.scale / rate.rate).number(4, 0).number(4, 0).number(4, 0).number(4, count);
  main.number(4, 0).number(4, 1).number(4, bytes).number(4, width).number(4, height).number(8, 0).number(8, 0);
  stream.text("vids").number(4, 0).number(4, 0).number(4, 0).number(4, 0);
  stream.number(4, rate.scale).number(4, rate.rate).number(4, 0).number(4, count).number(4, bytes).number(4, -1);
  stream.number(4, 0).number(4, 0).number(2, width).number(2, height);
  format.number(4, 40).number(4, width).number(4, height).number(2, 1).number(2, 24).number(4, 0);
  format.number(4, bytes).number(4, 0).number(4, 0).number(4, 0).number(4, 0);
  const FileBytes streams = list("strl", {chunk("strh", stream.file()), chunk("strf", format.file())});
  std::vector<FileBytes> film;
  for (const Image& frame : frames) film.push_back(chunk("00db", stored(frame)));
  return list("AVI ", {list("hdrl", {chunk("avih", main.file()), streams}), list("movi", film)}, "RIFF");
}

FileBytes video(const std::string& name) {
  std::ifstream in(std::filesystem::path(test_data()) / "videos" / name, std::ios::binary);
  const std::string all((std::istreambuf_iterator<char>(in)), {});
  return Written().text(all).file();
}

}  // namespace lh::test
