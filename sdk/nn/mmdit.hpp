// Parts of multimodal diffusion transformers: patches, positions, modulation, joint attention.
//
// Tokens are [B, S, h]. A modulation vector [B, n h] is cut into n pieces [B, 1, h] that broadcast over the tokens:
//   y = (1 + scale) * layer_norm(x) + shift;   x = x + gate * f(y)
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "nn/layers.hpp"
#include "nn/rope.hpp"

namespace lora_host::nn {

// "b (h p) (w p) c -> b (h w) (c p p)": the channel is the slowest part of a token.
inline Value patchify_channel_first(Graph& g, Value x, int64_t p) {
  Dims d = g.shape(x);  // [B, H, W, C]
  int64_t h = d[1] / p, w = d[2] / p;
  if (h * p != d[1] || w * p != d[2])
    throw Failure(LH_E_SETTING, "latents " + dims_text(d) + " do not divide into patches of " + std::to_string(p));
  Value cut = g.reshape(x, {d[0], h, p, w, p, d[3]});
  return g.reshape(g.permute(cut, {0, 1, 3, 5, 2, 4}), {d[0], h * w, d[3] * p * p});  // [B, h w, C p p]
}

// The inverse, for an image of height x width.
inline Value unpatchify_channel_first(Graph& g, Value x, int64_t height, int64_t width, int64_t p) {
  Dims d = g.shape(x);  // [B, h w, C p p]
  int64_t h = height / p, w = width / p, c = d[2] / (p * p);
  Value cut = g.reshape(x, {d[0], h, w, c, p, p});
  return g.reshape(g.permute(cut, {0, 1, 4, 2, 5, 3}), {d[0], height, width, c});
}

// "b (h p) (w q) c -> b (h w) (p q c)": the channel is the fastest part of a token.
inline Value patchify_channel_last(Graph& g, Value x, int64_t p) {
  Dims d = g.shape(x);  // [B, H, W, C]
  int64_t h = d[1] / p, w = d[2] / p;
  if (h * p != d[1] || w * p != d[2])
    throw Failure(LH_E_SETTING, "latents " + dims_text(d) + " do not divide into patches of " + std::to_string(p));
  Value cut = g.reshape(x, {d[0], h, p, w, p, d[3]});
  return g.reshape(g.permute(cut, {0, 1, 3, 2, 4, 5}), {d[0], h * w, p * p * d[3]});  // [B, h w, p p C]
}

// The inverse, for an image of height x width.
inline Value unpatchify_channel_last(Graph& g, Value x, int64_t height, int64_t width, int64_t p) {
  Dims d = g.shape(x);  // [B, h w, p p C]
  int64_t h = height / p, w = width / p, c = d[2] / (p * p);
  Value cut = g.reshape(x, {d[0], h, w, p, p, c});
  return g.reshape(g.permute(cut, {0, 1, 3, 2, 4, 5}), {d[0], height, width, c});
}

// Places of a stored grid of position embeddings: height x width of them, from (top, left).
struct GridCrop {
  int64_t top, left, height, width;
};

// Those of the grid [1, side side, C] called `name` -> [1, height width, C]. patch: latent places of one, each way.
inline Value cropped_positions(Graph& g, const std::string& name, int64_t side, const GridCrop& crop, int64_t patch) {
  if (crop.height > side || crop.width > side) {
    const std::string largest = std::to_string(side * patch);
    throw Failure(LH_E_SETTING, "latents of " + std::to_string(crop.height * patch) + "x" +
                                    std::to_string(crop.width * patch) + ": " + name + " has positions for at most " +
                                    largest + "x" + largest + "; use smaller images");
  }
  Value table = g.param(name);
  int64_t channels = g.shape(table)[2];
  Value grid = g.slice(g.reshape(table, {1, side, side, channels}), 1, crop.top, crop.height);
  return g.reshape(g.slice(grid, 2, crop.left, crop.width), {1, crop.height * crop.width, channels});
}

// [B, pieces h] -> [B, 1, h] each
inline std::vector<Value> modulation_pieces(Graph& g, Value all, int64_t pieces) {
  Dims d = g.shape(all);
  return g.split(g.reshape(all, {d[0], 1, d[1]}), -1, std::vector<int64_t>(static_cast<size_t>(pieces), d[1] / pieces));
}

// Pieces [B, 1, h] of lin(activated), where activated = silu(vec) [B, h].
inline std::vector<Value> modulation(Graph& g, Value activated, const std::string& module, int64_t pieces) {
  Value all = g.linear(activated, module);
  int64_t rows = g.shape(all)[1];
  if (rows % pieces != 0)
    throw Failure(LH_E_MODEL,
                  module + ": " + std::to_string(rows) + " rows are not " + std::to_string(pieces) + " parts");
  return modulation_pieces(g, all, pieces);
}

// (1 + scale) * layer_norm(x) + shift, the norm without weights.
inline Value modulated_norm(Graph& g, Value x, Value shift, Value scale, double eps = 1e-6) {
  return g.add(g.mul(g.layer_norm(x, eps), g.affine(scale, 1.0, 1.0)), shift);
}

// x + gate * y
inline Value gated(Graph& g, Value x, Value gate, Value y) { return g.add(x, g.mul(gate, y)); }

struct Qkv {
  Value q, k, v;  // [B, S, H, D]; without q the tokens are seen and ask nothing
};

// Heads of q (which may be absent), k and v, with RMS norms over the head dimension on q and k (weights by full name;
// "" = no norm).
inline Qkv heads(Graph& g, Value q, Value k, Value v, int64_t head_dim, const std::string& q_norm,
                 const std::string& k_norm, double eps = 1e-6) {
  Qkv out{q ? split_heads(g, q, head_dim) : q, split_heads(g, k, head_dim), split_heads(g, v, head_dim)};
  if (q && !q_norm.empty()) out.q = g.rms_norm(out.q, eps, g.param(q_norm));
  if (!k_norm.empty()) out.k = g.rms_norm(out.k, eps, g.param(k_norm));
  return out;
}

// One linear whose rows are q, k, v.
inline Qkv fused_qkv(Graph& g, Value x, const std::string& module, int64_t head_dim, const std::string& q_norm,
                     const std::string& k_norm, double eps = 1e-6) {
  Value all = g.linear(x, module);
  int64_t h = g.shape(all)[2] / 3;
  std::vector<Value> parts = g.split(all, -1, {h, h, h});
  return heads(g, parts[0], parts[1], parts[2], head_dim, q_norm, k_norm, eps);
}

// Two streams as one sequence, `first` in front; without q of the second, `first` alone asks.
inline Qkv concat_tokens(Graph& g, const Qkv& first, const Qkv& second) {
  Value q = second.q ? g.concat({first.q, second.q}, 1) : first.q;
  return {q, g.concat({first.k, second.k}, 1), g.concat({first.v, second.v}, 1)};
}

// Rotary embedding of q, where tokens ask, and k; as they are without tables.
inline Qkv rotated(Graph& g, Qkv x, const RopeTables& rope) {
  if (!rope.cos) return x;
  if (x.q) x.q = g.rope(x.q, rope.cos, rope.sin, rope.interleaved);
  x.k = g.rope(x.k, rope.cos, rope.sin, rope.interleaved);
  return x;
}

// softmax(q k^T / sqrt(D)) v, with rotary embedding of q and k when tables are given -> [B, S, h]. key_lengths i32 [B]:
// keys at and after it are not seen. Without tables, queries may be those of the first tokens alone.
inline Value self_attention(Graph& g, const Qkv& x, const RopeTables& rope = {}, Value key_lengths = {}) {
  Qkv at = rotated(g, x, rope);
  double scale = 1.0 / std::sqrt(static_cast<double>(g.shape(at.q)[3]));
  return merge_heads(g, g.attention(at.q, at.k, at.v, scale, {}, key_lengths));
}

// fc2(gelu_tanh(fc1 x))
inline Value mlp(Graph& g, Value x, const std::string& fc1, const std::string& fc2) {
  return g.linear(g.gelu(g.linear(x, fc1), "tanh"), fc2);
}

// One stream of a joint block: tokens with weights of their own, which attend together with those of another stream.
//
//   mod = modulation(vec);  q, k, v = qkv((1 + mod[1]) norm(x) + mod[0]);  joint attention over both streams
//   x = x + mod[2] proj(attention);  x = x + mod[5] mlp((1 + mod[4]) norm(x) + mod[3])
//
// Calls in this order: qkv, attend, feed_forward. A stream whose result nobody needs stops after qkv. Its tokens may be
// in parts, one after the other, that have vectors of their own and go through the same layers together.
class JointStream {
 public:
  struct Names {  // of modules; the norms by their weights, "" = none
    std::string modulation = {}, qkv = {}, q_norm = {}, k_norm = {}, proj = {}, fc1 = {}, fc2 = {};
    std::string q = {}, k = {}, v = {};  // in the place of qkv: linears of their own, without q none
  };
  JointStream(Graph& g, Names names, Value x) : JointStream(g, std::move(names), std::vector<Value>{x}) {}
  JointStream(Graph& g, Names names, std::vector<Value> parts)
      : g_(g), names_(std::move(names)), parts_(std::move(parts)) {}

  // activated = silu(vec); `pieces` of the modulation: 2 without attend and feed_forward, 6, or more for what a family
  // adds.
  Qkv qkv(Value activated, int64_t pieces, int64_t head_dim) {
    return qkv(modulation(g_, activated, names_.modulation, pieces), head_dim);
  }
  // ... made elsewhere
  Qkv qkv(std::vector<Value> mod, int64_t head_dim) { return qkv_of_parts({std::move(mod)}, head_dim); }
  // ... of each part
  Qkv qkv_of_parts(std::vector<std::vector<Value>> mods, int64_t head_dim) {
    mods_ = std::move(mods);
    Value y = modulated(0, 1);
    if (!names_.qkv.empty()) return fused_qkv(g_, y, names_.qkv, head_dim, names_.q_norm, names_.k_norm);
    Value q = names_.q.empty() ? Value{} : g_.linear(y, names_.q);
    Value k = g_.linear(y, names_.k), v = g_.linear(y, names_.v);
    return heads(g_, q, k, v, head_dim, names_.q_norm, names_.k_norm);
  }
  // The first n tokens alone go on, of the first part: the others had to be seen.
  void keep(int64_t n) {
    parts_.resize(1);
    if (g_.shape(x())[1] > n) parts_[0] = g_.slice(x(), 1, 0, n);
  }
  void attend(Value attention) { add(2, g_.linear(attention, names_.proj)); }
  void feed_forward() { add(5, mlp(g_, modulated(3, 4), names_.fc1, names_.fc2)); }

  // x + mod[piece] * y
  void add(size_t piece, Value y) {
    std::vector<int64_t> lengths;
    for (Value part : parts_) lengths.push_back(g_.shape(part)[1]);
    const std::vector<Value> ys = parts_.size() == 1 ? std::vector<Value>{y} : g_.split(y, 1, lengths);
    for (size_t i = 0; i < parts_.size(); ++i) parts_[i] = gated(g_, parts_[i], mods_[i][piece], ys[i]);
  }
  Value x() const { return parts_[0]; }
  const std::vector<Value>& parts() const { return parts_; }
  Value mod(size_t piece) const { return mods_[0][piece]; }

 private:
  // (1 + mod[scale]) norm(x) + mod[shift]
  Value modulated(size_t shift, size_t scale) {
    std::vector<Value> ys;
    for (size_t i = 0; i < parts_.size(); ++i)
      ys.push_back(modulated_norm(g_, parts_[i], mods_[i][shift], mods_[i][scale]));
    return ys.size() == 1 ? ys[0] : g_.concat(ys, 1);
  }

  Graph& g_;
  Names names_;
  std::vector<Value> parts_;              // [B, S, h] each
  std::vector<std::vector<Value>> mods_;  // of each part: [B, 1, h] each
};

// Attention over both sequences as one, `first` in front; the results of each that asks.
struct JointAttention {
  Value first, second;  // [B, S, h]
};

// Rotary tables of either stream. Cut once for a whole model: pieces of constants are copies.
struct JointRope {
  RopeTables first, second;
};

// `rope` of both as one sequence, whose first `length` tokens are the first stream.
inline JointRope joint_rope(Graph& g, const RopeTables& rope, int64_t length) {
  const Dims d = g.shape(rope.cos);  // [S, D/2] or [B, S, D/2]
  return {rope_rows(g, rope, 0, length), rope_rows(g, rope, length, d[d.size() - 2] - length)};
}

// Each stream is rotated before they are one sequence, right behind its norms: the host makes one pass of the two.
inline JointAttention joint_attention(Graph& g, const Qkv& first, const Qkv& second, const JointRope& rope = {},
                                      Value key_lengths = {}) {
  Value all = self_attention(g, concat_tokens(g, rotated(g, first, rope.first), rotated(g, second, rope.second)), {},
                             key_lengths);
  if (!second.q) return {all, {}};
  std::vector<Value> parts = g.split(all, 1, {g.shape(first.q)[1], g.shape(second.q)[1]});
  return {parts[0], parts[1]};
}

}  // namespace lora_host::nn
