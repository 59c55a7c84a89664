// Resampling: separable Lanczos with three lobes, widened when shrinking, on the stored (gamma-coded) values.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/error.h"
#include "data/image.h"

namespace lh {
namespace {

constexpr double lobes = 3.0;

double sinc(double x) {
  if (x == 0.0) return 1.0;
  const double angle = std::numbers::pi * x;
  return std::sin(angle) / angle;
}
double lanczos(double x) { return std::abs(x) < lobes ? sinc(x) * sinc(x / lobes) : 0.0; }

// The source pixels of one output pixel and their weights, which add up to 1.
struct Taps {
  int64_t first = 0;
  std::vector<float> weights;
};

// Taps for `count` outputs beginning at `offset` of a line scaled from `from` to `to` pixels.
std::vector<Taps> make_taps(int64_t from, int64_t to, int64_t offset, int64_t count) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double stretch = std::max(scale, 1.0), support = lobes * stretch;
  std::vector<Taps> taps(static_cast<size_t>(count));
  std::vector<double> weights;
  for (int64_t i = 0; i < count; ++i) {
    const double centre = (static_cast<double>(offset + i) + 0.5) * scale;
    const auto first = std::max<int64_t>(0, static_cast<int64_t>(std::floor(centre - support + 0.5)));
    const auto last = std::min<int64_t>(from, static_cast<int64_t>(std::floor(centre + support + 0.5)));
    weights.clear();
    double sum = 0;
    for (int64_t s = first; s < last; ++s) {
      weights.push_back(lanczos((static_cast<double>(s) + 0.5 - centre) / stretch));
      sum += weights.back();
    }
    Taps& t = taps[static_cast<size_t>(i)];
    t.first = first;
    for (const double w : weights) t.weights.push_back(static_cast<float>(w / sum));
  }
  return taps;
}

uint8_t to_byte(float v) { return static_cast<uint8_t>(std::clamp(std::floor(v + 0.5f), 0.0f, 255.0f)); }

}  // namespace

CropGeometry crop_geometry(ImageSize from, ImageSize to, CropAt at) {
  const int64_t w = from.width, h = from.height;
  if (w < 1 || h < 1 || to.width < 1 || to.height < 1)
    fail(Code::internal, "resize: {} x {} pixels to {} x {} is not possible", w, h, to.width, to.height);
  const bool by_width = to.width * h >= to.height * w;
  int64_t scaled_w = by_width ? to.width : std::max(to.width, (2 * w * to.height + h) / (2 * h));
  int64_t scaled_h = by_width ? std::max(to.height, (2 * h * to.width + w) / (2 * w)) : to.height;
  if (w > scaled_w && h > scaled_h) {
    const auto more = [&](int64_t room) { return std::llround(static_cast<double>(room) * at.scale); };
    scaled_w += more(w - scaled_w);
    scaled_h += more(h - scaled_h);
  }
  const auto before = [](int64_t room, double share) {
    return static_cast<int64_t>(static_cast<double>(room) * share);
  };
  return {{scaled_w, scaled_h}, before(scaled_w - to.width, at.x), before(scaled_h - to.height, at.y)};
}

namespace {

Image resample(const Image& image, int64_t width, int64_t height, const CropGeometry& geometry) {
  const int64_t w = image.width, h = image.height;
  if (static_cast<int64_t>(image.rgb.size()) != w * h * 3)
    fail(Code::internal, "resize: {} bytes are no image of {} x {}", image.rgb.size(), w, h);
  const std::vector<Taps> columns = make_taps(w, geometry.scaled.width, geometry.left, width);
  const std::vector<Taps> rows = make_taps(h, geometry.scaled.height, geometry.top, height);

  // Across, for those source rows that the second pass reads.
  const int64_t top = rows.front().first;
  const int64_t bottom = rows.back().first + static_cast<int64_t>(rows.back().weights.size());
  const auto line = static_cast<size_t>(width) * 3;
  std::vector<float> across(static_cast<size_t>(bottom - top) * line);
  for (int64_t y = top; y < bottom; ++y) {
    const uint8_t* source = image.rgb.data() + y * w * 3;
    float* out = across.data() + static_cast<size_t>(y - top) * line;
    for (const Taps& t : columns) {
      const uint8_t* pixel = source + t.first * 3;
      float r = 0, g = 0, b = 0;
      for (const float weight : t.weights) {
        r += weight * static_cast<float>(pixel[0]);
        g += weight * static_cast<float>(pixel[1]);
        b += weight * static_cast<float>(pixel[2]);
        pixel += 3;
      }
      *out++ = r;
      *out++ = g;
      *out++ = b;
    }
  }

  // Down.
  Image result{width, height, std::vector<uint8_t>(line * static_cast<size_t>(height))};
  std::vector<float> sum(line);
  for (int64_t y = 0; y < height; ++y) {
    const Taps& t = rows[static_cast<size_t>(y)];
    std::fill(sum.begin(), sum.end(), 0.0f);
    const float* source = across.data() + static_cast<size_t>(t.first - top) * line;
    for (const float weight : t.weights) {
      for (size_t x = 0; x < line; ++x) sum[x] += weight * source[x];
      source += line;
    }
    std::transform(sum.begin(), sum.end(), result.rgb.begin() + static_cast<int64_t>(line) * y, to_byte);
  }
  return result;
}

}  // namespace

Image resize_and_crop(const Image& image, int64_t width, int64_t height, CropAt at) {
  return resample(image, width, height, crop_geometry({image.width, image.height}, {width, height}, at));
}

Image stretch(const Image& image, int64_t width, int64_t height) {
  return resample(image, width, height, {{width, height}});
}

}  // namespace lh
