// Models that share Chroma's names, so that a wrong file is refused by its name.
#include "denoiser.h"

namespace chroma {

using lora_host::Weights;

std::optional<std::string> relative(const Weights& w) {
  const bool approximator = !w.first_with_prefix("distilled_guidance_layer.").empty();
  if (!approximator && w.has("double_blocks.0.img_mod.lin.weight"))
    return "this is a Flux.1 model: its blocks have modulations of their own (double_blocks.0.img_mod.lin)";
  return std::nullopt;
}

}  // namespace chroma
