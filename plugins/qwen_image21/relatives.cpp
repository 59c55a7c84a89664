// Models that share Qwen-Image 2.1's names, so that a wrong file is refused by its name.
#include "denoiser.h"

namespace qwen_image21 {

using lora_host::Weights;

std::optional<std::string> relative(const Weights& w) {
  if (w.has("txt_norm.weight") && w.has("transformer_blocks.0.img_mod.1.weight"))
    return "this is Qwen-Image, or one of its Edit models, whose blocks have modulations of their own (img_mod): their "
           "plugin is qwen_image";
  for (const char* mlp : {"gate_up", "gate_layer"})
    if (w.has(std::string("control_blocks.0.img_mlp.") + mlp + ".weight"))
      return std::string("this is a ControlNet of Qwen-Image 2.1 (control_blocks.0.img_mlp.") + mlp +
             "); LoRAs are trained on the model that it steers";
  return std::nullopt;
}

}  // namespace qwen_image21
