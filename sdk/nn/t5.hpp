// The encoder of T5 v1.1 and of UMT5: ids i32 [B, L] -> hidden states [B, L, d] after the final norm.
//
// Attention has no 1/sqrt(d), and a mask only where key_lengths i32 [B] are given (keys at and after it are not seen,
// as with an attention mask over tokens that are padded on the right); the relative position bias of block 0 is added
// in every block, in UMT5, which has a table in each block, the block's own: place j seen from place i falls into one
// of 32 buckets by j - i (16 for each direction: 8 exact, the rest logarithmic up to 128). MLP: wo(gelu_tanh(wi_0 x) *
// wi_1 x). All norms are RMS, eps 1e-6. Heads = columns of the bias table.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "lora_host/lora_host.hpp"

namespace lora_host::nn {

// Bucket of key place - query place. The logarithm is taken in float32, as T5 was trained.
inline int32_t t5_bucket(int64_t offset, int64_t buckets = 32, int64_t max_distance = 128) {
  int64_t half = buckets / 2, exact = half / 2, distance = std::abs(offset);
  int64_t bucket = distance;
  if (distance >= exact) {
    float ratio = std::log(static_cast<float>(distance) / static_cast<float>(exact)) /
                  static_cast<float>(std::log(static_cast<double>(max_distance) / static_cast<double>(exact)));
    bucket = std::min(half - 1, exact + static_cast<int64_t>(ratio * static_cast<float>(half - exact)));
  }
  return static_cast<int32_t>(bucket + (offset > 0 ? half : 0));
}

// i32 [L, L]: the bucket of each key (column) for each query (row).
inline Value t5_buckets(Graph& g, int64_t length) {
  std::vector<int32_t> buckets;
  for (int64_t i = 0; i < length; ++i)
    for (int64_t j = 0; j < length; ++j) buckets.push_back(t5_bucket(j - i));
  return g.constant({length, length}, buckets);
}

// [1, H, L, L] of the table [32, H]
inline Value t5_position_bias(Graph& g, const std::string& table, Value buckets) {
  Value bias = g.permute(g.embedding(buckets, g.param(table)), {2, 0, 1});
  const Dims d = g.shape(bias);
  return g.reshape(bias, {1, d[0], d[1], d[2]});
}

inline std::string t5_table(const std::string& prefix, int64_t block = 0) {
  return prefix + "encoder.block." + std::to_string(block) + ".layer.0.SelfAttention.relative_attention_bias.weight";
}

// UMT5: every block has a table.
inline bool t5_has_own_tables(const Weights& weights, const std::string& prefix) {
  return weights.has(t5_table(prefix, 1));
}

inline Value t5(Graph& g, Value ids, const std::string& prefix, Value key_lengths = {}) {
  constexpr double eps = 1e-6;
  Weights weights = g.weights();
  Dims d = g.shape(ids);  // [B, L]
  std::string words = weights.has(prefix + "shared.weight") ? "shared" : "encoder.embed_tokens";
  int64_t head_count = weights.require(t5_table(prefix), {32, -1})[1];
  const Value buckets = t5_buckets(g, d[1]);
  const bool own_tables = t5_has_own_tables(weights, prefix);
  Value bias = t5_position_bias(g, t5_table(prefix), buckets);
  Value x = g.embedding(ids, prefix + words);  // [B, L, d]

  int64_t blocks = weights.count(prefix + "encoder.block.", ".layer.0.layer_norm.weight");
  for (int64_t i = 0; i < blocks; ++i) {
    std::string block = prefix + "encoder.block." + std::to_string(i);
    auto scope = g.scope(block, LH_SCOPE_CHECKPOINT);
    std::string attention = block + ".layer.0.SelfAttention", dense = block + ".layer.1.DenseReluDense";
    int64_t inner = weights.require(attention + ".q.weight", {-1, -1})[0];
    Dims split = {d[0], d[1], head_count, inner / head_count};
    Value y = g.rms_norm(x, block + ".layer.0.layer_norm", eps);
    Value q = g.reshape(g.linear(y, attention + ".q"), split);
    Value k = g.reshape(g.linear(y, attention + ".k"), split);
    Value v = g.reshape(g.linear(y, attention + ".v"), split);
    if (own_tables && i > 0) bias = t5_position_bias(g, t5_table(prefix, i), buckets);
    y = g.reshape(g.attention(q, k, v, 1.0, bias, key_lengths), {d[0], d[1], inner});
    x = g.add(x, g.linear(y, attention + ".o"));
    y = g.rms_norm(x, block + ".layer.1.layer_norm", eps);
    y = g.mul(g.gelu(g.linear(y, dense + ".wi_0"), "tanh"), g.linear(y, dense + ".wi_1"));
    x = g.add(x, g.linear(y, dense + ".wo"));
  }
  return g.rms_norm(x, prefix + "encoder.final_layer_norm", eps);
}

// Throws when a tensor that t5() needs is missing or of another shape. Gives the width of the hidden states.
inline int64_t check_t5(const Weights& weights, const std::string& prefix) {
  std::string words = weights.has(prefix + "encoder.embed_tokens.weight") && !weights.has(prefix + "shared.weight")
                          ? "encoder.embed_tokens.weight"
                          : "shared.weight";
  int64_t d = weights.require(prefix + words, {-1, -1})[1];
  int64_t head_count = weights.require(t5_table(prefix), {32, -1})[1];
  const bool own_tables = t5_has_own_tables(weights, prefix);
  int64_t blocks = weights.count(prefix + "encoder.block.", ".layer.0.layer_norm.weight");
  for (int64_t i = 0; i < blocks; ++i) {
    std::string block = prefix + "encoder.block." + std::to_string(i);
    std::string attention = block + ".layer.0.SelfAttention", dense = block + ".layer.1.DenseReluDense";
    if (own_tables) weights.require(t5_table(prefix, i), {32, head_count});
    int64_t inner = weights.require(attention + ".q.weight", {-1, d})[0];
    if (inner % head_count != 0)
      throw Failure(LH_E_MODEL, attention + ".q.weight: " + std::to_string(inner) + " rows are not " +
                                    std::to_string(head_count) + " heads");
    for (const char* part : {".k", ".v"}) weights.require_linear(attention + part, inner, d, false);
    weights.require_linear(attention + ".o", d, inner, false);
    int64_t wide = weights.require(dense + ".wi_0.weight", {-1, d})[0];
    weights.require_linear(dense + ".wi_1", wide, d, false);
    weights.require_linear(dense + ".wo", d, wide, false);
    for (const char* norm : {".layer.0.layer_norm.weight", ".layer.1.layer_norm.weight"})
      weights.require(block + norm, {d});
  }
  weights.require(prefix + "encoder.final_layer_norm.weight", {d});
  return d;
}

}  // namespace lora_host::nn
