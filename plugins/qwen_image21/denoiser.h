// The Qwen-Image 2.1 transformer: its dimensions, read from weight shapes, and its graph.
#pragma once

#include <optional>

#include "lora_host/lora_host.hpp"

namespace qwen_image21 {

struct Dimensions {
  static constexpr int64_t head_dim = 128;  // rotary axes 16 + 56 + 56
  int64_t hidden = 0;                       // heads * 128
  int64_t channels = 0;                     // of the latents: a place is a token
  int64_t text = 0;                         // width of the text states
  int64_t inner = 0;                        // of the mlp
  int64_t blocks = 0;
};

// Throws lora_host::Failure that names the tensor, the expected and the found shape.
Dimensions read_dimensions(const lora_host::Weights& weights);

// What the weights are instead, where they are those of a known relative.
std::optional<std::string> relative(const lora_host::Weights& weights);

// latents [B, H, W, C], text [B, L, D], text_mask i32 [B, L] (1 = there; those come first), timestep f32 [B] (sigma in
// 0..1) -> velocity.
void build_denoiser(lora_host::Graph& g, const Dimensions& dims, const lora_host::Sizes& sizes);

}  // namespace qwen_image21
