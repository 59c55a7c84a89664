// The Wan transformer: its dimensions, read from weight shapes, and its graph.
#pragma once

#include <optional>

#include "lora_host/lora_host.hpp"

namespace wan {

struct Dimensions {
  static constexpr int64_t head_dim = 128;  // rotary axes 44 + 42 + 42
  static constexpr int64_t patch = 2;
  static constexpr int64_t frames_of_latent = 4;
  int64_t hidden = 0;    // heads * 128
  int64_t channels = 0;  // of the latents
  int64_t shown = 0;     // channels of what a clip begins with, behind them; 0: text-to-video
  int64_t text = 0;      // width of the text states
  int64_t image = 0;     // width of the states of a picture; 0: it is shown none
  int64_t blocks = 0;
};

// Throws lora_host::Failure that names the tensor, the expected and the found shape.
Dimensions read_dimensions(const lora_host::Weights& weights);

// What the weights are instead, where they are those of a known relative.
std::optional<std::string> relative(const lora_host::Weights& weights);

// Of a diffusers directory: two experts share the noise levels, and its folder `transformer` has the one for noisy
// ones.
bool has_two_experts(const lora_host::Weights& weights);

// latents [B, t, H, W, C], text [B, L, D] (every row is read), timestep f32 [B] (sigma in 0..1) -> velocity. With
// `shown` also first_frame [B, t, H, W, C]: latents of a clip that is grey behind its first frame. With `image` also
// image [B, N, I]: states of a picture. Those of text alone have first_frame and given of nn::FirstFrame.
void build_denoiser(lora_host::Graph& g, const Dimensions& dims, const lora_host::Sizes& sizes);

}  // namespace wan
