// What attention.cpp and its kernels share.
#pragma once

#include "cuda/cuda.h"

namespace lk::cuda {

// How [B, S, H, D] lies: numbers from one item to the next, and from one row of a head to the next.
struct Spacing {
  int64_t item, row;
};
Spacing spacing_of(const lk_tensor& x);
// Whether the heads of a row are neighbours, and rows of 16-bit numbers begin at multiples of 16 bytes from the first.
bool heads_in_lines(const lk_tensor& x);

// Float32 arithmetic for every type, shape, bias, mask and cap; sums in a fixed order. No workspace but for the
// backward pass, which takes delta. Dense tensors.
void attention_by_kernels(Cuda& cuda, const lk_attention_params& p);
void attention_backward_by_kernels(Cuda& cuda, const lk_attention_backward_params& p);

// Matrix instructions on 16-bit numbers, of heads up to 256 wide with any bias, mask and cap; sums in a fixed order,
// and the same workspace. Dense tensors. Return false, having done nothing, for other calls.
bool attention_by_fragments(Cuda& cuda, const lk_attention_params& p);
bool attention_backward_by_fragments(Cuda& cuda, const lk_attention_backward_params& p);

// delta = sum_d(do o), scratch [B, H, Sq]. Dense tensors.
const float* attention_delta(Cuda& cuda, const lk_attention_backward_params& p);

// cuDNN wants the lengths of queries and keys, none of them 0. Item b's are written at b * spacing: all `queries`, and
// lengths[b] within 1 .. keys (all keys where `lengths` is nullptr).
void write_lengths(Cuda& cuda, const int32_t* lengths, int64_t batch, int64_t queries, int64_t keys, int64_t spacing,
                   int32_t* query_lengths, int32_t* key_lengths);

// Sets what no query sees to `value`, in y [batch, rows, width]: rows at and after lengths[b], or, for rows that are
// not keys, all rows of an item of length 0.
void blank_rows(Cuda& cuda, const int32_t* lengths, int64_t batch, int64_t rows, int64_t width, bool rows_are_keys,
                float value, void* y, lk_dtype dtype);

// Where copies of keys lie: in each item the `counts[b]` seen ones first, in their order. Both nullptr: all keys are
// seen and none moves.
struct KeyPlaces {
  int32_t *places = nullptr, *counts = nullptr;  // scratch [B, Sk] and [B]
};

// Of the keys that `mask` [B, Sk] and `lengths` [B] (may be absent) allow.
KeyPlaces place_keys(Cuda& cuda, const lk_tensor& mask, const lk_tensor& lengths);

// x [B, Sk, Hk, D] of 16 bit, D a multiple of 8 -> scratch [B, Sk, Hk * group, D]: every head `group` times, rows at
// their places, zeros in the places of keys that are not seen.
lk_tensor copy_keys(Cuda& cuda, const lk_tensor& x, int64_t group, const KeyPlaces& places);

// The way back for a gradient dy of such a copy: dx = sums over the group in float32 and in order, 0 for keys that are
// not seen. What lies in dy at their places is not read.
void collect_key_gradient(Cuda& cuda, const lk_tensor& dy, int64_t group, const KeyPlaces& places, const lk_tensor& dx);

}  // namespace lk::cuda
