// The SDXL UNet: its dimensions, read from weight shapes, and its graph.
#pragma once

#include "lora_host/lora_host.hpp"
#include "nn/unet.hpp"

namespace sdxl {

struct Dimensions {
  static constexpr int64_t size_ids = 6;  // original height and width, crop top and left, target height and width
  static constexpr int64_t size_id_width = 256;  // sinusoid of each
  lora_host::nn::UNetLayout unet;
  int64_t pooled = 0;  // width of the pooled vector
};

// Throws lora_host::Failure that names the tensor, the expected and the found shape.
Dimensions read_dimensions(const lora_host::Weights& weights);

// latents [B, H, W, 4], text [B, L, D], pooled [B, P], size_ids f32 [B, 6], timestep f32 [B] (0..999), for inpainting
// mask [B, H, W, 64] and masked_image [B, H, W, 4] -> what the model was trained to predict [B, H, W, 4].
void build_denoiser(lora_host::Graph& g, const Dimensions& dims, const lora_host::Sizes& sizes);

}  // namespace sdxl
