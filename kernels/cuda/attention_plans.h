// cuDNN's plans for attention: the graphs that describe it, and what their tensors are called.
#pragma once

#include <limits>

#include "cuda/attention.h"
#include "cuda/dnn.h"

namespace lk::cuda {

// What one call of a plan computes: `batch` items and `heads` of the tensors' `all_heads`; as many heads of k and v, or
// all of them where they are fewer (`key_heads`).
struct AttentionShape {
  int64_t batch, queries, keys, heads, key_heads, width;
};

// How the tensors of the backward pass lie; those of the forward pass are the first four.
struct AttentionPlaces {
  Spacing q, k, v, o, d_o{}, dq{}, dk{}, dv{};
};

struct AttentionMasks {
  bool lengths, causal;
};

// The tensors of a plan, by which cuDNN finds their data.
enum AttentionId : int64_t {
  q_id = 1,
  k_id,
  v_id,
  o_id,
  lse_id,
  scale_id,
  query_lengths_id,
  key_lengths_id,
  lowest_id,
  d_o_id,
  dq_id,
  dk_id,
  dv_id,
  one_id,
  delta_id,
  dq_sum_id
};

// The values of `one_id` and `lowest_id`.
constexpr float one = 1.0f, lowest = std::numeric_limits<float>::lowest();

// Before 9.15.1 the backward pass gives NaN where the lengths are no multiple of its tile and nothing is masked.
bool mask_needed(const AttentionShape& s);

// nullptr where cuDNN has none. Tensors are of `dtype`, bf16 or f16. The plan of the forward pass is for inference and
// training alike; `in_order` asks for a backward pass whose sums have one order.
const DnnPlan* forward_plan(Cuda& cuda, const AttentionShape& s, const AttentionPlaces& at, lk_dtype dtype,
                            const AttentionMasks& masks);
const DnnPlan* backward_plan(Cuda& cuda, const AttentionShape& s, const AttentionPlaces& at, lk_dtype dtype,
                             const AttentionMasks& masks, bool in_order);

}  // namespace lk::cuda
