// Dimensions of an Ideogram 4 transformer and the check that every tensor of it is there with the right shape.
#include "denoiser.h"

namespace ideogram4 {

namespace nn = lora_host::nn;
using lora_host::Failure;
using lora_host::Weights;

namespace {

constexpr int64_t smallest_head = 120;  // its first 60 frequencies are shared by the three axes

}  // namespace

Dimensions read_dimensions(const Weights& w) {
  Dimensions dims;
  const auto shape = w.require("input_proj.weight", {-1, -1});
  nn::NextDit& layer = dims.layer;
  layer.modulation = "adaln_modulation", layer.out = "attention.o";
  layer.q_norm = "attention.norm_q", layer.k_norm = "attention.norm_k";
  const int64_t h = layer.hidden = layer.keys = shape[0];
  dims.channels = shape[1];
  w.require_linear("input_proj", h, dims.channels);
  dims.text = w.require("llm_cond_norm.weight", {-1})[0];
  w.require_linear("llm_cond_proj", h, dims.text);
  w.require("embed_image_indicator.weight", {2, h});
  w.require_linear("t_embedding.mlp_in", h, h);
  w.require_linear("t_embedding.mlp_out", h, h);
  const int64_t condition = layer.time = w.require("adaln_proj.weight", {-1, h})[0];
  w.require_linear("adaln_proj", condition, h);

  const std::string norm = "layers.0.attention.norm_q.weight";
  const int64_t head = layer.head_dim = w.require(norm, {-1})[0];
  if (head < smallest_head || head % 2 != 0 || h % head != 0)
    throw Failure(LH_E_MODEL, norm + ": expected an even divisor of " + std::to_string(h) + " (input_proj), at least " +
                                  std::to_string(smallest_head) + ", found " + std::to_string(head));
  dims.layers = nn::require_next_dit_blocks(w, "layers", layer, true);
  w.require_linear("final_layer.linear", dims.channels, h);
  w.require_linear("final_layer.adaln_modulation", h, condition);
  return dims;
}

}  // namespace ideogram4
