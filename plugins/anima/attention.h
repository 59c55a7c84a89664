// The attention that transformer and adapter have in common: RMS norms of the heads of q and k, rotary positions in
// halves (i, i + D/2), no biases.
#pragma once

#include <cmath>

#include "nn/layers.hpp"
#include "nn/rope.hpp"

namespace anima {

constexpr double eps = 1e-6;  // of all norms

struct Sequence {
  lora_host::Value rows;              // [B, S, h]
  lora_host::nn::RopeTables rope;     // of its places; none: it has no places
  lora_host::Value key_lengths = {};  // i32 [B]: rows that are there, which come first; none: all
};

// Rows of `x` ask those of `seen`, which are the same in self attention. `out`: the last linear's name in `module`.
inline lora_host::Value attention(lora_host::Graph& g, const std::string& module, const char* out, const Sequence& x,
                                  const Sequence& seen) {
  namespace nn = lora_host::nn;
  using lora_host::Value;
  const int64_t width = g.weights().require(module + ".q_norm.weight", {-1})[0];
  const auto placed = [&](const Sequence& from, const char* name) {
    Value heads = nn::split_heads(g, g.linear(from.rows, module + "." + name + "_proj"), width);
    heads = g.rms_norm(heads, module + "." + name + "_norm", eps);
    return from.rope.cos ? g.rope(heads, from.rope.cos, from.rope.sin, false) : heads;
  };
  Value q = placed(x, "q"), k = placed(seen, "k");
  Value v = nn::split_heads(g, g.linear(seen.rows, module + ".v_proj"), width);
  Value y = g.attention(q, k, v, 1 / std::sqrt(static_cast<double>(width)), {}, seen.key_lengths);
  return g.linear(nn::merge_heads(g, y), module + "." + out);
}

// fc2(gelu(fc1 x)), with the exact gelu.
inline lora_host::Value mlp(lora_host::Graph& g, lora_host::Value x, const std::string& fc1, const std::string& fc2) {
  return g.linear(g.gelu(g.linear(x, fc1), "erf"), fc2);
}

}  // namespace anima
