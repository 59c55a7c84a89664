// Dimensions of an SD3 transformer and the check that every tensor of it is there with the right shape.
#include <cmath>

#include "denoiser.h"

namespace sd35 {

using lora_host::Failure;
using lora_host::Weights;

namespace {

[[noreturn]] void wrong(const std::string& text) { throw Failure(LH_E_MODEL, text); }

void require_attention(const Weights& w, const std::string& module, const Dimensions& dims, bool proj) {
  w.require_linear(module + ".qkv", 3 * dims.hidden, dims.hidden);
  if (proj) w.require_linear(module + ".proj", dims.hidden, dims.hidden);
  for (const char* norm : {".ln_q.weight", ".ln_k.weight"}) {
    if (dims.qk_norm) w.require(module + norm, {Dimensions::head_dim});
    if (!dims.qk_norm && w.has(module + norm))
      wrong(module + norm + ": block 0 has no such norm, so this block cannot have one");
  }
}

// One stream of a block. The text of the last one ends at its attention.
void require_stream(const Weights& w, const std::string& stream, const Dimensions& dims, int64_t pieces) {
  const int64_t h = dims.hidden;
  w.require_linear(stream + ".adaLN_modulation.1", pieces * h, h);
  require_attention(w, stream + ".attn", dims, pieces > 2);
  if (pieces > 6) require_attention(w, stream + ".attn2", dims, true);
  if (pieces == 2) return;
  int64_t inner = w.require(stream + ".mlp.fc1.weight", {-1, h})[0];
  w.require_linear(stream + ".mlp.fc1", inner, h);
  w.require_linear(stream + ".mlp.fc2", h, inner);
}

void require_embedder(const Weights& w, const std::string& module, int64_t hidden, int64_t in) {
  w.require_linear(module + ".mlp.0", hidden, in);
  w.require_linear(module + ".mlp.2", hidden, hidden);
}

int64_t side_of_grid(const Weights& w, int64_t hidden) {
  int64_t places = w.require("pos_embed", {1, -1, hidden})[1];
  auto side = static_cast<int64_t>(std::llround(std::sqrt(static_cast<double>(places))));
  if (side < 1 || side * side != places)
    wrong("pos_embed: expected a square grid of positions, found " + std::to_string(places) + " of them");
  return side;
}

}  // namespace

Dimensions read_dimensions(const Weights& w) {
  Dimensions dims;
  lora_host::Dims in = w.require("x_embedder.proj.weight", {-1, -1, -1, -1});
  int64_t h = dims.hidden = in[0];
  dims.channels = in[1];
  dims.patch = in[2];
  if (h < 1 || h % Dimensions::head_dim != 0)
    wrong("x_embedder.proj.weight: expected a multiple of 64 rows (heads of 64), found " + std::to_string(h));
  if (in[2] != in[3] || in[2] < 1)
    wrong("x_embedder.proj.weight: expected square patches, found " + lora_host::dims_text(in));
  w.require("x_embedder.proj.bias", {h});
  dims.grid = side_of_grid(w, h);
  dims.text = w.require("context_embedder.weight", {h, -1})[1];
  dims.pooled = w.require("y_embedder.mlp.0.weight", {h, -1})[1];
  w.require_linear("context_embedder", h, dims.text);
  require_embedder(w, "y_embedder", h, dims.pooled);
  require_embedder(w, "t_embedder", h, w.require("t_embedder.mlp.0.weight", {h, -1})[1]);

  dims.blocks = w.count("joint_blocks.", ".x_block.attn.qkv.weight");
  if (dims.blocks == 0) wrong("missing tensor joint_blocks.0.x_block.attn.qkv.weight");
  dims.qk_norm = w.has("joint_blocks.0.x_block.attn.ln_q.weight");
  for (int64_t i = 0; i < dims.blocks; ++i) {
    std::string block = "joint_blocks." + std::to_string(i);
    if (w.has(block + ".x_block.attn2.qkv.weight")) dims.dual.insert(i);
    require_stream(w, block + ".x_block", dims, dims.dual.contains(i) ? 9 : 6);
    require_stream(w, block + ".context_block", dims, i + 1 < dims.blocks ? 6 : 2);
  }
  w.require_linear("final_layer.adaLN_modulation.1", 2 * h, h);
  w.require_linear("final_layer.linear", dims.patch * dims.patch * dims.channels, h);
  return dims;
}

}  // namespace sd35
