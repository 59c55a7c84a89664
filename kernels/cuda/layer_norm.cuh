// Layer norm of x [rows, width] whose weight and bias change every `rows_per_weight` rows: one pair for all rows in
// layer_norm, one per image in modulated_norm.
//   y = xh (unit + weight) + bias, xh = (x - mean) rstd
#pragma once

#include "cuda/cuda.h"

namespace lk::cuda {

struct LayerNorm {
  lk_tensor x;
  lk_tensor weight, bias;  // optional, [rows / rows_per_weight, width]; an absent weight leaves the factor at 1
  float unit;              // what is added to the weight: 0 or 1
  int64_t rows_per_weight;
  float eps;
};

void layer_norm_rows(Cuda& cuda, const LayerNorm& norm, const lk_tensor& y);

// Gradients, each optional; dweight and dbias have a row for every row of the weight. norm.bias is not used. dx is
// added to `added`, which may be absent, or dx itself.
void layer_norm_rows_backward(Cuda& cuda, const LayerNorm& norm, const lk_tensor& dy, const lk_tensor& added,
                              const lk_tensor& dx, const lk_tensor& dweight, const lk_tensor& dbias);

}  // namespace lk::cuda
