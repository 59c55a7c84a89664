// Architectures that grew out of Flux.1 or share its names, so that a wrong file is refused by its name.
#include "denoiser.h"

namespace flux {

using lora_host::Dims;
using lora_host::Weights;

std::optional<std::string> relative(const Weights& w) {
  if (!w.first_with_prefix("distilled_guidance_layer.").empty())
    return "this is a Chroma model: one network gives the modulations of all blocks (distilled_guidance_layer)";
  if (w.has("double_stream_modulation_img.lin.weight") || w.has("double_stream_modulation_img.linear.weight"))
    return "this is a Flux.2 model: all blocks share their modulations (double_stream_modulation_img)";
  if (!w.first_with_prefix("txt_in.individual_token_refiner.").empty())
    return w.has("byt5_in.fc1.weight") && w.first_with_prefix("vision_in.").empty()
               ? "this is HunyuanImage 2.1, which also reads glyphs (byt5_in): its plugin is hunyuan_image"
               : "this is a HunyuanVideo model: its text goes through a token refiner "
                 "(txt_in.individual_token_refiner); the plugins of these are hunyuan_video1 and, of 1.5, "
                 "hunyuan_video";
  if (!w.first_with_prefix("controlnet_blocks.").empty())
    return "this is a ControlNet (controlnet_blocks); LoRAs are trained on the model that it steers";
  std::optional<Dims> in = w.find("img_in.weight"), out = w.find("final_layer.linear.weight");
  if (!in || !out || in->size() != 2 || out->size() != 2 || (*in)[1] == (*out)[0]) return std::nullopt;
  if ((*in)[1] == 6 * (*out)[0]) return std::nullopt;  // Fill
  const std::string columns = "img_in takes " + std::to_string((*in)[1]) + " columns instead of " +
                              std::to_string((*out)[0]) + ", which are those of the latents";
  if ((*in)[1] == 2 * (*out)[0])
    return "this is Flux.1 Depth or Canny, which also takes an image that steers it (" + columns + ")";
  return "this is a variant of Flux.1 with further inputs (" + columns + ")";
}

}  // namespace flux
