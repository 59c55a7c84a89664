// The transformer of Stable Diffusion 3.5 (MMDiT, MMDiT-X): its dimensions, read from weight shapes, and its graph.
#pragma once

#include <optional>
#include <set>

#include "lora_host/lora_host.hpp"

namespace sd35 {

struct Dimensions {
  static constexpr int64_t head_dim = 64;
  int64_t hidden = 0;      // heads * 64
  int64_t channels = 0;    // of the latents
  int64_t patch = 0;       // latent places of a token, each way
  int64_t grid = 0;        // side of the stored grid of positions, in tokens
  int64_t text = 0;        // width of the text states
  int64_t pooled = 0;      // width of the pooled vector
  int64_t blocks = 0;      // the last one makes no text
  std::set<int64_t> dual;  // blocks with a second attention over the image alone (medium)
  bool qk_norm = false;    // RMS norms on q and k; SD3 medium has none
};

// Throws lora_host::Failure that names the tensor, the expected and the found shape.
Dimensions read_dimensions(const lora_host::Weights& weights);

// What the weights are instead, where they are those of a known relative.
std::optional<std::string> relative(const lora_host::Weights& weights);

// latents [B, H, W, C], text [B, L, D], pooled [B, P], timestep f32 [B] (sigma in 0..1) -> velocity, like latents.
void build_denoiser(lora_host::Graph& g, const Dimensions& dims, const lora_host::Sizes& sizes);

}  // namespace sd35
