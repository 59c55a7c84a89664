#include "encode/loss_masks.h"

#include <fmt/core.h>

#include <algorithm>

#include "core/error.h"
#include "data/read_cut.h"

namespace lh {

const std::vector<float>& LossMasks::places(const SampleMask& mask, const Bucket& bucket, CropAt crop) {
  const auto [known, added] =
      known_.try_emplace(fmt::format("{};{};{};{};{}x{};{};{};{}", mask.file.content_hash, mask.alpha, mask.invert,
                                     mask.least, bucket.width, bucket.height, crop.x, crop.y, crop.scale));
  std::vector<float>& means = known->second;
  if (!added) return means;
  const std::vector<float> pixels = read_mask(mask, bucket, crop);
  const int64_t h = bucket.height / downscale_, w = bucket.width / downscale_;
  for (int64_t y = 0; y < h; ++y)
    for (int64_t x = 0; x < w; ++x) {
      double sum = 0;
      for (int64_t row = y * downscale_; row < (y + 1) * downscale_; ++row)
        for (int64_t i = 0; i < downscale_; ++i)
          sum += static_cast<double>(pixels[static_cast<size_t>(row * bucket.width + x * downscale_ + i)]);
      means.push_back(static_cast<float>(sum / static_cast<double>(downscale_ * downscale_)));
    }
  return means;
}

void LossMasks::prepare(const std::vector<Sample>& samples) {
  for (const Sample& sample : samples) {
    if (!sample.mask) continue;
    const std::vector<float>& found = places(*sample.mask, sample.bucket, {});
    if (std::ranges::any_of(found, [](float v) { return v > 0; })) continue;
    fail(Code::data,
         "mask {}: {} at {} x {}, so that nothing of its image would be learned. Use datasets[].mask_min_value, "
         "invert_mask, or another mask",
         sample.mask->file.path.string(), sample.mask->alpha ? "transparent everywhere" : "black everywhere",
         sample.bucket.width, sample.bucket.height);
  }
}

std::vector<float> LossMasks::at(const Sample& sample, CropAt crop) {
  const int64_t h = sample.bucket.height / downscale_, w = sample.bucket.width / downscale_;
  if (!sample.mask) return std::vector<float>(static_cast<size_t>(h * w), 1.0f);
  std::vector<float> found = places(*sample.mask, sample.bucket, crop);
  if (sample.flip.y) {  // rows change places, and stay as they are
    std::reverse(found.begin(), found.end());
    for (int64_t y = 0; y < h; ++y) std::reverse(found.begin() + y * w, found.begin() + (y + 1) * w);
  }
  if (sample.flip.x)
    for (int64_t y = 0; y < h; ++y) std::reverse(found.begin() + y * w, found.begin() + (y + 1) * w);
  return found;
}

std::vector<float> place_weights(const std::vector<float>& samples, std::vector<float> places, bool normalized) {
  double sum = 0;
  for (const float v : places) sum += static_cast<double>(v);
  const double mean = sum / static_cast<double>(places.size());
  const double factor = normalized && mean > 0 ? 1 / mean : 1;
  const size_t each = places.size() / samples.size();
  for (size_t i = 0; i < places.size(); ++i)
    places[i] = static_cast<float>(static_cast<double>(places[i]) * factor * static_cast<double>(samples[i / each]));
  return places;
}

}  // namespace lh
