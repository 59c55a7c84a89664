// The graph of the video stream of the LTX-2 transformer, as it runs where there is no sound: what goes to and fro
// between the two streams is left out.
//
//   x    = patchify_proj(latents), text = caption_projection(text) (2.0), t = adaln_single(1000 sigma); then in each
//   block, with (t + table) cut into shift, scale, gate of attention, of the mlp and (from 2.3 on) of asking the text:
//   x   += gate attn1((1 + scale) norm(x) + shift)
//   x   += attn2(norm(x), text), from 2.3 on x and the result modulated, too, and text by
//          prompt_adaln_single(1000 sigma)
//   x   += gate ff((1 + scale) norm(x) + shift)
//   velocity = proj_out((1 + scale) layer_norm(x) + shift)
//
// Clips may go on from a picture (nn/first_frame.hpp): then all that follows from the time is one for each frame of
// latents, but for what modulates text, and x is [B t, n, h] but in attention.
//
// Norms of the blocks are RMS, without weights. Positions have three axes, of the middle of a place: seconds in 20,
// pixels in 2048. The first latent is of one frame, each other one of eight: LTX-2.5 marks its tokens, whatever the
// clip.
#include "denoiser.h"

#include <algorithm>

#include "attention.h"
#include "nn/first_frame.hpp"
#include "nn/ltx2_autoencoder.hpp"
#include "nn/mmdit.hpp"

namespace ltx2 {

namespace nn = lora_host::nn;
using lora_host::Graph;
using lora_host::Value;

namespace {

constexpr int64_t frames_of_latent = nn::Ltx2Autoencoder::frames_of_latent,
                  pixels_of_place = nn::Ltx2Autoencoder::pixels_of_place;
constexpr float seconds = 20, pixels = 2048;

// float32 throughout, as the vendor's programs round.
std::vector<Shares> positions(int64_t time, int64_t height, int64_t width, double fps) {
  const auto start = [&](int64_t latent) {
    const int64_t frame = std::max<int64_t>(latent * frames_of_latent + 1 - frames_of_latent, 0);
    return static_cast<float>(frame) / static_cast<float>(fps);
  };
  const auto side = [](int64_t count) {
    Shares out;
    for (int64_t i = 0; i < count; ++i) out.push_back(static_cast<float>((2 * i + 1) * pixels_of_place) / 2 / pixels);
    return out;
  };
  Shares frames;
  for (int64_t i = 0; i < time; ++i) frames.push_back((start(i) + start(i + 1)) / 2 / seconds);
  return {frames, side(height), side(width)};
}

// [B, n, h] of a vector of the time, and that vector [B, h].
struct Rows {
  Value all, vector;
};
Rows adaln(Graph& g, Value timestep, const std::string& module) {
  Value vector = nn::timestep_embedder(g, timestep, 1000.0, module + ".emb.timestep_embedder", "linear_1", "linear_2");
  const lora_host::Dims d = g.shape(vector);
  Value all = g.linear(g.silu(vector), module + ".linear");
  return {g.reshape(all, {d[0], g.shape(all)[1] / d[1], d[1]}), vector};
}

// Pieces [B, 1, h] of rows [B, n, h] or [B, 1, h] + the learned table [n, h].
std::vector<Value> modulation(Graph& g, Value rows, const std::string& table) {
  Value all = g.add(rows, g.param(table));
  return g.split(all, 1, std::vector<int64_t>(static_cast<size_t>(g.shape(all)[1]), 1));
}

// (1 + scale) x + shift
Value modulated(Graph& g, Value x, Value shift, Value scale) { return g.add(g.mul(x, g.affine(scale, 1, 1)), shift); }

Value block(Graph& g, const std::string& name, Value x, Value rows, Value text, Value prompt_rows,
            const nn::RopeTables& rope) {
  auto scope = g.scope(name, LH_SCOPE_CHECKPOINT);
  const std::vector<Value> mod = modulation(g, rows, name + ".scale_shift_table");
  const int64_t batch = g.shape(text)[0];
  Value y = nn::by_items(g, modulated(g, g.rms_norm(x, eps), mod[0], mod[1]), batch);
  x = nn::gated(g, x, mod[2], nn::by_rows_of(g, attention(g, name + ".attn1", y, y, rope), x));
  y = g.rms_norm(x, eps);
  if (prompt_rows) {
    const std::vector<Value> of_text = modulation(g, prompt_rows, name + ".prompt_scale_shift_table");
    y = nn::by_items(g, modulated(g, y, mod[6], mod[7]), batch);
    text = modulated(g, text, of_text[0], of_text[1]);
    x = nn::gated(g, x, mod[8], nn::by_rows_of(g, attention(g, name + ".attn2", y, text, {}), x));
  } else {
    y = nn::by_items(g, y, batch);
    x = g.add(x, nn::by_rows_of(g, attention(g, name + ".attn2", y, text, {}), x));
  }
  y = modulated(g, g.rms_norm(x, eps), mod[3], mod[4]);
  return nn::gated(g, x, mod[5], feed_forward(g, name + ".ff", y));
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
  const Rows rows = adaln(g, first ? first->times(g, timestep, time) : timestep, "adaln_single");
  const Value prompt_rows = dims.prompt_adaln ? adaln(g, timestep, "prompt_adaln_single").all : Value{};
  if (dims.caption) text = nn::mlp(g, text, "caption_projection.linear_1", "caption_projection.linear_2");
  const nn::RopeTables rope = rope_tables(g, positions(time, height, width, fps), dims.hidden);
  const int64_t times = g.shape(rows.vector)[0];  // B t where a clip goes on from a picture, else B
  Value x = first ? first->shown(g, latents) : latents;
  x = g.linear(g.reshape(x, {times, batch * time * height * width / times, dims.channels}), "patchify_proj");
  if (dims.marked) x = with_first_marked(g, x, batch, time);
  for (int64_t i = 0; i < dims.blocks; ++i)
    x = block(g, "transformer_blocks." + std::to_string(i), x, rows.all, text, prompt_rows, rope);

  const std::vector<Value> mod =
      modulation(g, g.reshape(rows.vector, {times, 1, dims.hidden}), "scale_shift_table");  // shift, scale
  Value out = g.linear(nn::modulated_norm(g, x, mod[0], mod[1], eps), "proj_out");
  out = g.reshape(out, g.shape(latents));
  g.output("output", first ? first->velocity(g, out, latents, timestep) : out);
}

}  // namespace ltx2
