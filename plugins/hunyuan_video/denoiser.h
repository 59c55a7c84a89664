// The HunyuanVideo 1.5 transformer: its dimensions, read from weight shapes, and its graph.
#pragma once

#include <optional>

#include "nn/flux_blocks.hpp"
#include "nn/hunyuan_text.hpp"

namespace hunyuan_video {

struct Dimensions : lora_host::nn::FluxDimensions {
  int64_t taken = 0;  // channels of a place: of the latents, and of what image-to-video is shown
  int64_t image = 0;  // width of the states of a picture, of image-to-video
  lora_host::nn::HunyuanTextDimensions prompt;
};

// Throws lora_host::Failure that names the tensor, the expected and the found shape.
Dimensions read_dimensions(const lora_host::Weights& weights, bool image_to_video);

// What the weights are instead, where they are those of a known relative.
std::optional<std::string> relative(const lora_host::Weights& weights);

// A diffusers directory says so; the weights do not.
bool is_image_to_video(const lora_host::Weights& weights);

// latents [B, t, H, W, C], text [B, L, D], text_lengths i32 [B], glyphs [B, G, E], glyph_lengths i32 [B] (1: there are
// none), timestep f32 [B] (sigma in 0..1) -> velocity. With `image` also first_frame [B, t, H, W, C], of which the
// first place in time counts, and image [B, N, I], states of a picture.
void build_denoiser(lora_host::Graph& g, const Dimensions& dims, const lora_host::Sizes& sizes);

}  // namespace hunyuan_video
