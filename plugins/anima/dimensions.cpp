// Dimensions of Anima's transformer and the check that every tensor of it is there with the right shape.
#include "denoiser.h"

namespace anima {

using lora_host::Failure;
using lora_host::Weights;

namespace {

// `times` h rows of a modulation, through a narrow waist.
void require_modulation(const Weights& w, const std::string& module, int64_t times, int64_t h) {
  const int64_t waist = w.require(module + ".1.weight", {-1, h})[0];
  w.require_linear(module + ".2", times * h, waist, false);
}

void require_block(const Weights& w, const std::string& block, int64_t h, int64_t text) {
  for (const auto& [attention, seen] : {std::pair{".self_attn", h}, std::pair{".cross_attn", text}}) {
    for (const char* linear : {".q_proj", ".output_proj"}) w.require_linear(block + attention + linear, h, h, false);
    for (const char* linear : {".k_proj", ".v_proj"}) w.require_linear(block + attention + linear, h, seen, false);
    for (const char* norm : {".q_norm.weight", ".k_norm.weight"})
      w.require(block + attention + norm, {Dimensions::head_dim});
  }
  const int64_t inner = w.require(block + ".mlp.layer1.weight", {-1, h})[0];
  w.require_linear(block + ".mlp.layer2", h, inner, false);
  for (const char* part : {"self_attn", "cross_attn", "mlp"})
    require_modulation(w, block + ".adaln_modulation_" + part, 3, h);
}

}  // namespace

Dimensions read_dimensions(const Weights& w) {
  Dimensions dims;
  constexpr int64_t places = Dimensions::patch * Dimensions::patch;
  const lora_host::Dims in = w.require("x_embedder.proj.1.weight", {-1, -1});
  const int64_t h = dims.hidden = in[0], out = w.require("final_layer.linear.weight", {-1, h})[0];
  if (h < 1 || h % Dimensions::head_dim != 0)
    throw Failure(LH_E_MODEL, "x_embedder.proj.1.weight: expected a multiple of 128 rows (heads of 128), found " +
                                  std::to_string(h));
  if (out % places != 0 || in[1] != out + places)
    throw Failure(LH_E_MODEL,
                  "x_embedder.proj.1.weight: expected " + std::to_string(out + places) +
                      " columns (patches of 2x2, the rows of final_layer.linear and a channel for padding), "
                      "found " +
                      std::to_string(in[1]));
  dims.channels = out / places;
  dims.text = w.require("blocks.0.cross_attn.k_proj.weight", {h, -1})[1];
  w.require_linear("t_embedder.1.linear_1", h, h, false);
  w.require_linear("t_embedder.1.linear_2", 3 * h, h, false);
  w.require("t_embedding_norm.weight", {h});
  dims.blocks = w.count("blocks.", ".mlp.layer1.weight");
  for (int64_t i = 0; i < std::max<int64_t>(dims.blocks, 1); ++i)
    require_block(w, "blocks." + std::to_string(i), h, dims.text);
  require_modulation(w, "final_layer.adaln_modulation", 2, h);
  return dims;
}

}  // namespace anima
