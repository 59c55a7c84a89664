// The AuraFlow transformer: its dimensions, read from weight shapes, and its graph.
#pragma once

#include <optional>

#include "lora_host/lora_host.hpp"

namespace auraflow {

struct Dimensions {
  static constexpr int64_t head_dim = 256, patch = 2;
  int64_t hidden = 0;     // heads * 256
  int64_t channels = 0;   // of the latents
  int64_t grid = 0;       // side of the stored grid of positions, in tokens
  int64_t text = 0;       // width of the text states
  int64_t registers = 0;  // tokens in front of the text that every sample has
  int64_t double_blocks = 0, single_blocks = 0;
};

// Throws lora_host::Failure that names the tensor, the expected and the found shape.
Dimensions read_dimensions(const lora_host::Weights& weights);

// What the weights are instead, where they are those of a known relative.
std::optional<std::string> relative(const lora_host::Weights& weights);

// latents [B, H, W, C], text [B, L, D], timestep f32 [B] (sigma in 0..1) -> velocity, like latents.
void build_denoiser(lora_host::Graph& g, const Dimensions& dims, const lora_host::Sizes& sizes);

}  // namespace auraflow
