// Architectures that share names with Z-Image, so that a wrong file is refused by its name.
#include "denoiser.h"

namespace z_image {

using lora_host::Weights;

std::optional<std::string> relative(const Weights& w) {
  if (!w.first_with_prefix("control_layers.").empty() || !w.first_with_prefix("controlnet_blocks.").empty())
    return "this is a ControlNet (control_layers); LoRAs are trained on the model that it steers";
  if (!w.first_with_prefix("siglip_embedder.").empty())
    return "this is a Z-Image model that also sees images (siglip_embedder); train on Z-Image itself";
  if (w.has("image_index_embedding"))
    return "this is an OmniGen2 model: it tells images apart by image_index_embedding; its plugin is omnigen2";
  if (!w.first_with_prefix("time_caption_embed.").empty())
    return "this is a Lumina 2 model, in a diffusers folder: its text comes from Gemma (time_caption_embed)";
  const bool blocks = w.has("layers.0.attention.qkv.weight") && w.has("context_refiner.0.attention.qkv.weight");
  if (blocks && !w.has("cap_pad_token"))
    return "this is a Lumina 2 model: its text comes from Gemma and nothing fills it up (no cap_pad_token)";
  return std::nullopt;
}

}  // namespace z_image
