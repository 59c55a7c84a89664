// Dimensions of an LTX-2 transformer and the check that every tensor of it is there with the right shape: of the clip's
// stream, and where it is asked for of that of the sound.
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

// What is alike in both streams, whose modules are behind `prefix`, but for the blocks. Gives the width of a row of
// text.
int64_t require_stream(const Weights& w, const std::string& prefix, int64_t hidden, int64_t channels,
                       const Dimensions& dims) {
  w.require_linear(prefix + "patchify_proj", hidden, channels);
  w.require_linear(prefix + "proj_out", channels, hidden);
  w.require(prefix + "scale_shift_table", {2, hidden});
  require_adaln(w, prefix + "adaln_single", hidden, dims.rows());
  if (dims.prompt_adaln) require_adaln(w, prefix + "prompt_adaln_single", hidden, 2);
  if (!dims.caption) return hidden;
  const std::string caption = prefix + "caption_projection";
  const int64_t text = w.require(caption + ".linear_1.weight", {hidden, -1})[1];
  w.require_linear(caption + ".linear_1", hidden, text);
  w.require_linear(caption + ".linear_2", hidden, hidden);
  return text;
}

// modules: "transformer_blocks.0." and the prefix
void require_block(const Weights& w, const std::string& modules, int64_t hidden, int64_t head, bool bias,
                   const Dimensions& dims) {
  for (const char* attention : {"attn1", "attn2"})
    require_attention(w, modules + attention, {hidden, hidden, hidden, head});
  require_feed_forward(w, modules + "ff", hidden, bias);
  w.require(modules + "scale_shift_table", {dims.rows(), hidden});
  if (dims.prompt_adaln) w.require(modules + "prompt_scale_shift_table", {2, hidden});
}

// Throws where the rows are not heads of this width.
void require_heads(const std::string& name, int64_t rows, int64_t head) {
  const std::string width = std::to_string(head);
  if (rows < 1 || rows % head != 0)
    throw Failure(LH_E_MODEL, name + ": expected a multiple of " + width + " rows (heads of " + width + "), found " +
                                  std::to_string(rows));
}

SoundDimensions read_sound(const Weights& w, const Dimensions& dims) {
  const std::string patchify = "audio_patchify_proj.weight";
  if (!w.has(patchify))
    throw Failure(LH_E_MODEL, "sound is true, but the transformer has nothing for it: expected " + patchify +
                                  " and its like, found none; give a file that has them as model.name_or_path, such as "
                                  "ltx-2-19b-dev.safetensors, or leave model.sound out");
  SoundDimensions sound;
  const lora_host::Dims in = w.require(patchify, {-1, -1});
  const int64_t h = sound.hidden = in[0];
  require_heads(patchify, h, sound_head_dim);
  sound.channels = in[1];
  sound.text = require_stream(w, "audio_", h, sound.channels, dims);
  require_adaln(w, "av_ca_video_scale_shift_adaln_single", dims.hidden, 4);
  require_adaln(w, "av_ca_a2v_gate_adaln_single", dims.hidden, 1);
  require_adaln(w, "av_ca_audio_scale_shift_adaln_single", h, 4);
  require_adaln(w, "av_ca_v2a_gate_adaln_single", h, 1);
  for (int64_t i = 0; i < dims.blocks; ++i) {
    const std::string block = "transformer_blocks." + std::to_string(i);
    require_block(w, block + ".audio_", h, sound_head_dim, true, dims);
    require_attention(w, block + ".audio_to_video_attn", {dims.hidden, h, h, sound_head_dim});
    require_attention(w, block + ".video_to_audio_attn", {h, dims.hidden, h, sound_head_dim});
    w.require(block + ".scale_shift_table_a2v_ca_video", {5, dims.hidden});
    w.require(block + ".scale_shift_table_a2v_ca_audio", {5, h});
  }
  return sound;
}

}  // namespace

bool without_biases(const Weights& w) {
  const std::string module = "transformer_blocks.0.ff.net.";
  return !w.has(module + "0.proj.bias") && !w.has(module + "2.bias");
}

Dimensions read_dimensions(const Weights& w, bool sound) {
  Dimensions dims;
  const lora_host::Dims in = w.require("patchify_proj.weight", {-1, -1});
  const int64_t h = dims.hidden = in[0];
  require_heads("patchify_proj.weight", h, head_dim);
  dims.channels = in[1];
  dims.prompt_adaln =
      w.has("prompt_adaln_single.linear.weight") || w.has("transformer_blocks.0.prompt_scale_shift_table");
  dims.caption = w.has("caption_projection.linear_1.weight");
  dims.text = require_stream(w, "", h, dims.channels, dims);

  const std::string mark = "keyframes_abs_pos_embedding";
  dims.marked = w.has(mark);
  if (dims.marked && w.require(mark) != lora_host::Dims{h}) w.require(mark, {1, h});  // GGUF files leave the 1 out

  dims.blocks = w.count("transformer_blocks.", ".attn1.to_q.weight");
  const bool bias = !without_biases(w);
  for (int64_t i = 0; i < std::max<int64_t>(dims.blocks, 1); ++i)
    require_block(w, "transformer_blocks." + std::to_string(i) + ".", h, head_dim, bias, dims);
  if (sound) dims.sound = read_sound(w, dims);
  return dims;
}

}  // namespace ltx2
