// Clips that go on from a picture, whose latents stand in place of their first noisy ones, for models that make videos
// of text as well: of a batch, some samples have one.
#pragma once

#include <optional>
#include <vector>

#include "lora_host/lora_host.hpp"

namespace lora_host::nn {

// Tokens [B, t n, h] of a clip by its frames of latents [B t, n, h], where `rows` are: what is one for a frame, such as
// what its time modulates, is one for a row then.
inline Value by_rows_of(Graph& g, Value x, Value rows) {
  const Dims d = g.shape(rows);
  return d[0] == g.shape(x)[0] ? x : g.reshape(x, {d[0], d[1], g.shape(x)[2]});
}

// And back, as attention has them.
inline Value by_items(Graph& g, Value x, int64_t batch) {
  const Dims d = g.shape(x);
  return d[0] == batch ? x : g.reshape(x, {batch, d[0] * d[1] / batch, d[2]});
}

class FirstFrame {
 public:
  // Of latents [B, t, h, w, C], in runs whose recipe has `first_frame: {source: first_frame.<key>, as: start, optional:
  // true}` and `given: {source: given.<key>}` left in it. A still has nothing behind its first frame.
  static std::optional<FirstFrame> of(Graph& g, const Sizes& sizes, Value latents) {
    const Dims d = g.shape(latents);
    if (!sizes.has("first_frame") || d[1] == 1) return std::nullopt;
    Value given = g.reshape(g.input("given", {d[0]}, LH_F32), {d[0], 1, 1, 1, 1});
    return FirstFrame(g.input("first_frame", {d[0], 1, d[2], d[3], d[4]}),
                      g.equal(given, g.constant({1, 1, 1, 1, 1}, std::vector<float>{1.0f})));
  }

  // The latents as the model sees them.
  Value shown(Graph& g, Value latents) const { return beginning_with(g, picture_, latents); }

  // Times f32 [B] of each frame of latents, [B t]: 0 of a picture.
  Value times(Graph& g, Value time, int64_t frames) const {
    const int64_t batch = g.shape(time)[0];
    time = g.reshape(time, {batch, 1});
    Value first = g.where(g.reshape(taken_, {batch, 1}), g.affine(time, 0.0, 0.0), time);
    return g.reshape(g.concat({first, g.expand(time, {batch, frames - 1})}, 1), {batch * frames});
  }

  // What leads from the noisy latents, of this sigma f32 [B], to the picture, (latents - picture) / sigma, in place of
  // the first frame's velocity.
  Value velocity(Graph& g, Value velocity, Value latents, Value sigma) const {
    sigma = g.reshape(sigma, {g.shape(sigma)[0], 1, 1, 1, 1});
    return beginning_with(g, g.div(g.sub(g.slice(latents, 1, 0, 1), picture_), sigma), velocity);
  }

 private:
  FirstFrame(Value picture, Value taken) : picture_(picture), taken_(taken) {}

  // x with another first frame [B, 1, h, w, C] where there is a picture.
  Value beginning_with(Graph& g, Value first, Value x) const {
    Value own = g.slice(x, 1, 0, 1), rest = g.slice(x, 1, 1, g.shape(x)[1] - 1);
    return g.concat({g.where(taken_, first, own), rest}, 1);
  }

  Value picture_, taken_;  // [B, 1, h, w, C]; i32 [B, 1, 1, 1, 1]
};

}  // namespace lora_host::nn
