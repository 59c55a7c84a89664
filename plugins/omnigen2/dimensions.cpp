// Dimensions of the transformer and the check that every tensor of it is there with the right shape.
#include "denoiser.h"

namespace omnigen2 {

namespace nn = lora_host::nn;
using lora_host::Failure;
using lora_host::Weights;

namespace {

constexpr const char* first_attention = "layers.0.attn.";

// Heads: their width is that of the norms of q and k.
void read_heads(const Weights& w, nn::NextDit& blocks) {
  const std::string attention = first_attention, norm = attention + "norm_q.weight";
  const int64_t head = blocks.head_dim = w.require(norm, {-1})[0];
  if (head < 1 || head % 6 != 0)
    throw Failure(LH_E_MODEL,
                  norm + ": expected a multiple of 6 (pairs on three rotary axes), found " + std::to_string(head));
  const int64_t rows = blocks.keys = w.require(attention + "to_k.weight", {-1, blocks.hidden})[0];
  if (rows < 1 || rows % head != 0 || blocks.hidden % rows != 0)
    throw Failure(LH_E_MODEL, attention + "to_k.weight: expected heads of " + std::to_string(head) +
                                  ", each for as many of the " + std::to_string(blocks.hidden) +
                                  " rows of to_q, found " + std::to_string(rows) + " rows");
}

nn::NextDit names() {
  nn::NextDit blocks;
  blocks.modulation = "norm1.linear";
  blocks.out = "attn.to_out.0";
  blocks.q_norm = "attn.norm_q";
  blocks.k_norm = "attn.norm_k";
  blocks.qkv = {"attn.to_q", "attn.to_k", "attn.to_v"};
  blocks.norm1 = "norm1.norm";
  blocks.unmodulated_norm1 = "norm1";
  blocks.norm2 = "norm2";
  blocks.w1 = "feed_forward.linear_1";
  blocks.w2 = "feed_forward.linear_2";
  blocks.w3 = "feed_forward.linear_3";
  return blocks;
}

}  // namespace

Dimensions read_dimensions(const Weights& w) {
  Dimensions dims;
  nn::NextDit& blocks = dims.blocks = names();
  constexpr int64_t places = Dimensions::patch * Dimensions::patch;
  const lora_host::Dims in = w.require("x_embedder.weight", {-1, -1});
  const int64_t h = blocks.hidden = in[0];
  const int64_t out = w.require("norm_out.linear_2.weight", {-1, h})[0];
  if (in[1] != out || out % places != 0)
    throw Failure(LH_E_MODEL, "x_embedder.weight: expected as many columns as norm_out.linear_2 has rows, " +
                                  std::to_string(out) + " (patches of 2x2), found " + std::to_string(in[1]));
  dims.channels = out / places;
  w.require_linear("x_embedder", h, out);
  w.require_linear("ref_image_patch_embedder", h, out);
  dims.references = w.require("image_index_embedding", {-1, h})[0];
  const std::string embed = "time_caption_embed.", caption = embed + "caption_embedder.",
                    time = embed + "timestep_embedder.linear_";
  dims.text = w.require(caption + "0.weight", {-1})[0];
  w.require_linear(caption + "1", h, dims.text);

  const lora_host::Dims first = w.require(time + "1.weight", {-1, -1});
  blocks.time = w.require(time + "2.weight", {-1, first[0]})[0];
  w.require_linear(time + "1", first[0], first[1]);
  w.require_linear(time + "2", blocks.time, first[0]);
  read_heads(w, blocks);
  dims.noise_refiners = nn::require_next_dit_blocks(w, "noise_refiner", blocks, true);
  dims.reference_refiners = nn::require_next_dit_blocks(w, "ref_image_refiner", blocks, true);
  dims.context_refiners = nn::require_next_dit_blocks(w, "context_refiner", blocks, false);
  dims.layers = nn::require_next_dit_blocks(w, "layers", blocks, true);
  w.require_linear("norm_out.linear_1", h, blocks.time);
  w.require_linear("norm_out.linear_2", out, h);
  return dims;
}

}  // namespace omnigen2
