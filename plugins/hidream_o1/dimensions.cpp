// Dimensions of the transformer and the check that every tensor of it is there with the right shape.
#include "denoiser.h"

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
    const std::string name = layers + std::to_string(i), attention = name + ".self_attn";
    const int64_t queries = w.require(attention + ".q_proj.weight", {-1, h})[0],
                  keys = w.require(attention + ".k_proj.weight", {-1, h})[0];
    if (keys == 0 || keys % Dimensions::head_dim != 0 || queries % keys != 0)
      throw Failure(LH_E_MODEL, attention + ": " + std::to_string(queries) + " rows of q_proj and " +
                                    std::to_string(keys) + " of k_proj are not groups of heads of 128");
    w.require_linear(attention + ".v_proj", keys, h, false);
    w.require_linear(attention + ".o_proj", h, queries, false);
    for (const char* norm : {".q_norm.weight", ".k_norm.weight"}) w.require(attention + norm, {Dimensions::head_dim});
    const int64_t inner = w.require(name + ".mlp.gate_proj.weight", {-1, h})[0];
    w.require_linear(name + ".mlp.up_proj", inner, h, false);
    w.require_linear(name + ".mlp.down_proj", h, inner, false);
    for (const char* norm : {".input_layernorm.weight", ".post_attention_layernorm.weight"})
      w.require(name + norm, {h});
  }
  return dims;
}

}  // namespace hidream_o1
