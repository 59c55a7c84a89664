// Models that share Flux.2's names, so that a wrong file is refused by its name.
#include "flux2.h"

namespace flux2 {

using lora_host::Dims;
using lora_host::Weights;

std::optional<std::string> relative(const Weights& w) {
  if (!w.first_with_prefix("control_transformer_blocks.").empty() || !w.first_with_prefix("controlnet_blocks.").empty())
    return "this is a ControlNet (control_transformer_blocks); LoRAs are trained on the model that it steers";
  if (!w.first_with_prefix("early_stream_modulations.").empty())
    return "this is a Flux.3 model: each kind of token has modulations of its own (early_stream_modulations)";
  if (w.has("double_blocks.0.img_mod.lin.weight"))
    return "this is a Flux.1 model (Kontext, Fill, Depth and Canny among them): its blocks have modulations of their "
           "own (double_blocks.0.img_mod.lin)";
  if (!w.first_with_prefix("distilled_guidance_layer.").empty())
    return "this is a Chroma model: one network gives the modulations of all blocks (distilled_guidance_layer)";
  return std::nullopt;
}

}  // namespace flux2
