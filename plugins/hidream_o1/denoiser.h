// The transformer of HiDream-O1-Image: a decoder of Qwen3 that has patches of a picture among its tokens.
//
// Weights have the names of the published files below `model.`: language_model.layers.* as in nn/llm.hpp, x_embedder,
// t_embedder1, final_layer2.
#pragma once

#include <cstdint>
#include <string>

#include "lora_host/lora_host.hpp"

namespace hidream_o1 {

struct Dimensions {
  static constexpr int64_t patch = 32, head_dim = 128;
  static constexpr double eps = 1e-6, rope_theta = 5e6;

  int64_t hidden = 0, layers = 0;
};

// Throws where a tensor is missing or has another shape.
Dimensions read_dimensions(const lora_host::Weights& weights);

// Inputs: latents [B, height, width, 3], the noisy picture; text [B, text_length, hidden], embeddings of the prompt's
// tokens; text_mask i32 [B, text_length]; timestep f32 [B], sigma. Output: what the noise was, as loud as it is, less
// the picture.
void build_denoiser(lora_host::Graph& g, const Dimensions& dims, const lora_host::Sizes& sizes);

}  // namespace hidream_o1
