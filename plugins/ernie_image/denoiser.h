// The ERNIE-Image transformer: its dimensions, read from weight shapes, and its graph.
#pragma once

#include "lora_host/lora_host.hpp"

namespace ernie_image {

struct Dimensions {
  static constexpr int64_t head = 128;  // numbers of a head
  int64_t hidden = 0;
  int64_t channels = 0;  // of the latents, whose places are the tokens
  int64_t text = 0;      // width of a text state
  int64_t layers = 0;
};

// Throws lora_host::Failure that names the tensor, the expected and the found shape.
Dimensions read_dimensions(const lora_host::Weights& weights);

// latents [B, H, W, C], text [B, L, text], text_lengths i32 [B] (rows of each text), timestep f32 [B] (sigma in 0..1)
// -> velocity.
void build_denoiser(lora_host::Graph& g, const Dimensions& dims, const lora_host::Sizes& sizes);

}  // namespace ernie_image
