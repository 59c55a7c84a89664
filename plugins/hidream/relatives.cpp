// Models that share names with HiDream-I1, so that a wrong folder is refused by its name.
#include "denoiser.h"

namespace hidream {

std::optional<std::string> relative(const lora_host::Weights& w) {
  // Its tensors are HiDream-I1's.
  if (w.document("", "model_index.json").value_or("").find("HiDreamImageEditingPipeline") != std::string::npos)
    return "this is HiDream-E1, which is shown the image that it changes (model_index.json); HiDream-I1 is trained "
           "here";
  return std::nullopt;
}

}  // namespace hidream
