// Dimensions of the transformer and the check that every tensor of it is there with the right shape.
#include "denoiser.h"
#include "nn/llm.hpp"

namespace hidream_o1 {

using lora_host::Failure;
using lora_host::Weights;

Dimensions read_dimensions(const Weights& w) {
  constexpr int64_t pixels = 3 * Dimensions::patch * Dimensions::patch;
  Dimensions dims;
  const int64_t h = dims.hidden = w.require("final_layer2.linear.weight", {pixels, -1})[1];
  w.require("final_layer2.linear.bias", {pixels});
  const int64_t narrow = w.require("x_embedder.proj1.weight", {-1, pixels})[0];
  w.require_linear("x_embedder.proj2", h, narrow);
  w.require_linear("t_embedder1.mlp.0", h, w.require("t_embedder1.mlp.0.weight", {h, -1})[1]);
  w.require_linear("t_embedder1.mlp.2", h, h);
  w.require("language_model.norm.weight", {h});
  w.require("language_model.embed_tokens.weight", {-1, h});

  const std::string layers = "language_model.layers.";
  dims.layers = w.count(layers, ".self_attn.q_proj.weight");
  if (dims.layers == 0) throw Failure(LH_E_MODEL, "missing tensor " + layers + "0.self_attn.q_proj.weight");
  for (int64_t i = 0; i < dims.layers; ++i) {
    const std::string name = layers + std::to_string(i);
    lora_host::nn::require_llm_layer(w, name, h, Dimensions::head_dim);
    for (const char* norm : {".self_attn.q_norm.weight", ".self_attn.k_norm.weight"})
      w.require(name + norm, {Dimensions::head_dim});
  }
  return dims;
}

}  // namespace hidream_o1
