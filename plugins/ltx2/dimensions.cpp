// Dimensions of the video stream of an LTX-2 transformer and the check that every tensor of it is there with the right
// shape.
#include <algorithm>

#include "attention.h"
#include "denoiser.h"

namespace ltx2 {

using lora_host::Failure;
using lora_host::Weights;

namespace {

// A vector of the time, and `rows` of it.
void require_adaln(const Weights& w, const std::string& module, int64_t hidden, int64_t rows) {
  const std::string embedder = module + ".emb.timestep_embedder";
  w.require_linear(embedder + ".linear_1", hidden, w.require(embedder + ".linear_1.weight", {-1, -1})[1]);
  w.require_linear(embedder + ".linear_2", hidden, hidden);
  w.require_linear(module + ".linear", rows * hidden, hidden);
}

}  // namespace

bool without_biases(const Weights& w) {
  const std::string module = "transformer_blocks.0.ff.net.";
  return !w.has(module + "0.proj.bias") && !w.has(module + "2.bias");
}

Dimensions read_dimensions(const Weights& w) {
  Dimensions dims;
  const lora_host::Dims in = w.require("patchify_proj.weight", {-1, -1});
  const int64_t h = dims.hidden = in[0];
  if (h < 1 || h % head_dim != 0)
    throw Failure(LH_E_MODEL,
                  "patchify_proj.weight: expected a multiple of 128 rows (heads of 128), found " + std::to_string(h));
  dims.channels = in[1];
  w.require_linear("patchify_proj", h, dims.channels);
  w.require_linear("proj_out", dims.channels, h);
  w.require("scale_shift_table", {2, h});

  dims.prompt_adaln =
      w.has("prompt_adaln_single.linear.weight") || w.has("transformer_blocks.0.prompt_scale_shift_table");
  const int64_t rows = dims.prompt_adaln ? 9 : 6;
  require_adaln(w, "adaln_single", h, rows);
  if (dims.prompt_adaln) require_adaln(w, "prompt_adaln_single", h, 2);

  dims.text = h;
  dims.caption = w.has("caption_projection.linear_1.weight");
  if (dims.caption) {
    dims.text = w.require("caption_projection.linear_1.weight", {h, -1})[1];
    w.require_linear("caption_projection.linear_1", h, dims.text);
    w.require_linear("caption_projection.linear_2", h, h);
  }

  const std::string mark = "keyframes_abs_pos_embedding";
  dims.marked = w.has(mark);
  if (dims.marked && w.require(mark) != lora_host::Dims{h}) w.require(mark, {1, h});  // GGUF files leave the 1 out

  dims.blocks = w.count("transformer_blocks.", ".attn1.to_q.weight");
  const bool bias = !without_biases(w);
  for (int64_t i = 0; i < std::max<int64_t>(dims.blocks, 1); ++i) {
    const std::string block = "transformer_blocks." + std::to_string(i);
    for (const char* attention : {".attn1", ".attn2"}) require_attention(w, block + attention, h, h);
    require_feed_forward(w, block + ".ff", h, bias);
    w.require(block + ".scale_shift_table", {rows, h});
    if (dims.prompt_adaln) w.require(block + ".prompt_scale_shift_table", {2, h});
  }
  return dims;
}

}  // namespace ltx2
