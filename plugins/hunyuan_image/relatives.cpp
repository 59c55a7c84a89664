// Models that share names with HunyuanImage 2.1, so that a wrong file is refused by its name.
#include "denoiser.h"

namespace hunyuan_image {

using lora_host::Dims;
using lora_host::Weights;

std::optional<std::string> relative(const Weights& w) {
  if (w.has("model.layers.0.mlp.gate.wg.weight"))
    return "this is HunyuanImage 3, a language model of experts that makes images itself (mlp.gate.wg)";
  if (w.first_with_prefix("txt_in.individual_token_refiner.").empty()) return std::nullopt;
  if (!w.first_with_prefix("vision_in.").empty() || w.has("cond_type_embedding.weight"))
    return "this is HunyuanVideo 1.5, which also sees images (vision_in)";
  if (!w.first_with_prefix("vector_in.").empty())
    return "this is the first HunyuanVideo, which is told a vector of the whole text (vector_in): its plugin is "
           "hunyuan_video1";
  const std::optional<Dims> in = w.find("img_in.proj.weight"), out = w.find("final_layer.linear.weight");
  if (in && out && in->size() > 2 && (*in)[1] == 2 * (*out)[0])
    return "this is HunyuanImage's refiner, which makes an image anew that it is shown (img_in.proj takes " +
           std::to_string((*in)[1]) + " channels, twice those that it gives); train on HunyuanImage 2.1 itself";
  return std::nullopt;
}

}  // namespace hunyuan_image
