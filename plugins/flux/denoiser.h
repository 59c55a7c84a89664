// The Flux.1 transformer: its dimensions, read from weight shapes, and its graph.
#pragma once

#include <optional>

#include "nn/flux_blocks.hpp"

namespace flux {

struct Dimensions : lora_host::nn::FluxDimensions {
  int64_t pooled = 0;     // width of the pooled vector
  bool guidance = false;  // distilled guidance (dev)
  // Fill: the image without what is to be painted, and the mask, 8 x 8 pixels of a place, stand beside the latents.
  static constexpr int64_t mask_pixels = 64;
  bool fill = false;
};

// Throws lora_host::Failure that names the tensor, the expected and the found shape.
Dimensions read_dimensions(const lora_host::Weights& weights);

// What the weights are instead, where they are those of a known relative.
std::optional<std::string> relative(const lora_host::Weights& weights);

// latents [B, H, W, C], text [B, L, D], pooled [B, P], timestep f32 [B] (sigma in 0..1), guidance f32 [B], with
// `reference` another image to look at [B, H, W, C], of Fill masked_image [B, H, W, C] and mask [B, H, W, 64]
// -> velocity.
void build_denoiser(lora_host::Graph& g, const Dimensions& dims, const lora_host::Sizes& sizes, bool reference);

}  // namespace flux
