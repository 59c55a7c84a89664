// Dimensions of an Ideogram 4 transformer and the check that every tensor of it is there with the right shape.
#include "denoiser.h"

namespace ideogram4 {

using lora_host::Failure;
using lora_host::Weights;

namespace {

constexpr int64_t smallest_head = 120;  // its first 60 frequencies are shared by the three axes

void require_block(const Weights& w, const std::string& block, int64_t h, int64_t head) {
  const std::string attention = block + ".attention", mlp = block + ".feed_forward";
  w.require_linear(attention + ".qkv", 3 * h, h, false);
  w.require_linear(attention + ".o", h, h, false);
  for (const char* norm : {".norm_q.weight", ".norm_k.weight"}) w.require(attention + norm, {head});
  const int64_t inner = w.require(mlp + ".w1.weight", {-1, h})[0];
  w.require_linear(mlp + ".w3", inner, h, false);
  w.require_linear(mlp + ".w2", h, inner, false);
  for (const char* norm : {".attention_norm1", ".attention_norm2", ".ffn_norm1", ".ffn_norm2"})
    w.require(block + norm + ".weight", {h});
}

}  // namespace

Dimensions read_dimensions(const Weights& w) {
  Dimensions dims;
  const auto shape = w.require("input_proj.weight", {-1, -1});
  const int64_t h = dims.hidden = shape[0];
  dims.channels = shape[1];
  w.require_linear("input_proj", h, dims.channels);
  dims.text = w.require("llm_cond_norm.weight", {-1})[0];
  w.require_linear("llm_cond_proj", h, dims.text);
  w.require("embed_image_indicator.weight", {2, h});
  w.require_linear("t_embedding.mlp_in", h, h);
  w.require_linear("t_embedding.mlp_out", h, h);
  const int64_t condition = w.require("adaln_proj.weight", {-1, h})[0];
  w.require_linear("adaln_proj", condition, h);

  const std::string norm = "layers.0.attention.norm_q.weight";
  dims.head = w.require(norm, {-1})[0];
  if (dims.head < smallest_head || dims.head % 2 != 0 || h % dims.head != 0)
    throw Failure(LH_E_MODEL, norm + ": expected an even divisor of " + std::to_string(h) + " (input_proj), at least " +
                                  std::to_string(smallest_head) + ", found " + std::to_string(dims.head));
  dims.blocks = w.count("layers.", ".attention.qkv.weight");
  for (int64_t i = 0; i < dims.blocks; ++i) {
    const std::string block = "layers." + std::to_string(i);
    require_block(w, block, h, dims.head);
    w.require_linear(block + ".adaln_modulation", 4 * h, condition);
  }
  w.require_linear("final_layer.linear", dims.channels, h);
  w.require_linear("final_layer.adaln_modulation", h, condition);
  return dims;
}

}  // namespace ideogram4
