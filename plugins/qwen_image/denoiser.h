// The Qwen-Image transformer: its dimensions, read from weight shapes, and its graph.
#pragma once

#include <optional>

#include "lora_host/lora_host.hpp"

namespace qwen_image {

struct Dimensions {
  static constexpr int64_t head_dim = 128;  // rotary axes 16 + 56 + 56
  static constexpr int64_t patch = 2;
  int64_t hidden = 0;    // heads * 128
  int64_t channels = 0;  // of the latents
  int64_t text = 0;      // width of the text states
  int64_t blocks = 0;
};

// Throws lora_host::Failure that names the tensor, the expected and the found shape.
Dimensions read_dimensions(const lora_host::Weights& weights);

// What the weights are instead, where they are those of a known relative.
std::optional<std::string> relative(const lora_host::Weights& weights);

// Which model that edits it is, as model.variant has it, by what stands beside the weights; nothing where that says
// none.
std::optional<std::string> edit_variant(const lora_host::Weights& weights);

// Of a model that edits: whether it is shown references beside the noisy image, and whether these are modulated as at
// timestep 0, since they have no noise.
struct Editing {
  bool references = false, at_zero = false;
};

// latents [B, H, W, C], text [B, L, D], text_mask i32 [B, L] (1 = there; those come first), timestep f32 [B] (sigma in
// 0..1), reference, reference_2 and reference_3 like latents -> velocity.
void build_denoiser(lora_host::Graph& g, const Dimensions& dims, const Editing& editing, const lora_host::Sizes& sizes);

}  // namespace qwen_image
