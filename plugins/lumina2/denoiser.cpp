// The graph of the transformer.
//
//   t = silu(t_embedder(1 - sigma))                      [B, time]: the model's time runs from noise, 0, to data, 1
//   x = x_embedder(patches); noise_refiner blocks
//   c = cap_embedder(rms_norm(text)); context_refiner blocks, which t does not reach
//   layers over x then c, final layer over x: patches of data - noise, the velocity with its sign turned
//
// Blocks are those of nn/next_dit.hpp, modulated by t. The last norm is a layer norm with eps 1e-6.
#include "denoiser.h"

#include "positions.h"

namespace lumina2 {

namespace nn = lora_host::nn;
using lora_host::Graph;
using lora_host::Value;

void build_denoiser(Graph& g, const Dimensions& dims, const lora_host::Sizes& sizes) {
  const int64_t batch = sizes["batch"], height = sizes["height"], width = sizes["width"], given = sizes["text_length"];
  Value latents = g.input("latents", {batch, height, width, dims.channels});
  Value text = g.input("text", {batch, given, dims.text});
  Value text_mask = g.input("text_mask", {batch, given}, LH_I32);
  Value timestep = g.input("timestep", {batch}, LH_F32);

  Value t = g.silu(nn::timestep_embedder(g, g.affine(timestep, -1, 1), 1.0, "t_embedder", "mlp.0", "mlp.2"));
  const int64_t rows = height / Dimensions::patch, columns = width / Dimensions::patch;
  Value there = nn::mask_lengths(g, text_mask);
  // Whatever a mask holds, it is a row of a table.
  Value lengths = g.cast(g.clamp(there, 0, static_cast<double>(given)), LH_I32);
  const Positions at = positions(g, lengths, given, rows, columns, dims.blocks.head_dim);
  Value x = g.linear(nn::patchify_channel_last(g, latents, Dimensions::patch), "x_embedder");  // [B, rows columns, h]
  x = nn::next_dit_blocks(g, "noise_refiner", dims.noise_refiners, dims.blocks, x, t, at.image);

  Value c = g.linear(g.rms_norm(text, "cap_embedder.0", nn::NextDit::eps), "cap_embedder.1");
  c = nn::next_dit_blocks(g, "context_refiner", dims.context_refiners, dims.blocks, c, {}, at.text,
                          g.cast(there, LH_I32));

  Value seen = g.cast(g.affine(there, 1, static_cast<double>(rows * columns)), LH_I32);
  x = nn::next_dit_blocks(g, "layers", dims.layers, dims.blocks, g.concat({x, c}, 1), t, at.both, seen);
  x = g.slice(x, 1, 0, rows * columns);
  Value scale = nn::modulation(g, t, "final_layer.adaLN_modulation.1", 1)[0];
  x = g.linear(g.mul(g.layer_norm(x, 1e-6), g.affine(scale, 1, 1)), "final_layer.linear");
  g.output("output", g.affine(nn::unpatchify_channel_last(g, x, height, width, Dimensions::patch), -1));
}

}  // namespace lumina2
