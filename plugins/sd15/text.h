// The text encoder of Stable Diffusion 1 (CLIP-L) and 2 (OpenCLIP-H), and from which of its layers text is taken.
#pragma once

#include <string>

#include "lora_host/lora_host.hpp"
#include "nn/clip.hpp"

namespace sd15 {

struct TextEncoder {
  static constexpr const char* prefix = "clip:";
  int64_t width = 0;
  lora_host::nn::ClipOptions options;
};

// Throws lora_host::Failure where a tensor is missing, or `model.clip_skip` leaves no layer.
TextEncoder read_text_encoder(const lora_host::Weights& weights);

// clip.input_ids i32 [B rows, L] -> text [B, L', width]: states of the layer, behind the final norm; rows are joined.
void build_conditioner(lora_host::Graph& g, const TextEncoder& encoder, const lora_host::Sizes& sizes);

}  // namespace sd15
