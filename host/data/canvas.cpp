// Drawing on RGB pixels without antialiasing, so that every machine draws the same bytes.
#include "data/canvas.h"

#include <algorithm>
#include <cstdlib>

#include "data/font.h"

namespace lh {

Canvas::Canvas(int64_t width, int64_t height)
    : image_{width, height, std::vector<uint8_t>(static_cast<size_t>(width * height * 3), 255)} {}

void Canvas::dot(int64_t x, int64_t y, Colour colour) {
  if (x < 0 || y < 0 || x >= image_.width || y >= image_.height) return;
  uint8_t* pixel = image_.rgb.data() + (y * image_.width + x) * 3;
  pixel[0] = colour.r;
  pixel[1] = colour.g;
  pixel[2] = colour.b;
}

void Canvas::fill(int64_t x, int64_t y, int64_t width, int64_t height, Colour colour) {
  for (int64_t j = y; j < y + height; ++j)
    for (int64_t i = x; i < x + width; ++i) dot(i, j, colour);
}

void Canvas::line(int64_t x0, int64_t y0, int64_t x1, int64_t y1, int64_t thickness, Colour colour) {
  const int64_t steps = std::max({std::abs(x1 - x0), std::abs(y1 - y0), int64_t{1}});
  for (int64_t i = 0; i <= steps; ++i)
    fill(x0 + (x1 - x0) * i / steps, y0 + (y1 - y0) * i / steps, thickness, thickness, colour);
}

void Canvas::text(int64_t x, int64_t y, const std::string& text, int64_t size, Colour colour) {
  for (const char c : text) {
    for (int64_t j = 0; j < glyph_height; ++j)
      for (int64_t i = 0; i < glyph_width; ++i)
        if (glyph_dot(c, i, j)) fill(x + i * size, y + j * size, size, size, colour);
    x += (glyph_width + 1) * size;
  }
}

void Canvas::paste(int64_t x, int64_t y, const Image& image) {
  const uint8_t* pixel = image.rgb.data();
  for (int64_t j = 0; j < image.height; ++j)
    for (int64_t i = 0; i < image.width; ++i, pixel += 3) dot(x + i, y + j, {pixel[0], pixel[1], pixel[2]});
}

std::string drawable(const std::string& utf8) {
  std::string out;
  for (const char c : utf8) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte & 0xc0) == 0x80) continue;  // continuation of a character already shown
    if (byte < 0x20) {
      out += ' ';
    } else {
      out += byte < 0x7f ? c : '?';
    }
  }
  return out;
}

int64_t text_width(const std::string& drawable_text, int64_t size) {
  return static_cast<int64_t>(drawable_text.size()) * (glyph_width + 1) * size;
}
int64_t line_height(int64_t size) { return (glyph_height + 3) * size; }

std::vector<std::string> wrap(const std::string& drawable_text, int64_t columns) {
  const auto limit = static_cast<size_t>(std::max<int64_t>(columns, 1));
  std::vector<std::string> lines;
  std::string rest = drawable_text;
  while (rest.size() > limit) {
    size_t cut = rest.rfind(' ', limit);
    if (cut == std::string::npos || cut == 0) cut = limit;
    lines.push_back(rest.substr(0, cut));
    rest.erase(0, rest[cut] == ' ' ? cut + 1 : cut);
  }
  if (!rest.empty()) lines.push_back(rest);
  return lines;
}

}  // namespace lh
