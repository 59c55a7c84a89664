// Colours as CLIP has them: a picture in [-1, 1] with each colour at mean 0 and deviation 1 over CLIP's own pictures.
#pragma once

#include <vector>

#include "lora_host/lora_host.hpp"

namespace lora_host::nn {

// [..., 3] in [-1, 1] -> the same shape. In float32: that is how the numbers were made that the model was trained on.
inline Value clip_colours(Graph& g, Value picture) {
  constexpr double mean[] = {0.48145466, 0.4578275, 0.40821073}, deviation[] = {0.26862954, 0.26130258, 0.27577711};
  std::vector<float> scale, shift;  // of (picture + 1) / 2
  for (int c = 0; c < 3; ++c) {
    scale.push_back(static_cast<float>(0.5 / deviation[c]));
    shift.push_back(static_cast<float>((0.5 - mean[c]) / deviation[c]));
  }
  Value x = g.add(g.mul(g.cast(picture, LH_F32), g.constant({3}, scale)), g.constant({3}, shift));
  return g.cast(x, LH_FLOAT);
}

}  // namespace lora_host::nn
