// Models that share names with HunyuanVideo 1.5, so that a wrong file is refused by its name.
#include "denoiser.h"

namespace hunyuan_video {

using lora_host::Dims;
using lora_host::Weights;

std::optional<std::string> relative(const Weights& w) {
  if (!w.has("cond_type_embedding.weight") || w.first_with_prefix("vision_in.").empty()) return std::nullopt;
  const std::string end = "; text-to-video and image-to-video models are trained here";
  if (!w.first_with_prefix("time_r_in.").empty())
    return "this is HunyuanVideo 1.5's super-resolution, which is told where a step ends (time_r_in.*)" + end;
  const Dims in = w.find("img_in.proj.weight").value_or(Dims{}),
             out = w.find("final_layer.linear.weight").value_or(Dims{});
  if (in.size() > 1 && !out.empty() && in[1] > 2 * out[0] + 1)
    return "this is HunyuanVideo 1.5's super-resolution, which is shown a smaller video (img_in.proj takes " +
           std::to_string(in[1]) + " channels)" + end;
  return std::nullopt;
}

bool is_image_to_video(const Weights& w) {
  const std::string index = w.document("", "model_index.json").value_or("");
  return index.find("HunyuanVideo15ImageToVideoPipeline") != index.npos;
}

}  // namespace hunyuan_video
