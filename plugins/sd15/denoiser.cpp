// The graph of Stable Diffusion 1 and 2:
//
//   output = UNet(latents, time_embed(sinusoid(timestep)), text), for inpainting UNet(latents | mask | masked image,
//   ...)
//
// 1 has eight heads at every level, 40, 80 and 160 channels wide, and 1x1 convolutions around its transformers; 2 has
// heads of 64 and linears there, but files of sd-scripts hold its linears as convolutions. So the text tells them
// apart.
#include "denoiser.h"

#include "nn/unet_kin.hpp"

namespace sd15 {

namespace nn = lora_host::nn;
using lora_host::Graph;
using lora_host::Value;
using lora_host::Weights;

nn::UNetLayout read_unet(const Weights& w) {
  constexpr int64_t sd1_heads = 8, as_many_as_are_64_wide = 0;
  const bool second = nn::unet_text_width(w) == sd2_text_width;
  nn::UNetLayout unet = nn::UNetReader(w, second ? as_many_as_are_64_wide : sd1_heads).read();
  w.require_linear("time_embed.0", unet.embedding, w.require("time_embed.0.weight", {-1, -1})[1]);
  w.require_linear("time_embed.2", unet.embedding, unet.embedding);
  return unet;
}

void build_denoiser(Graph& g, const nn::UNetLayout& unet, const lora_host::Sizes& sizes) {
  const int64_t batch = sizes["batch"];
  Value text = g.input("text", {batch, sizes["text_length"], unet.context});
  Value timestep = g.input("timestep", {batch}, LH_F32);
  Value embedding = nn::timestep_embedder(g, timestep, 1.0, "time_embed", "0", "2");
  g.output("output", nn::UNet(g, unet, embedding, text)(nn::unet_latents(g, unet, sizes)));
}

}  // namespace sd15
