// Models whose denoiser is a UNet of nn/unet.hpp, told from each other by their shapes: so that a plugin takes its own
// and refuses others by name.
#pragma once

#include <optional>
#include <string>

#include "lora_host/lora_host.hpp"

namespace lora_host::nn {

enum class UNetKind { sd1, sd2, sdxl, other };

struct UNetKin {
  UNetKind kind = UNetKind::other;
  std::string what;  // "this is an SDXL refiner (...)"
};

namespace unet_kin {

// Length of an axis of a weight, 0 where there is no such weight.
inline int64_t length(const Weights& w, const std::string& name, size_t axis) {
  std::optional<Dims> dims = w.find(name);
  return dims && axis < dims->size() ? (*dims)[axis] : 0;
}

}  // namespace unet_kin

// Width of the text, from the first transformer on the way down; 0 without any.
inline int64_t unet_text_width(const Weights& w) {
  for (int64_t block = 1; w.has("input_blocks." + std::to_string(block) + ".0.in_layers.0.weight") ||
                          w.has("input_blocks." + std::to_string(block) + ".0.op.weight");
       ++block) {
    std::string module = "input_blocks." + std::to_string(block) + ".1.transformer_blocks.0.attn2.to_k.weight";
    if (int64_t width = unet_kin::length(w, module, 1); width != 0) return width;
  }
  return 0;
}

// Six size ids of 256 numbers each stand beside the pooled vector in what label_emb of SDXL takes.
inline constexpr int64_t size_ids_width = 6 * 256;

// Widths of published models tell; of UNets that are not 320 channels wide, which are smaller than any of them, what
// these have in common does.
inline UNetKin kin_of_unet(const Weights& w) {
  using unet_kin::length;
  const int64_t in = length(w, "input_blocks.0.0.weight", 1), label = length(w, "label_emb.0.0.weight", 1);
  const int64_t channels = length(w, "time_embed.0.weight", 1), context = unet_text_width(w);
  const auto text = "text of width " + std::to_string(context);
  const auto other = [](const std::string& what) { return UNetKin{UNetKind::other, what}; };
  if (w.has("edm_mean") || w.has("edm_std"))
    return other(
        "this is an EDM model in the manner of Playground 2.5 (tensors edm_mean and edm_std), which is noised by "
        "another law than SDXL");
  if (w.has("edm_vpred.sigma_max") || w.has("edm_vpred.sigma_min"))
    return other(
        "this is an EDM model with v-prediction, like CosXL (tensor edm_vpred.sigma_max), which is noised by another "
        "law than SDXL");
  if (w.has("input_hint_block.0.weight") || w.has("controlnet_cond_embedding.conv_in.weight"))
    return other("this is a ControlNet, which steers a UNet and is none by itself");
  if (w.has("input_blocks.1.0.time_stack.in_layers.0.weight") || (in == 8 && label == 768))
    return other("this is a video model, like Stable Video Diffusion");
  if (in == 8)
    return other(
        "this is a model that edits images, like instruct-pix2pix (8 input channels: latents and those of the image to "
        "edit)");
  if (in == 5 && label == 0)
    return other("this is a model that is told depth, like Stable Diffusion 2 depth (5 input channels)");
  if (in == 7 && (label == 0 || w.has("label_emb.weight")))
    return other("this is a model that enlarges images, like Stable Diffusion x4 (7 input channels)");
  if (in != 4 && in != 9)
    return other("this UNet takes " + std::to_string(in) + " channels; 4 are latents, 9 are those of inpainting");
  if (label == 0) {
    const std::string described = " (" + text + ", no label_emb)";
    if (context == 1024) return {UNetKind::sd2, "this is a Stable Diffusion 2.x model" + described};
    if (context == 768 || (channels != 320 && context != 0))
      return {UNetKind::sd1, "this is a Stable Diffusion 1.x model" + described};
    return other("this is a UNet without label_emb (" + text + "), which no model that is trained here is");
  }
  if (channels == 384 && label == 2560)
    return other("this is an SDXL refiner (384 channels, " + text + "); LoRAs are trained on the base model");
  if (label == 5632)
    return other(
        "this is a Kolors model (label_emb of width 5632, text of ChatGLM), which has another text encoder than SDXL");
  if (context == 1024)
    return other("this is an unCLIP model (" + text + ", label_emb of width " + std::to_string(label) + ")");
  // The pooled vector is one of the two encoders' states; in the full model their widths are 768 + 1280.
  const int64_t pooled = label - size_ids_width;
  if (pooled <= 0 || pooled >= context || (channels == 320 && (context != 2048 || pooled != 1280)))
    return other("this UNet takes " + text + " and a label_emb of width " + std::to_string(label) +
                 "; SDXL takes 2048 (CLIP-L and CLIP-G) and 2816 (pooled CLIP-G and six sizes)");
  return {UNetKind::sdxl, "this is an SDXL model (" + text + ", label_emb of width " + std::to_string(label) + ")"};
}

}  // namespace lora_host::nn
