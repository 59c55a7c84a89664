// The recipe of a UNet, put together of parts: what it gives, what it is told, and what its variants share.
#pragma once

#include <array>
#include <string>

#include "nn/prediction.hpp"

namespace lora_host::nn {

// Texts of YAML: lines that stand below a member at the end of one are its.
struct UNetRecipeParts {
  std::array<const char*, prediction_names.size()> predictions;  // objective, noise_schedule, sampling
  const char* inputs;                                            // ends in `inputs`
  const char* shared;                                            // ends in `metadata`
};

// architecture: what the metadata of LoRA files say that they are for, "stable-diffusion-xl-v1-base".
inline std::string unet_recipe(const UNetRecipeParts& parts, Prediction prediction, bool inpaints,
                               const std::string& architecture) {
  const bool noise = prediction == Prediction::epsilon;
  std::string variant = noise && inpaints ? "" : name_of(prediction);
  if (inpaints) variant += noise ? "inpaint" : "-inpaint";
  std::string text = "variant: " + variant + "\n" + parts.predictions[static_cast<size_t>(prediction)] + parts.inputs;
  if (inpaints)
    text +=
        "  mask: {source: inpaint.mask}\n"
        "  masked_image: {source: inpaint.image}\n";
  return text + parts.shared + "  modelspec.architecture: " + architecture +
         "/lora\n  modelspec.prediction_type: " + (noise ? "epsilon" : "v") + "\n";
}

}  // namespace lora_host::nn
