// A row of sound latents is of four frames of a spectrogram, the first of one: 25 rows a second.
#include "sound.h"

#include "nn/first_frame.hpp"
#include "nn/mmdit.hpp"

namespace ltx2 {

namespace nn = lora_host::nn;
using lora_host::Graph;
using lora_host::Value;

namespace {

Shares sound_positions(int64_t rows) {
  constexpr int64_t frames_of_row = 4;
  constexpr float samples_of_frame = 160, samples_of_second = 16000;
  return times_of(rows, frames_of_row,
                  [](int64_t frame) { return static_cast<float>(frame) * samples_of_frame / samples_of_second; });
}

// x + gate y, of the gate's rows
Value answered(Graph& g, Value x, Value gate, Value y) {
  const int64_t rows = g.shape(gate)[0];
  return nn::by_items(g, nn::gated(g, nn::by_items(g, x, rows), gate, nn::by_items(g, y, rows)), g.shape(x)[0]);
}

}  // namespace

Stream sound_stream(Graph& g, const SoundDimensions& dims, const lora_host::Sizes& sizes, Value sigma) {
  const int64_t batch = g.shape(sigma)[0], rows = sizes["sound"];
  Value latents = g.input("sound", {batch, rows, dims.channels});
  Value text = g.input("sound_text", {batch, sizes["sound_text_length"], dims.text});
  Stream sound(g, "audio_", sound_head_dim, sigma, sigma, text);
  sound.rope = rope_tables(g, {sound_positions(rows)}, dims.hidden, sound_head_dim);
  sound.x = g.linear(latents, "audio_patchify_proj");
  return sound;
}

Exchange::Exchange(Graph& g, const Stream& clip, const Stream& sound, Value times, Value sigma,
                   const nn::RopeTables& clip_rope)
    : g_(g) {
  const auto rows = [&](Value time, const std::string& modulation, const std::string& gate) {
    return g.concat({time_rows(g, time, modulation).all, time_rows(g, time, gate).all}, 1);
  };
  clip_ = {rows(clip.prompt ? sigma : times, "av_ca_video_scale_shift_adaln_single", "av_ca_a2v_gate_adaln_single"),
           clip_rope};
  sound_ = {rows(sigma, "av_ca_audio_scale_shift_adaln_single", "av_ca_v2a_gate_adaln_single"), sound.rope};
}

void Exchange::operator()(const std::string& block, Stream& clip, Stream& sound) const {
  const int64_t batch = g_.shape(sound.x)[0];
  const std::vector<Value> of_clip = modulation(g_, clip_.rows, block + ".scale_shift_table_a2v_ca_video"),
                           of_sound = modulation(g_, sound_.rows, block + ".scale_shift_table_a2v_ca_audio");
  const auto shown = [&](Value normed, const std::vector<Value>& mod, size_t scale) {
    Value x = nn::by_items(g_, normed, g_.shape(mod[scale])[0]);
    return nn::by_items(g_, modulated(g_, x, mod[scale + 1], mod[scale]), batch);
  };
  Value v = g_.rms_norm(clip.x, eps), s = g_.rms_norm(sound.x, eps);
  Value to_clip = attention(g_, block + ".audio_to_video_attn", sound_head_dim, shown(v, of_clip, 0),
                            shown(s, of_sound, 0), clip_.rope, sound_.rope);
  Value to_sound = attention(g_, block + ".video_to_audio_attn", sound_head_dim, shown(s, of_sound, 2),
                             shown(v, of_clip, 2), sound_.rope, clip_.rope);
  clip.x = answered(g_, clip.x, of_clip.back(), to_clip);
  sound.x = answered(g_, sound.x, of_sound.back(), to_sound);
}

}  // namespace ltx2
