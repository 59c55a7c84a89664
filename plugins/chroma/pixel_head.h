// How Chroma1-Radiance, which works on pixels, ends: a small network for each patch of the picture, whose weights are
// made of what the transformer says of that patch, goes over the patch's pixels.
#pragma once

#include "lora_host/lora_host.hpp"

namespace chroma {

struct PixelHead {
  static constexpr int64_t channels = 3;
  int64_t patch = 0;        // pixels of a token, each way
  int64_t width = 0;        // features of a pixel
  int64_t inner = 0;        // and inside a block
  int64_t frequencies = 0;  // of the place in the patch, each way
  int64_t blocks = 0;
  bool sees_neighbours = false;  // the last layer is a convolution
  bool gives_picture = false;    // x0 in place of the velocity
};

bool has_pixel_head(const lora_host::Weights& weights);

// hidden: width of the transformer. Throws lora_host::Failure that names the tensor, the expected and the found shape.
PixelHead read_pixel_head(const lora_host::Weights& weights, int64_t hidden);

// Noisy pixels f32 [B, H, W, 3] and what the transformer says of each patch [B, S, h] -> [B, H, W, 3].
lora_host::Value build_pixel_head(lora_host::Graph& g, const PixelHead& head, lora_host::Value pixels,
                                  lora_host::Value said);

}  // namespace chroma
