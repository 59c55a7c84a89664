// Aspect-ratio buckets: the sizes at which images are trained.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "data/image.h"

namespace lh {

struct Bucket {
  int64_t width = 0, height = 0;  // pixels, multiples of the model's step
  int64_t frames = 1;             // of a clip
  int64_t sound = 0;              // rows of latents of its sound; 0: it is trained without
  auto operator<=>(const Bucket&) const = default;
};

// The bucket for an image: area at most resolution^2, aspect ratio kept as well as `step` allows; never enlarges an
// image that is smaller than the bucket unless it must (at least one step). Without buckets: the square.
Bucket choose_bucket(ImageSize size, int64_t resolution, int64_t step, bool buckets);

std::string text_of(const Bucket& bucket);  // "832 x 480", "33 frames of 832 x 480"

}  // namespace lh
