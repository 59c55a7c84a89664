// Dimensions of an ERNIE-Image transformer and the check that every tensor of it is there with the right shape.
#include "denoiser.h"
#include "nn/layers.hpp"

namespace ernie_image {

using lora_host::Failure;
using lora_host::Weights;

namespace {

void require_layer(const Weights& w, const std::string& layer, int64_t h) {
  const std::string attention = layer + ".self_attention", mlp = layer + ".mlp";
  for (const char* linear : {".to_q", ".to_k", ".to_v", ".to_out.0"}) w.require_linear(attention + linear, h, h, false);
  for (const char* norm : {".norm_q.weight", ".norm_k.weight"}) w.require(attention + norm, {Dimensions::head});
  const int64_t inner = w.require(mlp + ".gate_proj.weight", {-1, h})[0];
  w.require_linear(mlp + ".up_proj", inner, h, false);
  w.require_linear(mlp + ".linear_fc2", h, inner, false);
  for (const char* norm : {".adaLN_sa_ln.weight", ".adaLN_mlp_ln.weight"}) w.require(layer + norm, {h});
}

}  // namespace

Dimensions read_dimensions(const Weights& w) {
  Dimensions dims;
  const int64_t h = dims.hidden = w.require("text_proj.weight", {-1, -1})[0];
  if (h < 1 || h % Dimensions::head != 0)
    throw Failure(LH_E_MODEL,
                  "text_proj.weight: expected a multiple of 128 rows (heads of 128), found " + std::to_string(h));
  dims.text = w.require("text_proj.weight", {h, -1})[1];
  dims.channels = w.require("final_linear.weight", {-1, h})[0];
  w.require_linear("final_linear", dims.channels, h);
  lora_host::nn::require_pointwise(w, "x_embedder.proj", h, dims.channels);
  w.require("x_embedder.proj.bias", {h});

  w.require_linear("time_embedding.linear_1", h, w.require("time_embedding.linear_1.weight", {h, -1})[1]);
  w.require_linear("time_embedding.linear_2", h, h);
  w.require_linear("adaLN_modulation.1", 6 * h, h);
  w.require_linear("final_norm.linear", 2 * h, h);
  dims.layers = w.count("layers.", ".self_attention.to_q.weight");
  for (int64_t i = 0; i < std::max<int64_t>(dims.layers, 1); ++i) require_layer(w, "layers." + std::to_string(i), h);
  return dims;
}

}  // namespace ernie_image
