// Dimensions of a Z-Image transformer and the check that every tensor of it is there with the right shape.
#include "denoiser.h"

namespace z_image {

using lora_host::Failure;
using lora_host::Weights;

namespace {

// `time` is the width of the time embedding, 0: the block has no modulation.
void require_block(const Weights& w, const std::string& block, int64_t h, int64_t time) {
  const std::string attention = block + ".attention", mlp = block + ".feed_forward";
  const int64_t inner = w.require(mlp + ".w1.weight", {-1, h})[0];
  w.require_linear(attention + ".qkv", 3 * h, h, false);
  w.require_linear(attention + ".out", h, h, false);
  w.require_linear(mlp + ".w2", h, inner, false);
  w.require_linear(mlp + ".w3", inner, h, false);
  for (const char* norm : {".q_norm.weight", ".k_norm.weight"}) w.require(attention + norm, {Dimensions::head_dim});
  for (const char* norm : {".attention_norm1", ".attention_norm2", ".ffn_norm1", ".ffn_norm2"})
    w.require(block + norm + ".weight", {h});
  if (time > 0) w.require_linear(block + ".adaLN_modulation.0", 4 * h, time);
}

int64_t require_blocks(const Weights& w, const std::string& name, int64_t h, int64_t time) {
  const int64_t count = w.count(name + ".", ".attention.qkv.weight");
  if (count == 0) throw Failure(LH_E_MODEL, "missing tensor " + name + ".0.attention.qkv.weight");
  for (int64_t i = 0; i < count; ++i) require_block(w, name + "." + std::to_string(i), h, time);
  return count;
}

}  // namespace

Dimensions read_dimensions(const Weights& w) {
  Dimensions dims;
  const lora_host::Dims in = w.require("x_embedder.weight", {-1, -1});
  const int64_t h = dims.hidden = in[0], places = Dimensions::patch * Dimensions::patch;
  if (h < 1 || h % Dimensions::head_dim != 0)
    throw Failure(LH_E_MODEL,
                  "x_embedder.weight: expected a multiple of 128 rows (heads of 128), found " + std::to_string(h));
  const int64_t out = w.require("final_layer.linear.weight", {-1, h})[0];
  if (in[1] != out || out % places != 0)
    throw Failure(LH_E_MODEL, "x_embedder.weight: expected as many columns as final_layer.linear has rows, " +
                                  std::to_string(out) + " (patches of 2x2), found " + std::to_string(in[1]) +
                                  "; variants that take further images cannot be trained here");
  dims.channels = out / places;
  w.require_linear("x_embedder", h, out);
  dims.text = w.require("cap_embedder.0.weight", {-1})[0];
  w.require_linear("cap_embedder.1", h, dims.text);
  for (const char* token : {"x_pad_token", "cap_pad_token"}) w.require(token, {1, h});

  const lora_host::Dims first = w.require("t_embedder.mlp.0.weight", {-1, -1});
  const int64_t time = w.require("t_embedder.mlp.2.weight", {-1, first[0]})[0];
  w.require_linear("t_embedder.mlp.0", first[0], first[1]);
  w.require_linear("t_embedder.mlp.2", time, first[0]);
  dims.noise_refiners = require_blocks(w, "noise_refiner", h, time);
  dims.context_refiners = require_blocks(w, "context_refiner", h, 0);
  dims.layers = require_blocks(w, "layers", h, time);
  w.require_linear("final_layer.adaLN_modulation.1", h, time);
  w.require_linear("final_layer.linear", out, h);
  return dims;
}

}  // namespace z_image
