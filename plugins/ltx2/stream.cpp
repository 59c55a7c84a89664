// A block of a stream, with (t + table) cut into shift, scale, gate of attention, of the mlp and (from 2.3 on) of
// asking the text:
//
//   x   += gate attn1((1 + scale) norm(x) + shift)
//   x   += attn2(norm(x), text), from 2.3 on x and the result modulated, too, and text by prompt_adaln_single
//   x   += gate ff((1 + scale) norm(x) + shift)
//
// Norms of the blocks are RMS, without weights. Where a clip goes on from a picture (nn/first_frame.hpp), all that
// follows from the time is one for each frame of latents, but for what modulates text, and x is [B t, n, h] but in
// attention.
#include "stream.h"

#include <algorithm>

#include "nn/first_frame.hpp"
#include "nn/mmdit.hpp"

namespace ltx2 {

namespace nn = lora_host::nn;
using lora_host::Graph;
using lora_host::Value;

Shares times_of(int64_t latents, int64_t frames_each, const std::function<float(int64_t frame)>& seconds) {
  constexpr float known = 20;
  const auto start = [&](int64_t latent) {
    return seconds(std::max<int64_t>(latent * frames_each + 1 - frames_each, 0));
  };
  Shares out;
  for (int64_t i = 0; i < latents; ++i) out.push_back((start(i) + start(i + 1)) / 2 / known);
  return out;
}

TimeRows time_rows(Graph& g, Value timestep, const std::string& module) {
  Value vector = nn::timestep_embedder(g, timestep, 1000.0, module + ".emb.timestep_embedder", "linear_1", "linear_2");
  const lora_host::Dims d = g.shape(vector);
  Value all = g.linear(g.silu(vector), module + ".linear");
  return {g.reshape(all, {d[0], g.shape(all)[1] / d[1], d[1]}), vector};
}

std::vector<Value> modulation(Graph& g, Value rows, const std::string& table) {
  Value all = g.add(rows, g.param(table));
  return g.split(all, 1, std::vector<int64_t>(static_cast<size_t>(g.shape(all)[1]), 1));
}

Value modulated(Graph& g, Value x, Value shift, Value scale) { return g.add(g.mul(x, g.affine(scale, 1, 1)), shift); }

Stream::Stream(Graph& g, const std::string& of, int64_t width, Value times, Value sigma, Value rows)
    : prefix(of), head(width), time(time_rows(g, times, of + "adaln_single")), text(rows) {
  const std::string prompt_adaln = prefix + "prompt_adaln_single", caption = prefix + "caption_projection";
  if (g.weights().has(prompt_adaln + ".linear.weight")) prompt = time_rows(g, sigma, prompt_adaln).all;
  if (g.weights().has(caption + ".linear_1.weight"))
    text = nn::mlp(g, text, caption + ".linear_1", caption + ".linear_2");
}

Value Stream::velocity(Graph& g) const {
  const lora_host::Dims d = g.shape(time.vector);
  const std::vector<Value> mod =
      modulation(g, g.reshape(time.vector, {d[0], 1, d[1]}), prefix + "scale_shift_table");  // shift, scale
  return g.linear(nn::modulated_norm(g, x, mod[0], mod[1], eps), prefix + "proj_out");
}

StreamBlock::StreamBlock(Graph& g, const std::string& block, Stream& stream)
    : g_(g),
      modules_(block + "." + stream.prefix),
      stream_(stream),
      mod_(modulation(g, stream.time.all, modules_ + "scale_shift_table")) {}

void StreamBlock::look() {
  Value& x = stream_.x;
  Value text = stream_.text;
  const int64_t batch = g_.shape(text)[0], head = stream_.head;
  Value y = nn::by_items(g_, modulated(g_, g_.rms_norm(x, eps), mod_[0], mod_[1]), batch);
  y = attention(g_, modules_ + "attn1", head, y, y, stream_.rope, stream_.rope);
  x = nn::gated(g_, x, mod_[2], nn::by_rows_of(g_, y, x));
  y = g_.rms_norm(x, eps);
  if (stream_.prompt) {
    const std::vector<Value> of_text = modulation(g_, stream_.prompt, modules_ + "prompt_scale_shift_table");
    y = nn::by_items(g_, modulated(g_, y, mod_[6], mod_[7]), batch);
    text = modulated(g_, text, of_text[0], of_text[1]);
    x = nn::gated(g_, x, mod_[8], nn::by_rows_of(g_, attention(g_, modules_ + "attn2", head, y, text), x));
  } else {
    y = nn::by_items(g_, y, batch);
    x = g_.add(x, nn::by_rows_of(g_, attention(g_, modules_ + "attn2", head, y, text), x));
  }
}

void StreamBlock::feed_forward() {
  Value y = modulated(g_, g_.rms_norm(stream_.x, eps), mod_[3], mod_[4]);
  stream_.x = nn::gated(g_, stream_.x, mod_[5], ltx2::feed_forward(g_, modules_ + "ff", y));
}

}  // namespace ltx2
