// Dimensions of an AuraFlow transformer and the check that every tensor of it is there with the right shape.
#include <cmath>

#include "denoiser.h"

namespace auraflow {

using lora_host::Failure;
using lora_host::Weights;

namespace {

// Of one kind of tokens in a block; attention: what stands before q, k, v and o.
void require_stream(const Weights& w, int64_t h, const std::string& modulation, const std::string& attention,
                    const std::string& mlp) {
  w.require_linear(modulation, 6 * h, h, false);
  for (const char* part : {"q", "k", "v", "o"}) w.require_linear(attention + part, h, h, false);
  const int64_t inner = w.require(mlp + ".c_fc1.weight", {-1, h})[0];
  w.require_linear(mlp + ".c_fc2", inner, h, false);
  w.require_linear(mlp + ".c_proj", h, inner, false);
}

int64_t blocks_of(const Weights& w, const std::string& kind) {
  const int64_t count = w.count(kind + ".", ".attn.w1q.weight");
  if (count == 0) throw Failure(LH_E_MODEL, "missing tensor " + kind + ".0.attn.w1q.weight");
  return count;
}

int64_t side_of_grid(const Weights& w, int64_t h) {
  const int64_t places = w.require("positional_encoding", {1, -1, h})[1];
  const int64_t side = std::llround(std::sqrt(static_cast<double>(places)));
  if (side < 1 || side * side != places)
    throw Failure(LH_E_MODEL, "positional_encoding: expected a square grid of positions, found " +
                                  std::to_string(places) + " of them");
  return side;
}

}  // namespace

Dimensions read_dimensions(const Weights& w) {
  constexpr int64_t places = Dimensions::patch * Dimensions::patch;
  Dimensions dims;
  const int64_t h = dims.hidden = w.extent("init_x_linear.weight", 0);
  if (h < 1 || h % Dimensions::head_dim != 0)
    throw Failure(LH_E_MODEL,
                  "init_x_linear.weight: expected a multiple of 256 rows (heads of 256), found " + std::to_string(h));
  const int64_t out = w.require("final_linear.weight", {-1, h})[0];
  dims.channels = out / places;
  w.require_linear("init_x_linear", h, dims.channels * places);
  w.require_linear("final_linear", dims.channels * places, h, false);
  w.require_linear("modF.1", 2 * h, h, false);
  w.require_linear("t_embedder.mlp.0", h, w.extent("t_embedder.mlp.0.weight", 1));
  w.require_linear("t_embedder.mlp.2", h, h);
  dims.text = w.require("cond_seq_linear.weight", {h, -1})[1];
  dims.registers = w.require("register_tokens", {1, -1, h})[1];
  dims.grid = side_of_grid(w, h);

  dims.double_blocks = blocks_of(w, "double_layers");
  for (int64_t i = 0; i < dims.double_blocks; ++i) {
    const std::string block = "double_layers." + std::to_string(i);
    require_stream(w, h, block + ".modX.1", block + ".attn.w2", block + ".mlpX");
    require_stream(w, h, block + ".modC.1", block + ".attn.w1", block + ".mlpC");
  }
  dims.single_blocks = blocks_of(w, "single_layers");
  for (int64_t i = 0; i < dims.single_blocks; ++i) {
    const std::string block = "single_layers." + std::to_string(i);
    require_stream(w, h, block + ".modCX.1", block + ".attn.w1", block + ".mlp");
  }
  return dims;
}

}  // namespace auraflow
