// What attention.cpp and attention_kernels.cu share.
#pragma once

#include "cuda/cuda.h"

namespace lk::cuda {

// Float32 arithmetic for every type, shape, bias and mask; sums in a fixed order. No workspace but for the backward
// pass, which takes float32 [B, H, Sq].
void attention_by_kernels(Cuda& cuda, const lk_attention_params& p);
void attention_backward_by_kernels(Cuda& cuda, const lk_attention_backward_params& p);

// cuDNN wants the lengths of queries and keys, none of them 0. Item b's are written at b * spacing: all `queries`, and
// lengths[b] within 1 .. keys (all keys where `lengths` is nullptr).
void write_lengths(Cuda& cuda, const int32_t* lengths, int64_t batch, int64_t queries, int64_t keys, int64_t spacing,
                   int32_t* query_lengths, int32_t* key_lengths);

// Sets what no query sees to `value`, in y [batch, rows, width]: rows at and after lengths[b], or, for rows that are
// not keys, all rows of an item of length 0.
void blank_rows(Cuda& cuda, const int32_t* lengths, int64_t batch, int64_t rows, int64_t width, bool rows_are_keys,
                float value, void* y, lk_dtype dtype);

}  // namespace lk::cuda
