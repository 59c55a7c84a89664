// Architectures that share names with SD3, so that a wrong file is refused by its name.
#include "denoiser.h"

namespace sd35 {

using lora_host::Dims;
using lora_host::Weights;

std::optional<std::string> relative(const Weights& w) {
  if (w.has("double_layers.0.attn.w1q.weight") || !w.first_with_prefix("joint_transformer_blocks.0.").empty())
    return "this is an AuraFlow model, whose text comes from another encoder (double_layers, single_layers)";
  if (!w.first_with_prefix("controlnet_blocks.").empty())
    return "this is a ControlNet (controlnet_blocks); LoRAs are trained on the model that it steers";
  if (!w.has("joint_blocks.0.context_block.attn.qkv.weight")) return std::nullopt;
  if (!w.has("pos_embed")) return "this is an MMDiT without stored positions (pos_embed), which no SD3 model is";
  std::optional<Dims> in = w.find("x_embedder.proj.weight"), out = w.find("final_layer.linear.weight");
  if (!in || !out || in->size() != 4 || out->size() != 2 || (*in)[2] < 1 || (*in)[3] < 1) return std::nullopt;
  const int64_t channels = (*in)[1], made = (*out)[0] / ((*in)[2] * (*in)[3]);
  if (channels == made) return std::nullopt;
  return "this is a variant of SD3 with further inputs: it takes " + std::to_string(channels) + " channels and makes " +
         std::to_string(made);
}

}  // namespace sd35
