// The blocks of NextDiT (Lumina 2, Z-Image, Ideogram 4, OmniGen2), of the image alone, of the text alone, or of both:
//
//   x += tanh(gate) norm2(attention((1 + scale) norm1(x))), and the same with a gated mlp
// Scales and gates are linear in a vector of the time; a block without has neither. Norms are RMS. The keys may have
// fewer heads than the queries.
#pragma once

#include <string>
#include <vector>

#include "nn/mmdit.hpp"

namespace lora_host::nn {

struct NextDit {
  int64_t hidden = 0, keys = 0;  // width; rows of k and of v. Queries have `hidden` rows
  int64_t head_dim = 0;
  int64_t time = 0;  // width of the vector that modulates
  // Names below the block.
  const char *modulation = "adaLN_modulation", *out = "attention.out";
  const char *q_norm = "attention.q_norm", *k_norm = "attention.k_norm";
  std::vector<const char*> qkv = {"attention.qkv"};  // one linear, or three
  const char *norm1 = "attention_norm1", *norm2 = "attention_norm2";
  const char* unmodulated_norm1 = "attention_norm1";  // of a block without scales and gates
  const char *w1 = "feed_forward.w1", *w2 = "feed_forward.w2", *w3 = "feed_forward.w3";
  static constexpr double eps = 1e-5;

  std::vector<int64_t> qkv_rows() const { return {hidden, keys, keys}; }
  const char* norm1_of(bool modulated) const { return modulated ? norm1 : unmodulated_norm1; }
};

// Throws where a block lacks a tensor or has one of another shape; gives their number, which is at least one.
inline int64_t require_next_dit_blocks(const Weights& w, const std::string& part, const NextDit& dit, bool modulated) {
  const std::string first = std::string(".") + dit.qkv[0] + ".weight";
  const int64_t count = w.count(part + ".", first), h = dit.hidden;
  if (count == 0) throw Failure(LH_E_MODEL, "missing tensor " + part + ".0" + first);
  for (int64_t i = 0; i < count; ++i) {
    const std::string block = part + "." + std::to_string(i) + ".";
    const int64_t inner = w.require(block + dit.w1 + ".weight", {-1, h})[0];
    if (dit.qkv.size() == 1)
      w.require_linear(block + dit.qkv[0], h + 2 * dit.keys, h, false);
    else
      for (size_t k = 0; k < dit.qkv.size(); ++k) w.require_linear(block + dit.qkv[k], dit.qkv_rows()[k], h, false);
    w.require_linear(block + dit.out, h, h, false);
    w.require_linear(block + dit.w2, h, inner, false);
    w.require_linear(block + dit.w3, inner, h, false);
    for (const char* norm : {dit.q_norm, dit.k_norm}) w.require(block + norm + ".weight", {dit.head_dim});
    for (const char* norm : {dit.norm1_of(modulated), dit.norm2, "ffn_norm1", "ffn_norm2"})
      w.require(block + norm + ".weight", {h});
    if (modulated) w.require_linear(block + dit.modulation, 4 * h, dit.time);
  }
  return count;
}

// x [B, S, h]; vec [B, time], absent: the block is not modulated. key_lengths as in self_attention.
inline Value next_dit_block(Graph& g, const std::string& name, const NextDit& dit, Value x, Value vec,
                            const RopeTables& rope, Value key_lengths) {
  auto scope = g.scope(name, LH_SCOPE_CHECKPOINT);
  const std::string block = name + ".";
  std::vector<Value> mod(4);  // scale and gate of attention, scale and gate of the mlp
  if (vec) mod = modulation(g, vec, block + dit.modulation, 4);
  const auto read = [&](const char* norm, Value scale) {
    Value y = g.rms_norm(x, block + norm, NextDit::eps);
    return vec ? g.mul(y, g.affine(scale, 1, 1)) : y;
  };
  const auto add = [&](const char* norm, Value gate, Value y) {
    y = g.rms_norm(held(g, y), block + norm, NextDit::eps);
    x = vec ? gated(g, x, g.tanh(gate), y) : g.add(x, y);
  };
  Value y = read(dit.norm1_of(static_cast<bool>(vec)), mod[0]);
  std::vector<Value> rows;
  if (dit.qkv.size() == 1)
    rows = g.split(g.linear(y, block + dit.qkv[0]), -1, dit.qkv_rows());
  else
    for (const char* linear : dit.qkv) rows.push_back(g.linear(y, block + linear));
  const Qkv qkv = heads(g, rows[0], rows[1], rows[2], dit.head_dim, block + dit.q_norm + ".weight",
                        block + dit.k_norm + ".weight", NextDit::eps);
  add(dit.norm2, mod[1], g.linear(self_attention(g, qkv, rope, key_lengths), block + dit.out));
  y = read("ffn_norm1", mod[2]);
  y = held(g, g.mul(g.silu(g.linear(y, block + dit.w1)), g.linear(y, block + dit.w3)));
  add("ffn_norm2", mod[3], g.linear(y, block + dit.w2));
  return x;
}

inline Value next_dit_blocks(Graph& g, const std::string& part, int64_t count, const NextDit& dit, Value x, Value vec,
                             const RopeTables& rope, Value key_lengths = {}) {
  for (int64_t i = 0; i < count; ++i)
    x = next_dit_block(g, part + "." + std::to_string(i), dit, x, vec, rope, key_lengths);
  return x;
}

}  // namespace lora_host::nn
