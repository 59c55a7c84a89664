// Dimensions of a HiDream-I1 transformer and the check that every tensor of it is there with the right shape.
#include "denoiser.h"

namespace hidream {

using lora_host::Failure;
using lora_host::Weights;

namespace {

void require_swiglu(const Weights& w, const std::string& module, int64_t h) {
  const int64_t inner = w.require(module + ".w1.weight", {-1, h})[0];
  w.require_linear(module + ".w3", inner, h, false);
  w.require_linear(module + ".w2", h, inner, false);
}

void require_experts(const Weights& w, const std::string& module, int64_t h) {
  const int64_t count = w.count(module + ".experts.", ".w1.weight");
  if (count < Dimensions::picked)
    throw Failure(LH_E_MODEL, module + ".experts.*: expected " + std::to_string(Dimensions::picked) +
                                  " experts or more, found " + std::to_string(count));
  w.require(module + ".gate.weight", {count, h});
  require_swiglu(w, module + ".shared_experts", h);
  for (int64_t e = 0; e < count; ++e) require_swiglu(w, module + ".experts." + std::to_string(e), h);
}

// end: "_t" for the text of a double block.
void require_attention(const Weights& w, const std::string& module, const std::string& end, int64_t h) {
  for (const char* part : {".to_q", ".to_k", ".to_v", ".to_out"}) w.require_linear(module + part + end, h, h);
  for (const char* norm : {".q_rms_norm", ".k_rms_norm"}) w.require(module + norm + end + ".weight", {h});
}

// Blocks of one kind; gives their number, which is at least one.
int64_t require_blocks(const Weights& w, const std::string& kind, int64_t h, bool text) {
  const int64_t count = w.count(kind + ".", ".block.attn1.to_q.weight");
  if (count == 0) throw Failure(LH_E_MODEL, "missing tensor " + kind + ".0.block.attn1.to_q.weight");
  for (int64_t i = 0; i < count; ++i) {
    const std::string block = kind + "." + std::to_string(i) + ".block";
    w.require_linear(block + ".adaLN_modulation.1", (text ? 12 : 6) * h, h);
    require_attention(w, block + ".attn1", "", h);
    require_experts(w, block + ".ff_i", h);
    if (!text) continue;
    require_attention(w, block + ".attn1", "_t", h);
    require_swiglu(w, block + ".ff_t", h);
  }
  return count;
}

void require_embedder(const Weights& w, const std::string& module, int64_t h, int64_t in) {
  w.require_linear(module + ".linear_1", h, in);
  w.require_linear(module + ".linear_2", h, h);
}

}  // namespace

Dimensions read_dimensions(const Weights& w) {
  constexpr int64_t places = Dimensions::patch * Dimensions::patch;
  Dimensions dims;
  const int64_t h = dims.hidden = w.extent("x_embedder.proj.weight", 0);
  if (h < 1 || h % Dimensions::head_dim != 0)
    throw Failure(LH_E_MODEL,
                  "x_embedder.proj.weight: expected a multiple of 128 rows (heads of 128), found " + std::to_string(h));
  const int64_t out = w.require("final_layer.linear.weight", {-1, h})[0];
  dims.channels = out / places;
  w.require_linear("x_embedder.proj", h, dims.channels * places);
  w.require_linear("final_layer.linear", out, h);
  w.require_linear("final_layer.adaLN_modulation.1", 2 * h, h);
  require_embedder(w, "t_embedder.timestep_embedder", h, w.extent("t_embedder.timestep_embedder.linear_1.weight", 1));
  dims.pooled = w.extent("p_embedder.pooled_embedder.linear_1.weight", 1);
  require_embedder(w, "p_embedder.pooled_embedder", h, dims.pooled);

  dims.double_blocks = require_blocks(w, "double_stream_blocks", h, true);
  dims.single_blocks = require_blocks(w, "single_stream_blocks", h, false);
  const auto projection = [](int64_t i) { return "caption_projection." + std::to_string(i) + ".linear.weight"; };
  dims.llama = w.require(projection(0), {h, -1})[1];
  for (int64_t i = 1; i < dims.blocks(); ++i) w.require(projection(i), {h, dims.llama});
  dims.t5 = w.require(projection(dims.blocks()), {h, -1})[1];
  return dims;
}

}  // namespace hidream
