// The transformer of the first HunyuanVideo: its dimensions, read from weight shapes, and its graph.
#pragma once

#include <optional>

#include "nn/flux_blocks.hpp"
#include "nn/hunyuan_text.hpp"

namespace hunyuan_video1 {

struct Dimensions : lora_host::nn::FluxDimensions {
  int64_t pooled = 0;  // width of the vector of the whole text
  lora_host::nn::HunyuanTextDimensions prompt;
};

// Throws lora_host::Failure that names the tensor, the expected and the found shape.
Dimensions read_dimensions(const lora_host::Weights& weights);

// What the weights are instead, where they are those of a known relative.
std::optional<std::string> relative(const lora_host::Weights& weights);

// latents [B, t, H, W, C], text [B, L, D], text_lengths i32 [B], pooled [B, P], timestep f32 [B] (sigma in 0..1),
// guidance f32 [B] -> velocity.
void build_denoiser(lora_host::Graph& g, const Dimensions& dims, const lora_host::Sizes& sizes);

}  // namespace hunyuan_video1
