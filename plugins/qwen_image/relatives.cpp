// Models that share Qwen-Image's names, so that a wrong file is refused by its name.
#include "denoiser.h"

namespace qwen_image {

using lora_host::Weights;

namespace {

// Does the configuration of a diffusers folder hold this text?
bool says(const Weights& w, const char* component, const char* document, const char* text) {
  const std::optional<std::string> content = w.document(component, document);
  return content && content->find(text) != std::string::npos;
}

}  // namespace

std::optional<std::string> relative(const Weights& w) {
  for (const char* part : {"controlnet_blocks.", "controlnet_x_embedder."})
    if (!w.first_with_prefix(part).empty())
      return std::string("this is a ControlNet (") + part + "*); LoRAs are trained on the model that it steers";
  if (w.has("time_text_embed.addition_t_embedding.weight") ||
      says(w, "", "model_index.json", "\"QwenImageLayeredPipeline\""))
    return "this is Qwen-Image-Layered, which makes an image in layers (time_text_embed.addition_t_embedding)";
  if (w.has("__index_timestep_zero__") || says(w, "denoiser", "config.json", "\"zero_cond_t\": true") ||
      says(w, "", "model_index.json", "\"QwenImageEdit"))
    return "this is Qwen-Image-Edit, which changes images that it is given; it cannot be trained here: use Qwen-Image";
  return std::nullopt;
}

}  // namespace qwen_image
