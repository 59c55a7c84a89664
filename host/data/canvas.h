// A white image to draw on: rectangles, lines, text and other images; what lies outside is left out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/image.h"

namespace lh {

struct Colour {
  uint8_t r = 0, g = 0, b = 0;
};

class Canvas {
 public:
  Canvas(int64_t width, int64_t height);
  void dot(int64_t x, int64_t y, Colour colour);
  void fill(int64_t x, int64_t y, int64_t width, int64_t height, Colour colour);
  void line(int64_t x0, int64_t y0, int64_t x1, int64_t y1, int64_t thickness, Colour colour);
  void text(int64_t x, int64_t y, const std::string& text, int64_t size, Colour colour);
  void paste(int64_t x, int64_t y, const Image& image);
  Image take() { return std::move(image_); }

 private:
  Image image_;
};

// Text with each character outside ASCII as one '?', and its extent in pixels at a font size (dots per dot).
std::string drawable(const std::string& utf8);
int64_t text_width(const std::string& drawable_text, int64_t size);
int64_t line_height(int64_t size);
// Breaks at blanks so that no line has more than `columns` characters; longer words are cut.
std::vector<std::string> wrap(const std::string& drawable_text, int64_t columns);

}  // namespace lh
