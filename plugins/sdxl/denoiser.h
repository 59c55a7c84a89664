// The SDXL UNet: its dimensions, read from weight shapes, its relatives, and its graph.
#pragma once

#include <optional>
#include <string>

#include "lora_host/lora_host.hpp"
#include "nn/unet.hpp"

namespace sdxl {

struct Dimensions {
  static constexpr int64_t size_ids = 6;  // original height and width, crop top and left, target height and width
  static constexpr int64_t size_id_width = 256;  // sinusoid of each
  lora_host::nn::UNetLayout unet;
  int64_t pooled = 0;  // width of the pooled vector
};

// Why a UNet of this layout is none that this plugin knows, e.g. "this is an SDXL refiner (...)"; nothing for SDXL.
std::optional<std::string> relative(const lora_host::Weights& weights);

// Throws lora_host::Failure that names the tensor, the expected and the found shape.
Dimensions read_dimensions(const lora_host::Weights& weights);

// latents [B, H, W, C], text [B, L, D], pooled [B, P], size_ids f32 [B, 6], timestep f32 [B] (0..999) -> what the model
// was trained to predict [B, H, W, 4].
void build_denoiser(lora_host::Graph& g, const Dimensions& dims, const lora_host::Sizes& sizes);

}  // namespace sdxl
