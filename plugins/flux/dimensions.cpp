// Dimensions of a Flux.1 transformer and the check that every tensor of it is there with the right shape.
#include <algorithm>

#include "denoiser.h"

namespace flux {

using lora_host::Failure;
using lora_host::Weights;

namespace {

// RMS scales of q and k; files of some tools call them .weight.
void require_norm(const Weights& w, const std::string& norm) {
  w.require(norm + (w.has(norm + ".weight") ? ".weight" : ".scale"), {Dimensions::head_dim});
}

void require_norms(const Weights& w, const std::string& module) {
  require_norm(w, module + ".query_norm");
  require_norm(w, module + ".key_norm");
}

void require_embedder(const Weights& w, const std::string& module, int64_t hidden, int64_t in) {
  w.require_linear(module + ".in_layer", hidden, in);
  w.require_linear(module + ".out_layer", hidden, hidden);
}

void require_double(const Weights& w, const std::string& block, int64_t h) {
  for (const char* stream : {".img", ".txt"}) {
    std::string side = block + stream;
    int64_t inner = w.require(side + "_mlp.0.weight", {-1, h})[0];
    w.require_linear(side + "_mod.lin", 6 * h, h);
    w.require_linear(side + "_attn.qkv", 3 * h, h);
    w.require_linear(side + "_attn.proj", h, h);
    w.require_linear(side + "_mlp.0", inner, h);
    w.require_linear(side + "_mlp.2", h, inner);
    require_norms(w, side + "_attn.norm");
  }
}

void require_single(const Weights& w, const std::string& block, int64_t h) {
  int64_t wide = w.require(block + ".linear1.weight", {-1, h})[0];
  if (wide <= 3 * h)
    throw Failure(LH_E_MODEL, block + ".linear1.weight: expected more than " + std::to_string(3 * h) +
                                  " rows (q, k, v and the mlp), found " + std::to_string(wide));
  w.require_linear(block + ".modulation.lin", 3 * h, h);
  w.require_linear(block + ".linear1", wide, h);
  w.require_linear(block + ".linear2", h, wide - 2 * h);
  require_norms(w, block + ".norm");
}

}  // namespace

Dimensions read_dimensions(const Weights& w) {
  Dimensions dims;
  lora_host::Dims in = w.require("img_in.weight", {-1, -1});
  int64_t h = dims.hidden = in[0];
  if (h % Dimensions::head_dim != 0)
    throw Failure(LH_E_MODEL,
                  "img_in.weight: expected a multiple of 128 rows (heads of 128), found " + std::to_string(h));
  int64_t out = w.require("final_layer.linear.weight", {-1, h})[0];
  if (in[1] != out)
    throw Failure(LH_E_MODEL, "img_in.weight: expected shape [" + std::to_string(h) + ", " + std::to_string(out) +
                                  "], found " + lora_host::dims_text(in) +
                                  "; inpainting and control variants take extra channels and cannot be trained here");
  dims.channels = out / (Dimensions::patch * Dimensions::patch);
  dims.text = w.require("txt_in.weight", {h, -1})[1];
  dims.pooled = w.require("vector_in.in_layer.weight", {h, -1})[1];
  dims.guidance = w.has("guidance_in.in_layer.weight");
  dims.double_blocks = w.count("double_blocks.", ".img_attn.qkv.weight");
  dims.single_blocks = w.count("single_blocks.", ".linear1.weight");

  w.require_linear("img_in", h, out);
  w.require_linear("txt_in", h, dims.text);
  require_embedder(w, "vector_in", h, dims.pooled);
  require_embedder(w, "time_in", h, w.require("time_in.in_layer.weight", {h, -1})[1]);
  if (dims.guidance) require_embedder(w, "guidance_in", h, w.require("guidance_in.in_layer.weight", {h, -1})[1]);
  for (int64_t i = 0; i < std::max<int64_t>(dims.double_blocks, 1); ++i)
    require_double(w, "double_blocks." + std::to_string(i), h);
  for (int64_t i = 0; i < std::max<int64_t>(dims.single_blocks, 1); ++i)
    require_single(w, "single_blocks." + std::to_string(i), h);
  w.require_linear("final_layer.adaLN_modulation.1", 2 * h, h);
  w.require_linear("final_layer.linear", out, h);
  return dims;
}

}  // namespace flux
