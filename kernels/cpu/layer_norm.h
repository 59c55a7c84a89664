// Layer norm of x [rows, cols] whose weight and bias change every `rows_per_weight` rows: one pair for all rows in
// layer_norm, one per image in modulated_norm.
#pragma once

#include "cpu/cpu.h"

namespace lk::cpu {

struct LayerNorm {
  const float* x;
  const float *weight, *bias;  // optional, [rows / rows_per_weight, cols]
  int64_t rows, cols, rows_per_weight;
  float eps;
};

void layer_norm_rows(Cpu& cpu, const LayerNorm& norm, float* y);

// Gradients, each optional; dweight and dbias have a row for every row of the weight. norm.bias is not used. dx is
// added to `added`, which may be absent, or dx itself.
void layer_norm_rows_backward(Cpu& cpu, const LayerNorm& norm, const float* dy, const float* added, float* dx,
                              float* dweight, float* dbias);

}  // namespace lk::cpu
