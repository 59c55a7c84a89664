// Models that share Qwen-Image's names: those that edit are told apart, and others are refused by their name.
#include "denoiser.h"

namespace qwen_image {

using lora_host::Weights;

namespace {

// Does a document of a diffusers folder have this key with a value that begins so?
bool says(const Weights& w, const char* component, const char* document, const char* key, const char* value) {
  const std::string text = w.document(component, document).value_or("");
  const std::string quoted = std::string("\"") + key + "\"";
  size_t at = text.find(quoted);
  if (at != text.npos) at = text.find_first_not_of(": \t\r\n", at + quoted.size());
  return at != text.npos && text.substr(at).starts_with(value);
}

bool is_pipeline(const Weights& w, const char* name) {
  return says(w, "", "model_index.json", "_class_name", (std::string("\"") + name).c_str());
}

}  // namespace

std::optional<std::string> relative(const Weights& w) {
  for (const char* part : {"controlnet_blocks.", "controlnet_x_embedder.", "control_blocks.", "control_img_in."})
    if (!w.first_with_prefix(part).empty())
      return std::string("this is a ControlNet (") + part + "*); LoRAs are trained on the model that it steers";
  if (w.has("time_text_embed.addition_t_embedding.weight") || is_pipeline(w, "QwenImageLayered"))
    return "this is Qwen-Image-Layered, which makes an image in layers (time_text_embed.addition_t_embedding)";
  if (w.has("txt_in.text_norm.weight"))
    return "this is Qwen-Image 2.1, whose text and image are one stream (txt_in.text_norm): its plugin is qwen_image21";
  return std::nullopt;
}

std::optional<std::string> edit_variant(const Weights& w) {
  // The mark of single files, an empty tensor, and the setting of folders mean the same.
  if (w.has("__index_timestep_zero__") || says(w, "denoiser", "config.json", "zero_cond_t", "true")) return "edit-2511";
  if (is_pipeline(w, "QwenImageEditPlus")) return "edit-2509";
  if (is_pipeline(w, "QwenImageEdit")) return "edit";
  return std::nullopt;
}

}  // namespace qwen_image
