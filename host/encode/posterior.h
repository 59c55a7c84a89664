// What an encoder says of latents: a mean and a standard deviation for each number, in model space.
#pragma once

#include <cstdint>
#include <span>

#include "core/random.h"

namespace lh {

// A draw, mean + deviation * normal. posterior: [..., 2 channels], the means of a place in front of its deviations.
// out: [..., channels]
void draw_posterior(std::span<const float> posterior, int64_t channels, Random random, std::span<float> out);

}  // namespace lh
