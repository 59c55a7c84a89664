// The Flux.2 transformer: its dimensions, read from weight shapes, and its graph.
#pragma once

#include <optional>

#include "lora_host/lora_host.hpp"

namespace flux2 {

struct Dimensions {
  static constexpr int64_t head_dim = 128;  // rotary axes 32 + 32 + 32 + 32
  int64_t hidden = 0;                       // heads * 128
  int64_t channels = 0;                     // of the latents
  int64_t text = 0;                         // width of the text states
  int64_t double_blocks = 0;                // text and image with weights of their own
  int64_t single_blocks = 0;                // one sequence
  int64_t inner = 0;                        // width inside of an mlp
  bool guidance = false;                    // distilled guidance (dev)
};

// Throws lora_host::Failure that names the tensor, the expected and the found shape.
Dimensions read_dimensions(const lora_host::Weights& weights);

// What the weights are instead, where they are those of a known relative.
std::optional<std::string> relative(const lora_host::Weights& weights);

// latents and references [B, H, W, C], text [B, L, D], timestep f32 [B] (sigma in 0..1), guidance f32 [B] -> velocity.
void build_denoiser(lora_host::Graph& g, const Dimensions& dims, const lora_host::Sizes& sizes);

}  // namespace flux2
