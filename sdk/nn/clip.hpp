// The CLIP text encoder under its HF names: ids i32 [B, L] -> hidden states [B, L, h] and a pooled vector [B, h].
//
// Pre-norm transformer with causal attention, heads of 64, eps 1e-5. Depth and width follow from the weights; the
// activation does not: CLIP-L has quick gelu, OpenCLIP's larger ones erf gelu. Layers are those of nn/clip_vision.hpp.
#pragma once

#include <cmath>
#include <string>

#include "lora_host/lora_host.hpp"

namespace lora_host::nn {

constexpr double clip_eps = 1e-5;

struct ClipLayer {
  int64_t head_dim = 64;
  const char* activation = "quick";  // mode of gelu/1
  bool causal = true;
  double eps = clip_eps;
};

//   x += out(attention(q, k, v of norm(x)));  x += fc2(gelu(fc1 norm(x)))
inline Value clip_layer(Graph& g, Value x, const std::string& layer, const ClipLayer& is) {
  const Dims d = g.shape(x), split = {d[0], d[1], d[2] / is.head_dim, is.head_dim};
  auto scope = g.scope(layer, LH_SCOPE_CHECKPOINT);
  Value y = g.layer_norm(x, layer + ".layer_norm1", is.eps);
  Value q = g.reshape(g.linear(y, layer + ".self_attn.q_proj"), split);
  Value k = g.reshape(g.linear(y, layer + ".self_attn.k_proj"), split);
  Value v = g.reshape(g.linear(y, layer + ".self_attn.v_proj"), split);
  y = g.attention(q, k, v, 1.0 / std::sqrt(static_cast<double>(is.head_dim)), {}, {}, {}, is.causal);
  x = g.add(x, g.linear(g.reshape(y, d), layer + ".self_attn.out_proj"));
  y = g.linear(g.layer_norm(x, layer + ".layer_norm2", is.eps), layer + ".mlp.fc1");
  return g.add(x, g.linear(g.gelu(y, is.activation), layer + ".mlp.fc2"));
}

struct ClipOutput {
  Value penultimate;  // after the last layer but one, before any final norm [B, L, h]
  Value last;         // after the last layer and the final norm [B, L, h]
  Value pooled;       // `last` at the first end token, projected when there is a projection [B, h]
};

struct ClipOptions {
  const char* activation = "quick";  // mode of gelu/1
  bool projection = false;           // apply text_projection.weight
  int32_t end_token = 49407;
  int64_t skip = 0;  // last layers that the text does not pass: those before them are all there are
};

// Long text in rows [B R, L, h], each with one begin and one end token: the states of its tokens one after another
// between the first begin and the last end, [B, R (L - 2) + 2, h]. So are LoRAs trained on long captions by sd-scripts.
inline Value join_rows(Graph& g, Value states, int64_t rows) {
  if (rows == 1) return states;
  Dims d = g.shape(states);
  int64_t batch = d[0] / rows, length = d[1], hidden = d[2];
  Value all = g.reshape(states, {batch, rows, length, hidden});
  Value text = g.reshape(g.slice(all, 2, 1, length - 2), {batch, rows * (length - 2), hidden});
  Value flat = g.reshape(states, {batch, rows * length, hidden});
  return g.concat({g.slice(flat, 1, 0, 1), text, g.slice(flat, 1, rows * length - 1, 1)}, 1);
}

// Of vectors of rows [B R, h] those of the first one, [B, h].
inline Value first_row(Graph& g, Value vectors, int64_t rows) {
  if (rows == 1) return vectors;
  Dims d = g.shape(vectors);
  Value all = g.reshape(vectors, {d[0] / rows, rows, d[1]});
  return g.reshape(g.slice(all, 1, 0, 1), {d[0] / rows, d[1]});
}

inline ClipOutput clip(Graph& g, Value ids, const std::string& prefix, const ClipOptions& options = {}) {
  Weights weights = g.weights();
  std::string root = prefix + "text_model.";

  Dims d = g.shape(ids);  // [B, L]
  int64_t hidden = weights.require(root + "embeddings.token_embedding.weight", {-1, -1})[1];
  int64_t places = weights.require(root + "embeddings.position_embedding.weight", {-1, hidden})[0];
  if (d[1] > places)
    throw Failure(LH_E_INVALID, prefix + " takes " + std::to_string(places) + " tokens, got " + std::to_string(d[1]));
  Value position = g.param(root + "embeddings.position_embedding.weight");
  if (d[1] < places) position = g.slice(position, 0, 0, d[1]);
  Value x = g.add(g.embedding(ids, root + "embeddings.token_embedding"), position);

  ClipOutput out;
  int64_t layers = weights.count(root + "encoder.layers.", ".layer_norm1.weight") - options.skip;
  if (layers < 1)
    throw Failure(LH_E_SETTING, prefix + " has " + std::to_string(layers + options.skip) + " layers, of which " +
                                    std::to_string(options.skip) + " are to be skipped");
  for (int64_t i = 0; i < layers; ++i) {
    if (i == layers - 1) out.penultimate = x;
    x = clip_layer(g, x, root + "encoder.layers." + std::to_string(i), {.activation = options.activation});
  }
  out.last = g.layer_norm(x, root + "final_layer_norm", clip_eps);
  out.pooled = g.gather(out.last, g.find_first(ids, options.end_token));
  if (options.projection) out.pooled = g.linear(out.pooled, prefix + "text_projection");
  return out;
}

// Throws when a tensor that clip_layer() needs is missing or of another shape. h: of its states.
inline void check_clip_layer(const Weights& weights, const std::string& layer, int64_t h) {
  for (const char* part : {"q_proj", "k_proj", "v_proj", "out_proj"})
    weights.require_linear(layer + ".self_attn." + part, h, h);
  int64_t inner = weights.require(layer + ".mlp.fc1.weight", {-1, h})[0];
  weights.require_linear(layer + ".mlp.fc1", inner, h);
  weights.require_linear(layer + ".mlp.fc2", h, inner);
  for (const char* norm : {".layer_norm1", ".layer_norm2"}) {
    weights.require(layer + norm + ".weight", {h});
    weights.require(layer + norm + ".bias", {h});
  }
}

// Throws when a tensor that clip() needs is missing or of another shape. Gives the hidden size.
inline int64_t check_clip(const Weights& weights, const std::string& prefix) {
  std::string root = prefix + "text_model.";
  int64_t h = weights.require(root + "embeddings.token_embedding.weight", {-1, -1})[1];
  if (h % 64 != 0) throw Failure(LH_E_MODEL, prefix + ": hidden size " + std::to_string(h) + " is not heads of 64");
  weights.require(root + "embeddings.position_embedding.weight", {-1, h});
  int64_t layers = weights.count(root + "encoder.layers.", ".layer_norm1.weight");
  if (layers == 0) throw Failure(LH_E_MODEL, "missing tensor " + root + "encoder.layers.0.layer_norm1.weight");
  for (int64_t i = 0; i < layers; ++i) check_clip_layer(weights, root + "encoder.layers." + std::to_string(i), h);
  weights.require(root + "final_layer_norm.weight", {h});
  return h;
}

}  // namespace lora_host::nn
