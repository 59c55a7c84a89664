// Layers that several kinds of network share: heads, embedders, 1x1 convolutions in both ways that files hold them.
#pragma once

#include <string>

#include "lora_host/lora_host.hpp"

namespace lora_host::nn {

// Half precision does not reach as far as the states of full models: in it, what overflows is held at its largest
// number.
inline Value held(Graph& g, Value x) { return g.describe(x).dtype == LH_F16 ? g.clamp(x, -65504, 65504) : x; }

// [B, S, h] -> [B, S, H, D]
inline Value split_heads(Graph& g, Value x, int64_t head_dim) {
  Dims d = g.shape(x);
  return g.reshape(x, {d[0], d[1], d[2] / head_dim, head_dim});
}

// [B, S, H, D] -> [B, S, h]
inline Value merge_heads(Graph& g, Value x) {
  Dims d = g.shape(x);
  return g.reshape(x, {d[0], d[1], d[2] * d[3]});
}

// Rows that are there, of a mask i32 [B, L] (1 = there; those come first) -> f32 [B]
inline Value mask_lengths(Graph& g, Value mask) {
  return g.reshape(g.sum(g.cast(mask, LH_F32), {1}), {g.shape(mask)[0]});
}

// x [B, L, d] with zeros in the rows that mask i32 [B, L] leaves out.
inline Value masked_rows(Graph& g, Value x, Value mask) {
  const Dims d = g.shape(mask);
  return g.mul(x, g.reshape(g.cast(mask, LH_FLOAT), {d[0], d[1], 1}));
}

// The mask of `length` places: lengths f32 [B] -> f32 [B, L]
inline Value length_mask(Graph& g, Value lengths, int64_t length) {
  std::vector<float> places;
  for (int64_t i = 0; i < length; ++i) places.push_back(static_cast<float>(i));
  Value left = g.sub(g.reshape(lengths, {g.shape(lengths)[0], 1}), g.constant({1, length}, places));
  return g.clamp(left, 0, 1);
}

// Two linears with silu between them; `first` and `second` are their names inside `module`.
inline Value embedder(Graph& g, Value x, const std::string& module, const std::string& first,
                      const std::string& second) {
  return g.linear(g.silu(g.linear(x, module + "." + first)), module + "." + second);
}

// t f32 [B] -> [B, h]; the width of the sinusoid is the input width of the first linear.
inline Value timestep_embedder(Graph& g, Value t, double scale, const std::string& module, const std::string& first,
                               const std::string& second) {
  int64_t width = g.weights().require(module + "." + first + ".weight", {-1, -1})[1];
  return embedder(g, g.timestep_embedding(t, width, 10000.0, scale), module, first, second);
}

// A 1x1 convolution of [N, H, W, C]; files of diffusers store the same numbers as a linear.
inline Value pointwise(Graph& g, Value x, const std::string& module) {
  return g.weights().require(module + ".weight").size() == 2 ? g.linear(x, module) : g.conv2d(x, module);
}

inline void require_pointwise(const Weights& weights, const std::string& module, int64_t out, int64_t in) {
  if (weights.require(module + ".weight").size() == 2)
    weights.require(module + ".weight", {out, in});
  else
    weights.require(module + ".weight", {out, in, 1, 1});
}

}  // namespace lora_host::nn
