// Architectures that share names with OmniGen2, so that a wrong file is refused by its name.
#include "denoiser.h"

namespace omnigen2 {

using lora_host::Weights;

std::optional<std::string> relative(const Weights& w) {
  if (!w.first_with_prefix("double_stream_layers.").empty() || !w.first_with_prefix("single_stream_layers.").empty())
    return "this is a Boogu model: it has layers of two streams (double_stream_layers, single_stream_layers)";
  if (w.has("time_caption_embed.caption_embedder.0.weight") && w.first_with_prefix("ref_image_refiner.").empty())
    return "this is a Lumina 2 model in the names of diffusers: it sees no pictures (no ref_image_refiner); its plugin "
           "is lumina2";
  return std::nullopt;
}

}  // namespace omnigen2
