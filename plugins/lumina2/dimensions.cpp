// Dimensions of the transformer and the check that every tensor of it is there with the right shape.
#include "denoiser.h"

namespace lumina2 {

namespace nn = lora_host::nn;
using lora_host::Failure;
using lora_host::Weights;

namespace {

// Heads: their width is that of the norms of q and k, and k and v share the rows of qkv that q leaves.
void read_heads(const Weights& w, nn::NextDit& blocks) {
  const std::string attention = "layers.0.attention", norm = attention + ".q_norm.weight";
  const int64_t head = blocks.head_dim = w.require(norm, {-1})[0];
  if (head < 1 || head % 6 != 0)
    throw Failure(LH_E_MODEL,
                  norm + ": expected a multiple of 6 (pairs on three rotary axes), found " + std::to_string(head));
  const int64_t rows = w.require(attention + ".qkv.weight", {-1, blocks.hidden})[0], rest = rows - blocks.hidden;
  blocks.keys = rest / 2;
  if (blocks.hidden % head != 0 || rest <= 0 || rest % (2 * head) != 0 || blocks.hidden % blocks.keys != 0)
    throw Failure(LH_E_MODEL, attention + ".qkv.weight: expected " + std::to_string(blocks.hidden) +
                                  " rows of q and groups of them for k and v, in heads of " + std::to_string(head) +
                                  ", found " + std::to_string(rows) + " rows");
}

}  // namespace

Dimensions read_dimensions(const Weights& w) {
  Dimensions dims;
  nn::NextDit& blocks = dims.blocks;
  blocks.modulation = "adaLN_modulation.1";
  constexpr int64_t places = Dimensions::patch * Dimensions::patch;
  const lora_host::Dims in = w.require("x_embedder.weight", {-1, -1});
  const int64_t h = blocks.hidden = in[0];
  const int64_t out = w.require("final_layer.linear.weight", {-1, h})[0];
  if (in[1] != out || out % places != 0)
    throw Failure(LH_E_MODEL, "x_embedder.weight: expected as many columns as final_layer.linear has rows, " +
                                  std::to_string(out) + " (patches of 2x2), found " + std::to_string(in[1]) +
                                  "; variants that take further images cannot be trained here");
  dims.channels = out / places;
  w.require_linear("x_embedder", h, out);
  dims.text = w.require("cap_embedder.0.weight", {-1})[0];
  w.require_linear("cap_embedder.1", h, dims.text);

  const lora_host::Dims first = w.require("t_embedder.mlp.0.weight", {-1, -1});
  blocks.time = w.require("t_embedder.mlp.2.weight", {-1, first[0]})[0];
  w.require_linear("t_embedder.mlp.0", first[0], first[1]);
  w.require_linear("t_embedder.mlp.2", blocks.time, first[0]);
  read_heads(w, blocks);
  dims.noise_refiners = nn::require_next_dit_blocks(w, "noise_refiner", blocks, true);
  dims.context_refiners = nn::require_next_dit_blocks(w, "context_refiner", blocks, false);
  dims.layers = nn::require_next_dit_blocks(w, "layers", blocks, true);
  w.require_linear("final_layer.adaLN_modulation.1", h, blocks.time);
  w.require_linear("final_layer.linear", out, h);
  return dims;
}

}  // namespace lumina2
