// Models that share names with AuraFlow, so that a wrong file is refused by its name.
#include "denoiser.h"

namespace auraflow {

std::optional<std::string> relative(const lora_host::Weights& w) {
  if (!w.first_with_prefix("controlnet_blocks.").empty() || !w.first_with_prefix("controlnet_x_embedder.").empty())
    return "this is a ControlNet (controlnet_blocks); LoRAs are trained on the model that it steers";
  if (w.has("double_layers.0.attn.q_norm1.weight") || w.has("single_layers.0.attn.q_norm1.weight"))
    return "this is a relative of AuraFlow whose norms of q and k have weights (attn.q_norm1); AuraFlow's have none";
  return std::nullopt;
}

}  // namespace auraflow
