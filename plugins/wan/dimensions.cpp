// Dimensions of a Wan transformer and the check that every tensor of it is there with the right shape.
#include "denoiser.h"

namespace wan {

using lora_host::Failure;
using lora_host::Weights;

namespace {

void require_block(const Weights& w, const std::string& block, int64_t h, bool image) {
  for (const char* attention : {".self_attn.", ".cross_attn."}) {
    for (const char* linear : {"q", "k", "v", "o"}) w.require_linear(block + attention + linear, h, h);
    for (const char* norm : {"norm_q.weight", "norm_k.weight"}) w.require(block + attention + norm, {h});
  }
  if (image) {
    for (const char* linear : {"k_img", "v_img"}) w.require_linear(block + ".cross_attn." + linear, h, h);
    w.require(block + ".cross_attn.norm_k_img.weight", {h});
  }
  for (const char* tensor : {".norm3.weight", ".norm3.bias"}) w.require(block + tensor, {h});
  const int64_t inner = w.require(block + ".ffn.0.weight", {-1, h})[0];
  w.require_linear(block + ".ffn.0", inner, h);
  w.require_linear(block + ".ffn.2", h, inner);
  w.require(block + ".modulation", {1, 6, h});
}

// Width of the states of a picture; 0 where the model is shown none.
int64_t read_image(const Weights& w, int64_t h) {
  if (w.first_with_prefix("img_emb.").empty()) return 0;
  const int64_t width = w.require("img_emb.proj.1.weight", {-1, -1})[1];
  w.require_linear("img_emb.proj.1", width, width);
  w.require_linear("img_emb.proj.3", h, width);
  for (const char* end : {".weight", ".bias"}) {
    w.require(std::string("img_emb.proj.0") + end, {width});
    w.require(std::string("img_emb.proj.4") + end, {h});
  }
  return width;
}

}  // namespace

Dimensions read_dimensions(const Weights& w) {
  Dimensions dims;
  constexpr int64_t side = Dimensions::patch;
  const lora_host::Dims in = w.require("patch_embedding.weight", {-1, -1, 1, side, side});
  const int64_t h = dims.hidden = in[0];
  if (h < 1 || h % Dimensions::head_dim != 0)
    throw Failure(LH_E_MODEL,
                  "patch_embedding.weight: expected a multiple of 128 rows (heads of 128), found " + std::to_string(h));
  dims.channels = w.require("head.head.weight", {-1, h})[0] / (side * side);
  dims.image = read_image(w, h);  // which goes with what a clip begins with
  const bool shown = in[1] > dims.channels || dims.image > 0;
  dims.shown = shown ? dims.channels + Dimensions::frames_of_latent : 0;
  w.require("patch_embedding.weight", {h, dims.channels + dims.shown, 1, side, side});
  w.require("patch_embedding.bias", {h});
  w.require_linear("head.head", side * side * dims.channels, h);
  w.require("head.modulation", {1, 2, h});
  dims.text = w.require("text_embedding.0.weight", {h, -1})[1];
  w.require_linear("text_embedding.0", h, dims.text);
  w.require_linear("text_embedding.2", h, h);
  w.require_linear("time_embedding.0", h, w.require("time_embedding.0.weight", {h, -1})[1]);
  w.require_linear("time_embedding.2", h, h);
  w.require_linear("time_projection.1", 6 * h, h);
  dims.blocks = w.count("blocks.", ".modulation");
  for (int64_t i = 0; i < std::max<int64_t>(dims.blocks, 1); ++i)
    require_block(w, "blocks." + std::to_string(i), h, dims.image > 0);
  return dims;
}

}  // namespace wan
