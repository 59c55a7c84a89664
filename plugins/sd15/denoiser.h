// The UNet of Stable Diffusion 1 and 2: its dimensions, read from weight shapes, and its graph.
#pragma once

#include "lora_host/lora_host.hpp"
#include "nn/unet.hpp"

namespace sd15 {

// Width of the states of OpenCLIP-H, which Stable Diffusion 2 was trained on. 1 has CLIP-L's, of 768.
constexpr int64_t sd2_text_width = 1024;

// Throws lora_host::Failure that names the tensor, the expected and the found shape.
lora_host::nn::UNetLayout read_unet(const lora_host::Weights& weights);

// latents [B, H, W, 4], text [B, L, D], timestep f32 [B] (0..999), for inpainting mask [B, H, W, 64] and masked_image
// [B, H, W, 4] -> what the model was trained to predict [B, H, W, 4].
void build_denoiser(lora_host::Graph& g, const lora_host::nn::UNetLayout& unet, const lora_host::Sizes& sizes);

}  // namespace sd15
