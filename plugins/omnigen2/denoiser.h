// The transformer of OmniGen2: its dimensions, read from weight shapes, and its graph.
#pragma once

#include <optional>

#include "nn/next_dit.hpp"

namespace omnigen2 {

struct Dimensions {
  static constexpr int64_t patch = 2;
  int64_t channels = 0;            // of the latents
  int64_t text = 0;                // width of the text states
  int64_t references = 0;          // pictures to look at that it can tell apart
  int64_t noise_refiners = 0;      // blocks of the image alone
  int64_t reference_refiners = 0;  // blocks of each reference alone
  int64_t context_refiners = 0;    // blocks of the text alone
  int64_t layers = 0;              // blocks of all
  lora_host::nn::NextDit blocks;   // heads have a third of their width for each rotary axis
};

// Throws lora_host::Failure that names the tensor, the expected and the found shape.
Dimensions read_dimensions(const lora_host::Weights& weights);

// What the weights are instead, where they are those of a known relative.
std::optional<std::string> relative(const lora_host::Weights& weights);

// latents [B, H, W, C], text [B, L, D], text_mask i32 [B, L], timestep f32 [B] (sigma in 0..1), reference, reference_2
// to reference_5 like latents, where there are any -> velocity.
void build_denoiser(lora_host::Graph& g, const Dimensions& dims, const lora_host::Sizes& sizes);

}  // namespace omnigen2
