// The Ideogram 4 transformer: its dimensions, read from weight shapes, and its graph.
#pragma once

#include "nn/next_dit.hpp"

namespace ideogram4 {

struct Dimensions {
  lora_host::nn::NextDit layer;
  int64_t channels = 0;  // of the latents
  int64_t text = 0;      // width of a row of text: the encoder's times the states that are read of it
  int64_t layers = 0;
};

// Throws lora_host::Failure that names the tensor, the expected and the found shape.
Dimensions read_dimensions(const lora_host::Weights& weights);

// latents [B, h, w, C], text [B, L, text], text_mask i32 [B, L] (1 = there; those come first), timestep f32 [B] (sigma
// in 0..1) -> velocity.
void build_denoiser(lora_host::Graph& g, const Dimensions& dims, const lora_host::Sizes& sizes);

}  // namespace ideogram4
