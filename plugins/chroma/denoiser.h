// The Chroma transformer: its dimensions, read from weight shapes, and its graph.
#pragma once

#include <optional>

#include "nn/flux_blocks.hpp"
#include "pixel_head.h"

namespace chroma {

struct Dimensions : lora_host::nn::FluxDimensions {
  int64_t approximator_layers = 0;  // of the network that makes the modulation
  int64_t time = 0;  // widths of the sinusoids that it is given: a quarter of its input each for the time
                     // and the guidance, half for the index
  std::optional<PixelHead> pixels = {};  // of Chroma1-Radiance, whose latents are the picture itself

  // Modulation vectors: 3 for each single block, 6 for each stream of a double block, 2 for the final layer.
  int64_t vectors() const { return 3 * single_blocks + 12 * double_blocks + 2; }
  // Number of a part's first one: single blocks, image streams, text streams, final layer.
  int64_t first_vector(const lora_host::nn::FluxPart& part) const;
};

// Throws lora_host::Failure that names the tensor, the expected and the found shape.
Dimensions read_dimensions(const lora_host::Weights& weights);

// What the weights are instead, where they are those of a known relative.
std::optional<std::string> relative(const lora_host::Weights& weights);

// latents [B, H, W, C], of pictures themselves f32, text [B, L, D], text_mask i32 [B, L] (1 = there; those come first),
// timestep f32 [B] (sigma in 0..1) -> velocity.
void build_denoiser(lora_host::Graph& g, const Dimensions& dims, const lora_host::Sizes& sizes);

}  // namespace chroma
