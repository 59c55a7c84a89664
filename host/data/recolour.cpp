// Colours that are moved a little, so that a model does not learn those of single images.
#include <algorithm>
#include <array>
#include <cmath>

#include "data/image.h"

namespace lh {
namespace {

// Hue in sixths of the circle, the largest value stays, and so does its distance to the least one.
void turn(uint8_t* pixel, double sixths) {
  const double r = pixel[0], g = pixel[1], b = pixel[2];
  const double most = std::max({r, g, b}), range = most - std::min({r, g, b});
  if (range == 0) return;
  double hue = most == r ? (g - b) / range : most == g ? 2 + (b - r) / range : 4 + (r - g) / range;
  hue += sixths;
  for (int c = 0; c < 3; ++c) {
    // How far the channel is below the largest: 0 within a sixth of its own hue, all of the range opposite.
    double away = std::fmod(hue - 2 * c, 6);
    if (away < 0) away += 6;
    const double below = std::clamp(std::min(away, 6 - away) - 1, 0.0, 1.0);
    pixel[c] = static_cast<uint8_t>(std::lround(most - range * below));
  }
}

}  // namespace

void recolour(Image& image, double hue, double gamma) {
  if (hue != 0)
    for (size_t i = 0; i < image.rgb.size(); i += 3) turn(image.rgb.data() + i, hue / 60);
  if (gamma == 1) return;
  std::array<uint8_t, 256> table{};
  for (size_t v = 0; v < table.size(); ++v)
    table[v] = static_cast<uint8_t>(std::clamp(std::pow(static_cast<double>(v), gamma), 0.0, 255.0));
  for (uint8_t& v : image.rgb) v = table[v];
}

}  // namespace lh
