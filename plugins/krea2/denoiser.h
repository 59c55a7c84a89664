// The Krea 2 transformer: its dimensions, read from weight shapes, and its graph.
#pragma once

#include "lora_host/lora_host.hpp"

namespace krea2 {

struct Dimensions {
  static constexpr int64_t patch = 2;
  int64_t hidden = 0;
  int64_t head = 0;       // numbers of a head
  int64_t channels = 0;   // of the latents
  int64_t text = 0;       // width of a text state
  int64_t text_head = 0;  // numbers of a head where text states are fused
  int64_t states = 0;     // of each token
  int64_t layerwise = 0;  // blocks over the states of a token
  int64_t refiners = 0;   // blocks over the tokens of a text
  int64_t blocks = 0;     // of text and image
};

// What the transformer is shown beside the prompt.
struct Editing {
  bool references = false;  // reference, and where they are there reference_2 and reference_3
  bool isolated = false;    // these attend to each other alone
};

// Throws lora_host::Failure that names the tensor, the expected and the found shape.
Dimensions read_dimensions(const lora_host::Weights& weights);

// latents [B, H, W, C], text [B, L, states * text] (a token's states side by side), text_mask i32 [B, L] (1 = there;
// those come first), timestep f32 [B] (sigma in 0..1), reference [B, H, W, C], ... -> velocity.
void build_denoiser(lora_host::Graph& g, const Dimensions& dims, const Editing& editing, const lora_host::Sizes& sizes);

}  // namespace krea2
