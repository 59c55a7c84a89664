// A difference hash (which of two neighbouring cells is brighter) sorts out at once what is unlike; what it lets
// through is compared by the shades of grey, so that pictures with few edges are not all alike.
#include "data/likeness.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

namespace lh {
namespace {

constexpr int64_t hash_side = 9, grey_side = 16;
constexpr int most_bits = 12;         // of 128 that may differ
constexpr double most_stretch = 1.1;  // of one aspect to the other
// A slope below this many shades is none: noise of compression would draw it.
constexpr double least_slope = 2;

// Means of side x side cells, 0 to 255.
std::vector<double> cells_of(const Image& image, int64_t side) {
  std::vector<double> cells;
  const auto edge = [&](int64_t i, int64_t length) { return i * length / side; };
  for (int64_t row = 0; row < side; ++row)
    for (int64_t column = 0; column < side; ++column) {
      const int64_t top = edge(row, image.height), left = edge(column, image.width);
      const int64_t bottom = std::max(edge(row + 1, image.height), top + 1);
      const int64_t right = std::max(edge(column + 1, image.width), left + 1);
      int64_t sum = 0;
      for (int64_t y = top; y < bottom; ++y) {
        const uint8_t* pixel = image.rgb.data() + 3 * (y * image.width + left);
        for (int64_t x = left; x < right; ++x, pixel += 3) sum += 299 * pixel[0] + 587 * pixel[1] + 114 * pixel[2];
      }
      cells.push_back(static_cast<double>(sum) / static_cast<double>(1000 * (bottom - top) * (right - left)));
    }
  return cells;
}

double mean_of(const std::array<uint8_t, 256>& grey) {
  double sum = 0;
  for (const uint8_t shade : grey) sum += shade;
  return sum / static_cast<double>(grey.size());
}

// Mean distance from its own mean.
double contrast_of(const std::array<uint8_t, 256>& grey) {
  const double mean = mean_of(grey);
  double sum = 0;
  for (const uint8_t shade : grey) sum += std::abs(shade - mean);
  return sum / static_cast<double>(grey.size());
}

}  // namespace

Likeness likeness_of(const Image& image) {
  Likeness likeness;
  likeness.aspect = static_cast<double>(image.width) / static_cast<double>(image.height);
  const std::vector<double> cells = cells_of(image, hash_side);
  const auto at = [&](int64_t row, int64_t column) { return cells[static_cast<size_t>(row * hash_side + column)]; };
  for (int64_t i = 0; i + 1 < hash_side; ++i)
    for (int64_t j = 0; j + 1 < hash_side; ++j) {
      const uint64_t bit = uint64_t{1} << (i * (hash_side - 1) + j);
      if (at(i, j + 1) - at(i, j) > least_slope) likeness.slopes[0] |= bit;
      if (at(i + 1, j) - at(i, j) > least_slope) likeness.slopes[1] |= bit;
    }
  const std::vector<double> grey = cells_of(image, grey_side);
  std::ranges::transform(grey, likeness.grey.begin(), [](double v) { return static_cast<uint8_t>(std::lround(v)); });
  return likeness;
}

bool look_alike(const Likeness& a, const Likeness& b) {
  if (std::max(a.aspect, b.aspect) > most_stretch * std::min(a.aspect, b.aspect)) return false;
  int bits = 0;
  for (size_t i = 0; i < a.slopes.size(); ++i) bits += std::popcount(a.slopes[i] ^ b.slopes[i]);
  if (bits > most_bits) return false;
  const double shift = mean_of(a.grey) - mean_of(b.grey);
  double difference = 0;
  for (size_t i = 0; i < a.grey.size(); ++i) difference += std::abs(a.grey[i] - b.grey[i] - shift);
  difference /= static_cast<double>(a.grey.size());
  // Rounding makes up to one shade; beyond that a share of what there is to see.
  return difference <= 1 + 0.15 * std::min(contrast_of(a.grey), contrast_of(b.grey));
}

}  // namespace lh
