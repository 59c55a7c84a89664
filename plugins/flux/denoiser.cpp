// The graph of the Flux.1 transformer. The blocks (nn/flux_blocks.hpp) have a linear each that makes their modulation
// of
//
//   vec = time_in(1000 t) [+ guidance_in(1000 guidance)] + vector_in(pooled)                    [B, h]
//
// A guidance below 0 is none: its term is left out, for models that were trained without.
#include "denoiser.h"

namespace flux {

namespace nn = lora_host::nn;
using lora_host::Graph;
using lora_host::Value;

void build_denoiser(Graph& g, const Dimensions& dims, const lora_host::Sizes& sizes, bool reference) {
  int64_t batch = sizes["batch"], height = sizes["height"], width = sizes["width"], length = sizes["text_length"];
  Value latents = g.input("latents", {batch, height, width, dims.channels});
  Value text = g.input("text", {batch, length, dims.text});
  Value pooled = g.input("pooled", {batch, dims.pooled});
  Value timestep = g.input("timestep", {batch}, LH_F32);

  Value vec = nn::timestep_embedder(g, timestep, 1000.0, "time_in", "in_layer", "out_layer");
  if (dims.guidance) {
    Value guidance = g.input("guidance", {batch}, LH_F32);
    Value term = nn::timestep_embedder(g, guidance, 1000.0, "guidance_in", "in_layer", "out_layer");
    Value there = g.greater_equal(guidance, g.constant({1}, std::vector<float>{0.0f}));  // 0 or 1
    vec = g.add(vec, g.mul(term, g.cast(g.reshape(there, {batch, 1}), LH_FLOAT)));
  }
  vec = g.add(vec, nn::embedder(g, pooled, "vector_in", "in_layer", "out_layer"));
  Value activated = g.silu(vec);  // every modulation starts with it
  nn::FluxTransformer transformer(
      g, dims, [&](const nn::FluxPart& part) { return nn::modulation(g, activated, part.linear(), part.vectors()); });
  // Packed into patches, these are all values of the latents', then of the image's, then of the mask's.
  if (dims.fill)
    latents = g.concat({latents, g.input("masked_image", {batch, height, width, dims.channels}),
                        g.input("mask", {batch, height, width, Dimensions::mask_pixels})},
                       -1);
  std::vector<Value> further;
  if (reference) further.push_back(g.input("reference", {batch, height, width, dims.channels}));
  g.output("output", transformer(latents, text, further));
}

}  // namespace flux
