#include "data/bucket.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace lh {
namespace {

int64_t floor_to(double v, int64_t step) {
  return std::max<int64_t>(static_cast<int64_t>(std::floor(v / static_cast<double>(step) + 1e-9)), 1) * step;
}

}  // namespace

std::string text_of(const Bucket& bucket) {
  const std::string size = fmt::format("{} x {}", bucket.width, bucket.height);
  if (bucket.frames == 1) return size;
  return fmt::format("{} frames{} of {}", bucket.frames, bucket.sound > 0 ? " with sound" : "", size);
}

Bucket choose_bucket(ImageSize size, int64_t resolution, int64_t step, bool buckets) {
  if (size.width < 1 || size.height < 1 || resolution < 1 || step < 1)
    fail(Code::internal, "bucket: {} x {} pixels, resolution {} and step {} must all be positive", size.width,
         size.height, resolution, step);
  const int64_t side = std::max(resolution / step, int64_t{1}) * step;
  if (!buckets) return {side, side};

  // The exact size: the image's own, or shrunk to the area of the square.
  const auto w = static_cast<double>(size.width), h = static_cast<double>(size.height);
  const double area = static_cast<double>(resolution) * static_cast<double>(resolution);
  const bool shrink = w * h > area;
  const double exact_w = shrink ? static_cast<double>(resolution) * std::sqrt(w / h) : w;
  const double exact_h = shrink ? static_cast<double>(resolution) * std::sqrt(h / w) : h;

  // Of the four sizes around it, the one closest in aspect ratio; then the larger.
  const int64_t budget = std::max(resolution * resolution, side * side);
  const int64_t low_w = floor_to(exact_w, step), low_h = floor_to(exact_h, step);
  Bucket best;
  double best_error = 0;
  for (const int64_t bw : {low_w, low_w + step}) {
    for (const int64_t bh : {low_h, low_h + step}) {
      // The longer side yields where the shorter had to be lifted to one step.
      Bucket b{bw, bh};
      if (b.width >= b.height)
        b.width = std::min(b.width, std::max(budget / b.height / step, int64_t{1}) * step);
      else
        b.height = std::min(b.height, std::max(budget / b.width / step, int64_t{1}) * step);
      const bool enlarges = b.width > std::max(size.width, step) || b.height > std::max(size.height, step);
      if (enlarges || b.width * b.height > budget) continue;
      const double error = std::abs(std::log(static_cast<double>(b.width) / static_cast<double>(b.height) * h / w));
      const bool closer = error < best_error - 1e-12;
      const bool larger = error < best_error + 1e-12 && b.width * b.height > best.width * best.height;
      if (best.width == 0 || closer || larger) {
        best = b;
        best_error = error;
      }
    }
  }
  return best;
}

}  // namespace lh
