// Dimensions of a Qwen-Image transformer and the check that every tensor of it is there with the right shape.
#include "denoiser.h"

namespace qwen_image {

using lora_host::Failure;
using lora_host::Weights;

namespace {

void require_block(const Weights& w, const std::string& block, int64_t h) {
  for (const char* stream : {".img", ".txt"}) {
    const std::string mlp = block + stream + "_mlp.net.";
    const int64_t inner = w.require(mlp + "0.proj.weight", {-1, h})[0];
    w.require_linear(mlp + "0.proj", inner, h);
    w.require_linear(mlp + "2", h, inner);
    w.require_linear(block + stream + "_mod.1", 6 * h, h);
  }
  for (const char* linear :
       {"to_q", "to_k", "to_v", "add_q_proj", "add_k_proj", "add_v_proj", "to_out.0", "to_add_out"})
    w.require_linear(block + ".attn." + linear, h, h);
  for (const char* norm : {"norm_q", "norm_k", "norm_added_q", "norm_added_k"})
    w.require(block + ".attn." + norm + ".weight", {Dimensions::head_dim});
}

}  // namespace

Dimensions read_dimensions(const Weights& w) {
  Dimensions dims;
  const lora_host::Dims in = w.require("img_in.weight", {-1, -1});
  const int64_t h = dims.hidden = in[0], places = Dimensions::patch * Dimensions::patch;
  if (h < 1 || h % Dimensions::head_dim != 0)
    throw Failure(LH_E_MODEL,
                  "img_in.weight: expected a multiple of 128 rows (heads of 128), found " + std::to_string(h));
  const int64_t out = w.require("proj_out.weight", {-1, h})[0];
  if (in[1] != out || out % places != 0)
    throw Failure(LH_E_MODEL, "img_in.weight: expected as many columns as proj_out has rows, " + std::to_string(out) +
                                  " (patches of 2x2), found " + std::to_string(in[1]) +
                                  "; variants that take further channels cannot be trained here");
  dims.channels = out / places;
  w.require_linear("img_in", h, out);
  dims.text = w.require("txt_norm.weight", {-1})[0];
  w.require_linear("txt_in", h, dims.text);
  const std::string time = "time_text_embed.timestep_embedder.linear_";
  w.require_linear(time + "1", h, w.require(time + "1.weight", {h, -1})[1]);
  w.require_linear(time + "2", h, h);
  dims.blocks = w.count("transformer_blocks.", ".img_mod.1.weight");
  for (int64_t i = 0; i < std::max<int64_t>(dims.blocks, 1); ++i)
    require_block(w, "transformer_blocks." + std::to_string(i), h);
  w.require_linear("norm_out.linear", 2 * h, h);
  w.require_linear("proj_out", out, h);
  return dims;
}

}  // namespace qwen_image
