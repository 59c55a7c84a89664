// Architectures that share names with Lumina 2, so that a wrong file is refused by its name.
#include "denoiser.h"

namespace lumina2 {

using lora_host::Weights;

std::optional<std::string> relative(const Weights& w) {
  if (w.has("cap_pad_token")) return "this is a Z-Image model: it fills its text up (cap_pad_token)";
  if (!w.first_with_prefix("clip_text_pooled_proj.").empty())
    return "this is a NewBie model, whose text comes from Gemma 3 and a CLIP (clip_text_pooled_proj)";
  if (!w.first_with_prefix("ref_image_refiner.").empty() || w.has("image_index_embedding"))
    return "this is an OmniGen2 model, which also sees images (ref_image_refiner): its plugin is omnigen2";
  return std::nullopt;
}

}  // namespace lumina2
