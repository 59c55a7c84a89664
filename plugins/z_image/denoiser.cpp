// The graph of the Z-Image transformer.
//
//   t   = t_embedder(1000 (1 - sigma))                                    [B, 256]
//   x   = x_embedder(patches), filled up with x_pad_token; noise_refiner blocks
//   c   = cap_embedder(text), filled up with cap_pad_token; context_refiner blocks, which t does not reach
//   layers over x then c, final layer over x: patches of data - noise, the velocity with its sign turned
//
// Blocks are those of nn/next_dit.hpp, modulated by t. The last norm is a layer norm with eps 1e-6.
#include "denoiser.h"

#include "nn/next_dit.hpp"
#include "sequence.h"

namespace z_image {

namespace nn = lora_host::nn;
using lora_host::Graph;
using lora_host::Value;

namespace {

// Patches as tokens [B, n, h], filled up to a multiple of 32.
Value embed_patches(Graph& g, Value latents) {
  Value x = g.linear(nn::patchify_channel_last(g, latents, Dimensions::patch), "x_embedder");
  lora_host::Dims d = g.shape(x);
  const int64_t missing = rounded_up(d[1]) - d[1];
  if (missing == 0) return x;
  Value filling = g.reshape(g.param("x_pad_token"), {1, 1, d[2]});
  return g.concat({x, g.expand(filling, {d[0], missing, d[2]})}, 1);
}

}  // namespace

void build_denoiser(Graph& g, const Dimensions& dims, const lora_host::Sizes& sizes) {
  const int64_t batch = sizes["batch"], height = sizes["height"], width = sizes["width"], given = sizes["text_length"];
  Value latents = g.input("latents", {batch, height, width, dims.channels});
  Value text = g.input("text", {batch, given, dims.text});
  Value text_mask = g.input("text_mask", {batch, given}, LH_I32);
  Value timestep = g.input("timestep", {batch}, LH_F32);

  Value t = nn::timestep_embedder(g, g.affine(timestep, -1, 1), 1000.0, "t_embedder", "mlp.0", "mlp.2");
  const int64_t rows = height / Dimensions::patch, columns = width / Dimensions::patch;
  const int64_t tokens = rounded_up(rows * columns);
  Value x = embed_patches(g, latents);  // [B, tokens, h]
  const Captions captions(g, text_mask);
  const Positions at = positions(g, captions, rows, columns, tokens);
  const nn::NextDit dit = dims.blocks();
  x = nn::next_dit_blocks(g, "noise_refiner", dims.noise_refiners, dit, x, t, at.image);

  Value c = g.linear(g.rms_norm(text, "cap_embedder.0", nn::NextDit::eps), "cap_embedder.1");
  c = captions.fill(c, g.param("cap_pad_token"));  // [B, captions, h]
  c = nn::next_dit_blocks(g, "context_refiner", dims.context_refiners, dit, c, {}, at.text, captions.key_lengths(0));

  x = g.concat({x, c}, 1);
  x = nn::next_dit_blocks(g, "layers", dims.layers, dit, x, t, at.both, captions.key_lengths(tokens));
  x = g.slice(x, 1, 0, rows * columns);
  Value scale = nn::modulation(g, g.silu(t), "final_layer.adaLN_modulation.1", 1)[0];
  x = g.linear(g.mul(g.layer_norm(x, 1e-6), g.affine(scale, 1, 1)), "final_layer.linear");
  g.output("output", g.affine(nn::unpatchify_channel_last(g, x, height, width, Dimensions::patch), -1));
}

}  // namespace z_image
