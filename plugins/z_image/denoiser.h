// The Z-Image transformer: its dimensions, read from weight shapes, and its graph.
#pragma once

#include <optional>

#include "nn/next_dit.hpp"

namespace z_image {

struct Dimensions {
  static constexpr int64_t head_dim = 128;  // rotary axes 32 + 48 + 48
  static constexpr int64_t patch = 2;
  static constexpr int64_t round = 32;  // tokens of the image and of the caption are filled up to a multiple
  int64_t hidden = 0;                   // heads * 128
  int64_t channels = 0;                 // of the latents
  int64_t text = 0;                     // width of the text states
  int64_t noise_refiners = 0;           // blocks of the image alone
  int64_t context_refiners = 0;         // blocks of the caption alone
  int64_t layers = 0;                   // blocks of both
  int64_t time = 0;                     // width of the time embedding

  lora_host::nn::NextDit blocks() const {
    return {.hidden = hidden, .keys = hidden, .head_dim = head_dim, .time = time, .modulation = "adaLN_modulation.0"};
  }
};

// Throws lora_host::Failure that names the tensor, the expected and the found shape.
Dimensions read_dimensions(const lora_host::Weights& weights);

// What the weights are instead, where they are those of a known relative.
std::optional<std::string> relative(const lora_host::Weights& weights);

// latents [B, H, W, C], text [B, L, D], text_mask i32 [B, L], timestep f32 [B] (sigma in 0..1) -> velocity.
void build_denoiser(lora_host::Graph& g, const Dimensions& dims, const lora_host::Sizes& sizes);

}  // namespace z_image
