// UNets of the same layout that are not SDXL, told by their shapes, so that a wrong file is refused by its name.
#include "denoiser.h"

namespace sdxl {

using lora_host::Dims;
using lora_host::Weights;

namespace {

// Length of an axis of a weight, 0 where there is no such weight.
int64_t length(const Weights& w, const std::string& name, size_t axis) {
  std::optional<Dims> dims = w.find(name);
  return dims && axis < dims->size() ? (*dims)[axis] : 0;
}

// Width of the text, from the first transformer on the way down; 0 without any.
int64_t context_width(const Weights& w) {
  for (int64_t block = 1; w.has("input_blocks." + std::to_string(block) + ".0.in_layers.0.weight") ||
                          w.has("input_blocks." + std::to_string(block) + ".0.op.weight");
       ++block) {
    std::string module = "input_blocks." + std::to_string(block) + ".1.transformer_blocks.0.attn2.to_k.weight";
    if (int64_t width = length(w, module, 1); width != 0) return width;
  }
  return 0;
}

}  // namespace

std::optional<std::string> relative(const Weights& w) {
  const int64_t in = length(w, "input_blocks.0.0.weight", 1), label = length(w, "label_emb.0.0.weight", 1);
  const int64_t channels = length(w, "time_embed.0.weight", 1), context = context_width(w);
  const auto text = "text of width " + std::to_string(context);
  if (w.has("edm_mean") || w.has("edm_std"))
    return "this is an EDM model in the manner of Playground 2.5 (tensors edm_mean and edm_std), which is noised by "
           "another law than SDXL";
  if (w.has("edm_vpred.sigma_max") || w.has("edm_vpred.sigma_min"))
    return "this is an EDM model with v-prediction, like CosXL (tensor edm_vpred.sigma_max), which is noised by "
           "another "
           "law than SDXL";
  if (w.has("input_hint_block.0.weight") || w.has("controlnet_cond_embedding.conv_in.weight"))
    return "this is a ControlNet, which steers a UNet and is none by itself";
  if (w.has("input_blocks.1.0.time_stack.in_layers.0.weight") || (in == 8 && label == 768))
    return "this is a video model, like Stable Video Diffusion";
  if (in == 8)
    return "this is a model that edits images, like instruct-pix2pix (8 input channels: latents and those of the "
           "image to edit)";
  if (label == 0) {
    if (context == 768) return "this is a Stable Diffusion 1.x model (" + text + ", no label_emb)";
    if (context == 1024) return "this is a Stable Diffusion 2.x model (" + text + ", no label_emb)";
    return "this is a UNet without label_emb (" + text + "), which no SDXL model is";
  }
  if (channels == 384 && label == 2560)
    return "this is an SDXL refiner (384 channels, " + text + "); LoRAs are trained on the base model";
  if (label == 5632)
    return "this is a Kolors model (label_emb of width 5632, text of ChatGLM), which has another text encoder than "
           "SDXL";
  if (context == 1024)
    return "this is an unCLIP model (" + text + ", label_emb of width " + std::to_string(label) + ")";
  if (in != 4 && in != 9)
    return "this UNet takes " + std::to_string(in) + " channels; SDXL takes 4, or 9 for inpainting";
  // The pooled vector is one of the two encoders' states; in the full model their widths are 768 + 1280.
  const int64_t pooled = label - Dimensions::size_ids * Dimensions::size_id_width;
  if (pooled <= 0 || pooled >= context || (channels == 320 && (context != 2048 || pooled != 1280)))
    return "this UNet takes " + text + " and a label_emb of width " + std::to_string(label) +
           "; SDXL takes 2048 (CLIP-L and CLIP-G) and 2816 (pooled CLIP-G and six sizes)";
  return std::nullopt;
}

}  // namespace sdxl
