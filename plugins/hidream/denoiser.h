// The HiDream-I1 transformer: its dimensions, read from weight shapes, and its graph.
#pragma once

#include <algorithm>
#include <optional>
#include <string>

#include "lora_host/lora_host.hpp"

namespace hidream {

struct Dimensions {
  static constexpr int64_t head_dim = 128, patch = 2;
  static constexpr int64_t picked = 2;  // experts that a token goes through
  int64_t hidden = 0, channels = 0;     // of the latents
  int64_t t5 = 0, llama = 0;            // width of T5's states, and of one state of Llama
  int64_t pooled = 0;
  int64_t double_blocks = 0, single_blocks = 0;
  int64_t blocks() const { return double_blocks + single_blocks; }
  // States of Llama that are read: one for each block, as far as it has layers; blocks behind them see the last.
  static constexpr int64_t llama_layers = 32;
  int64_t states() const { return std::min(blocks(), llama_layers); }
};

// Throws lora_host::Failure that names the tensor, the expected and the found shape.
Dimensions read_dimensions(const lora_host::Weights& weights);

// What the weights are instead, where they are those of a known relative.
std::optional<std::string> relative(const lora_host::Weights& weights);

// latents [B, H, W, C], t5 [B, L, T], llama3 [B, M, n D] (n states side by side), pooled [B, P], timestep f32 [B]
// (sigma in 0..1) -> velocity.
void build_denoiser(lora_host::Graph& g, const Dimensions& dims, const lora_host::Sizes& sizes);

}  // namespace hidream
