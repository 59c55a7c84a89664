// Dimensions of a Flux.3 transformer and the check that every tensor of it is there with the right shape.
#include "denoiser.h"

namespace flux3 {

using lora_host::Failure;
using lora_host::Weights;

namespace {

void require_block(const Weights& w, const std::string& block, const Dimensions& dims) {
  const int64_t h = dims.hidden;
  for (const char* linear : {".q_proj", ".k_proj", ".v_proj", ".attn_out"})
    w.require_linear(block + linear, h, h, false);
  w.require_linear(block + ".mlp_in", 2 * dims.inner, h, false);
  w.require_linear(block + ".mlp_out", h, dims.inner, false);
  for (const char* norm : {".norm.query_norm.scale", ".norm.key_norm.scale"})
    w.require(block + norm, {Dimensions::head_dim});
}

int64_t count_blocks(const Weights& w, const std::string& name) {
  const int64_t count = w.count(name + ".", ".q_proj.weight");
  if (count == 0) throw Failure(LH_E_MODEL, "missing tensor " + name + ".0.q_proj.weight");
  return count;
}

}  // namespace

Dimensions read_dimensions(const Weights& w) {
  Dimensions dims;
  const lora_host::Dims in = w.require("txt_in.weight", {-1, -1});
  const int64_t h = dims.hidden = in[0];
  if (h < 1 || h % Dimensions::head_dim != 0)
    throw Failure(LH_E_MODEL,
                  "txt_in.weight: expected a multiple of 128 rows (heads of 128), found " + std::to_string(h));
  dims.text = in[1];
  dims.channels = w.require("final_layer.image.linear.weight", {-1, h})[0];
  for (const char* picture : {"emb_in.image", "emb_in.image_cond"}) w.require_linear(picture, h, dims.channels, false);
  w.require("time_in.in_layer.weight", {h, -1});
  w.require_linear("time_in.out_layer", h, h, false);
  for (const char* mode : {"image", "image_cond", "txt"})
    for (const char* group : {"early_stream_modulations.", "single_stream_modulations."})
      w.require_linear(std::string(group) + mode + ".lin", 3 * h, h, false);
  w.require_linear("final_layer.image.adaLN_modulation.1", 2 * h, h, false);

  dims.inner = w.require("single_blocks.0.mlp_out.weight", {h, -1})[1];
  dims.mode_blocks = count_blocks(w, "txt_mode_blocks");
  dims.single_blocks = count_blocks(w, "single_blocks");
  for (int64_t i = 0; i < dims.mode_blocks; ++i)
    for (const char* mode : {"content_mode_blocks.image.", "content_mode_blocks.image_cond.", "txt_mode_blocks."})
      require_block(w, mode + std::to_string(i), dims);
  for (int64_t i = 0; i < dims.single_blocks; ++i) require_block(w, "single_blocks." + std::to_string(i), dims);
  return dims;
}

}  // namespace flux3
