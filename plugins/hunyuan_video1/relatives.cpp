// Models that share names with the first HunyuanVideo, so that a wrong file is refused by its name.
#include "denoiser.h"

namespace hunyuan_video1 {

using lora_host::Dims;
using lora_host::Weights;

std::optional<std::string> relative(const Weights& w) {
  if (w.first_with_prefix("txt_in.individual_token_refiner.").empty() || w.first_with_prefix("vector_in.").empty())
    return std::nullopt;
  const std::string end = "; HunyuanVideo's text-to-video is trained here";
  for (const char* part : {"clean_x_embedder.", "image_projection."})
    if (!w.first_with_prefix(part).empty())
      return "this is FramePack, which is shown the frames before those that it makes (" + std::string(part) + "*)" +
             end;
  // Of one kind of image-to-video the tensors are those of text-to-video.
  const std::string index = w.document("", "model_index.json").value_or("");
  const std::string config = w.document("denoiser", "config.json").value_or("");
  if (index.find("ImageToVideoPipeline") != index.npos)
    return "this is HunyuanVideo's image-to-video (model_index.json)" + end;
  for (const std::string kind : {"\"token_replace\"", "\"latent_concat\""})
    if (config.find(kind) != config.npos)
      return "this is HunyuanVideo's image-to-video (config.json: image_condition_type " + kind + ")" + end;
  const Dims in = w.find("img_in.proj.weight").value_or(Dims{}),
             out = w.find("final_layer.linear.weight").value_or(Dims{});
  const int64_t latents = out.empty() ? 0 : out[0] / (Dimensions::patch * Dimensions::patch);
  if (in.size() > 1 && latents > 0 && in[1] > latents)
    return "this is an image-to-video model of HunyuanVideo or SkyReels, which is shown what a video begins with "
           "(img_in.proj takes " +
           std::to_string(in[1]) + " channels instead of " + std::to_string(latents) + ")" + end;
  return std::nullopt;
}

}  // namespace hunyuan_video1
