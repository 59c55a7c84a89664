// The HunyuanImage 2.1 transformer: its dimensions, read from weight shapes, and its graph.
#pragma once

#include <optional>

#include "nn/flux_blocks.hpp"
#include "nn/hunyuan_text.hpp"

namespace hunyuan_image {

struct Dimensions : lora_host::nn::FluxDimensions {
  lora_host::nn::HunyuanTextDimensions prompt;
  bool guidance = false;          // distilled guidance
  bool average_velocity = false;  // MeanFlow: it is told where the step ends, and gives the mean velocity on the way
  bool distilled() const { return guidance || average_velocity; }
};

// Throws lora_host::Failure that names the tensor, the expected and the found shape.
Dimensions read_dimensions(const lora_host::Weights& weights);

// What the weights are instead, where they are those of a known relative.
std::optional<std::string> relative(const lora_host::Weights& weights);

// latents [B, H, W, C], text [B, L, D], text_lengths i32 [B], glyphs [B, G, E], glyph_lengths i32 [B] (1: there are
// none), timestep f32 [B] (sigma in 0..1), of distilled models guidance and step_end f32 [B] -> velocity.
void build_denoiser(lora_host::Graph& g, const Dimensions& dims, const lora_host::Sizes& sizes);

}  // namespace hunyuan_image
