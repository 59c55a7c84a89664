// Which pairs of attention see each other and what a score is made of, for own kernels that take every form of it.
#pragma once

#include <cstdint>

#include "cuda/attention.h"
#include "cuda/types.cuh"

namespace lk::cuda {

struct Scores {
  In bias;  // data nullptr: none
  int64_t bias_batch, bias_head;
  const int32_t *key_lengths, *key_mask;  // nullptr: every key is seen
  int64_t queries, keys;
  float scale, soft_cap;
  bool causal;
};

template <class Params>
Scores scores_of(const Params& p) {
  const int64_t plane = p.q.dims[1] * p.k.dims[1];
  const bool biased = present(p.bias);
  return {.bias = in(p.bias),
          .bias_batch = biased && p.bias.dims[0] > 1 ? p.bias.dims[1] * plane : 0,
          .bias_head = biased && p.bias.dims[1] > 1 ? plane : 0,
          .key_lengths = static_cast<const int32_t*>(p.key_lengths.data),
          .key_mask = static_cast<const int32_t*>(p.key_mask.data),
          .queries = p.q.dims[1],
          .keys = p.k.dims[1],
          .scale = p.scale,
          .soft_cap = p.soft_cap,
          .causal = p.causal != 0};
}

// Keys of an item, from the first on.
__device__ inline int64_t length_of(const Scores& s, int64_t batch) {
  if (s.key_lengths == nullptr) return s.keys;
  return min(max(static_cast<int64_t>(s.key_lengths[batch]), int64_t{0}), s.keys);
}

// `length`: length_of the item.
__device__ inline bool visible(const Scores& s, int64_t batch, int64_t length, int64_t query, int64_t key) {
  return query < s.queries && key < length && (!s.causal || key <= query) &&
         (s.key_mask == nullptr || s.key_mask[batch * s.keys + key] != 0);
}

struct Score {
  float value, slope;  // slope: derivative of the value by scale q k^T
};

// From the product q k^T of a pair that is visible; `head` is one of q.
__device__ inline Score score(const Scores& s, int64_t batch, int64_t head, int64_t query, int64_t key, float product) {
  Score y{s.scale * product, 1.0f};
  if (s.soft_cap > 0.0f) {
    const float t = tanhf(y.value / s.soft_cap);
    y = {s.soft_cap * t, 1.0f - t * t};
  }
  if (s.bias.data != nullptr) y.value += load(s.bias, batch * s.bias_batch + head * s.bias_head + query * s.keys + key);
  return y;
}

}  // namespace lk::cuda
