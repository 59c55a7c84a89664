// The Flux.3 transformer: its dimensions, read from weight shapes, and its graph.
#pragma once

#include <optional>

#include "lora_host/lora_host.hpp"

namespace flux3 {

struct Dimensions {
  static constexpr int64_t head_dim = 128;  // rotary axes 32 + 32 + 32 + 32
  int64_t hidden = 0;                       // heads * 128
  int64_t channels = 0;                     // of the latents
  int64_t text = 0;                         // width of the text states
  int64_t inner = 0;                        // width inside of an mlp
  int64_t mode_blocks = 0;                  // of each kind of token, with weights of their own
  int64_t single_blocks = 0;                // one sequence
};

// Throws lora_host::Failure that names the tensor, the expected and the found shape.
Dimensions read_dimensions(const lora_host::Weights& weights);

// What the weights are instead, where they are those of a known relative.
std::optional<std::string> relative(const lora_host::Weights& weights);

// latents [B, H, W, C], text [B, L, D], text_lengths i32 [B], timestep f32 [B] (sigma in 0..1) and, with `reference`,
// reference like latents -> velocity. Of a sample's text as many rows are seen as text_lengths says.
void build_denoiser(lora_host::Graph& g, const Dimensions& dims, const lora_host::Sizes& sizes, bool reference);

}  // namespace flux3
