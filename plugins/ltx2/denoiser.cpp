// The graph of the LTX-2 transformer:
//
//   x    = patchify_proj(latents), text = caption_projection(text) (2.0), t = adaln_single(1000 sigma); then in each
//   block what a stream sees itself (stream.h), what it sees of the other (sound.h), and its mlp
//   velocity = proj_out((1 + scale) layer_norm(x) + shift)
//
// Where there is no sound, the clip's stream runs alone. Clips may go on from a picture (nn/first_frame.hpp), whose
// frame has a time of its own.
//
// Positions have three axes, of the middle of a place: seconds in 20, pixels in 2048. The first latent is of one frame,
// each other one of eight: LTX-2.5 marks its tokens, whatever the clip.
#include "denoiser.h"

#include "attention.h"
#include "nn/first_frame.hpp"
#include "nn/ltx2_autoencoder.hpp"
#include "sound.h"

namespace ltx2 {

namespace nn = lora_host::nn;
using lora_host::Graph;
using lora_host::Value;

namespace {

constexpr int64_t frames_of_latent = nn::Ltx2Autoencoder::frames_of_latent,
                  pixels_of_place = nn::Ltx2Autoencoder::pixels_of_place;
constexpr float pixels = 2048;

// float32 throughout, as the vendor's programs round.
std::vector<Shares> positions(int64_t time, int64_t height, int64_t width, double fps) {
  const auto side = [](int64_t count) {
    Shares out;
    for (int64_t i = 0; i < count; ++i) out.push_back(static_cast<float>((2 * i + 1) * pixels_of_place) / 2 / pixels);
    return out;
  };
  const auto seconds = [&](int64_t frame) { return static_cast<float>(frame) / static_cast<float>(fps); };
  return {times_of(time, frames_of_latent, seconds), side(height), side(width)};
}

// Tokens x of a clip, in whatever rows, those of the first of its `time` frames + keyframes_abs_pos_embedding.
Value with_first_marked(Graph& g, Value x, int64_t batch, int64_t time) {
  const lora_host::Dims d = g.shape(x);
  std::vector<float> first(static_cast<size_t>(time), 0.0f);
  first.front() = 1;
  Value mark = g.reshape(g.param("keyframes_abs_pos_embedding"), {1, 1, 1, d[2]});
  mark = g.mul(g.cast(g.constant({1, time, 1, 1}, first), LH_FLOAT), mark);
  return g.reshape(g.add(g.reshape(x, {batch, time, d[0] * d[1] / (batch * time), d[2]}), mark), d);
}

}  // namespace

void build_denoiser(Graph& g, const Dimensions& dims, double fps, const lora_host::Sizes& sizes) {
  const int64_t batch = sizes["batch"], time = sizes["time"], height = sizes["height"], width = sizes["width"];
  Value latents = g.input("latents", {batch, time, height, width, dims.channels});
  Value text = g.input("text", {batch, sizes["text_length"], dims.text});
  Value timestep = g.input("timestep", {batch}, LH_F32);

  const std::optional<nn::FirstFrame> first = nn::FirstFrame::of(g, sizes, latents);
  Value times = first ? first->times(g, timestep, time) : timestep;
  Stream clip(g, "", head_dim, times, timestep, text);
  const std::vector<Shares> places = positions(time, height, width, fps);
  clip.rope = rope_tables(g, places, dims.hidden, head_dim);
  const int64_t rows = g.shape(times)[0];  // B t where a clip goes on from a picture, else B
  Value x = first ? first->shown(g, latents) : latents;
  x = g.linear(g.reshape(x, {rows, batch * time * height * width / rows, dims.channels}), "patchify_proj");
  clip.x = dims.marked ? with_first_marked(g, x, batch, time) : x;

  std::optional<Stream> sound;
  std::optional<Exchange> exchange;
  if (dims.sound && sizes.has("sound")) {
    sound = sound_stream(g, *dims.sound, sizes, timestep);
    const nn::RopeTables seconds = rope_tables(g, {places.front()}, dims.sound->hidden, sound_head_dim, height * width);
    exchange.emplace(g, clip, *sound, times, timestep, seconds);
  }
  for (int64_t i = 0; i < dims.blocks; ++i) {
    const std::string name = "transformer_blocks." + std::to_string(i);
    auto scope = g.scope(name, LH_SCOPE_CHECKPOINT);
    StreamBlock of_clip(g, name, clip);
    of_clip.look();
    if (sound) {
      StreamBlock of_sound(g, name, *sound);
      of_sound.look();
      (*exchange)(name, clip, *sound);
      of_sound.feed_forward();
    }
    of_clip.feed_forward();
  }

  Value out = g.reshape(clip.velocity(g), g.shape(latents));
  g.output("output", first ? first->velocity(g, out, latents, timestep) : out);
  if (sound) g.output("sound_output", sound->velocity(g));
}

}  // namespace ltx2
