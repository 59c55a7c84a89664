// The graph of the first HunyuanVideo's transformer, text-to-video: the blocks of Flux.1 (nn/flux_blocks.hpp), whose
// modulations are linears of
//
//   vec = time_in(1000 t) + guidance_in(1000 guidance) + vector_in(pooled)                      [B, h]
//
// A token is 2 x 2 places of a frame of the latents. Positions have three axes, frame, row and column, of 8, 28 and 28
// pairs with base 256; the text, which is read as nn/hunyuan_text.hpp has it, has none.
#include "denoiser.h"

#include "nn/video_positions.hpp"

namespace hunyuan_video1 {

namespace nn = lora_host::nn;
using lora_host::Graph;
using lora_host::Value;

namespace {

constexpr int64_t patch = Dimensions::patch;

// Tokens [B, t H/2 W/2, h] of latents [B, t H, W, C], whose frames stand one below the other.
Value tokens(Graph& g, const Dimensions& dims, Value latents) {
  Value weight = g.reshape(g.param("img_in.proj.weight"), {dims.hidden, dims.channels * patch * patch});
  return g.linear(nn::patchify_channel_first(g, latents, patch), weight, g.param("img_in.proj.bias"));
}

}  // namespace

void build_denoiser(Graph& g, const Dimensions& dims, const lora_host::Sizes& sizes) {
  const int64_t batch = sizes["batch"], time = sizes["time"], height = sizes["height"], width = sizes["width"];
  const int64_t rows = height / patch, columns = width / patch;
  Value latents = g.input("latents", {batch, time, height, width, dims.channels});
  Value text = g.input("text", {batch, sizes["text_length"], dims.prompt.text});
  Value text_lengths = g.cast(g.input("text_lengths", {batch}, LH_I32), LH_F32);
  Value pooled = g.input("pooled", {batch, dims.pooled});
  Value timestep = g.input("timestep", {batch}, LH_F32), guidance = g.input("guidance", {batch}, LH_F32);

  Value vec = g.add(nn::hunyuan_time(g, timestep, "time_in"), nn::hunyuan_time(g, guidance, "guidance_in"));
  Value activated = g.silu(g.add(vec, nn::embedder(g, pooled, "vector_in", "in_layer", "out_layer")));
  Value refined = nn::hunyuan_refined(g, dims.prompt, text, text_lengths, timestep);
  nn::FluxTransformer transformer(
      g, dims, [&](const nn::FluxPart& part) { return nn::modulation(g, activated, part.linear(), part.vectors()); },
      text_lengths);
  Value below = g.reshape(latents, {batch, time * height, width, dims.channels});
  Value out = transformer.between(
      tokens(g, dims, below), refined,
      nn::video_positions(g, {time, rows, columns}, g.shape(refined)[1], {16, 56, 56}, 256.0), time * rows * columns);
  out = nn::unpatchify_channel_first(g, out, time * height, width, patch);
  g.output("output", g.reshape(out, {batch, time, height, width, dims.channels}));
}

}  // namespace hunyuan_video1
