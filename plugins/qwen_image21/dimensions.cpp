// Dimensions of a Qwen-Image 2.1 transformer and the check that every tensor of it is there with the right shape.
#include <algorithm>

#include "denoiser.h"

namespace qwen_image21 {

using lora_host::Failure;
using lora_host::Weights;

namespace {

void require_block(const Weights& w, const std::string& block, int64_t h, int64_t inner) {
  for (const char* linear : {"to_q", "to_k", "to_v", "to_out.0"})
    w.require_linear(block + ".attn." + linear, h, h, false);
  for (const char* norm : {"norm_q", "norm_k"}) w.require(block + ".attn." + norm + ".weight", {Dimensions::head_dim});
  w.require_linear(block + ".img_mlp.gate_up", 2 * inner, h, false);
  w.require_linear(block + ".img_mlp.out", h, inner, false);
}

}  // namespace

Dimensions read_dimensions(const Weights& w) {
  Dimensions dims;
  const int64_t h = dims.hidden = w.require("img_in.weight", {-1, -1})[0];
  if (h < 1 || h % Dimensions::head_dim != 0)
    throw Failure(LH_E_MODEL,
                  "img_in.weight: expected a multiple of 128 rows (heads of 128), found " + std::to_string(h));
  dims.channels = w.require("proj_out.weight", {-1, h})[0];
  w.require_linear("proj_out", dims.channels, h, false);
  w.require_linear("img_in", h, dims.channels, false);
  dims.text = w.require("txt_in.text_norm.weight", {-1})[0];
  w.require_linear("txt_in.in_layer", h, dims.text, false);
  w.require_linear("txt_in.out_layer", h, h, false);
  const std::string time = "time_text_embed.timestep_embedder.linear_";
  w.require_linear(time + "1", h, w.require(time + "1.weight", {h, -1})[1], false);
  w.require_linear(time + "2", h, h, false);
  w.require_linear("modulation.1", 4 * h, h, false);
  w.require_linear("norm_out.linear", h, h, false);
  dims.blocks = w.count("transformer_blocks.", ".attn.to_q.weight");
  dims.inner = w.require("transformer_blocks.0.img_mlp.out.weight", {h, -1})[1];
  for (int64_t i = 0; i < std::max<int64_t>(dims.blocks, 1); ++i)
    require_block(w, "transformer_blocks." + std::to_string(i), h, dims.inner);
  return dims;
}

}  // namespace qwen_image21
