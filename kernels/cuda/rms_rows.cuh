// RMS norm of x [rows, width] that goes into something of the same pass: its weight has a factor that changes every
// `rows_per_factor` rows, one for each image, and something is added to it. modulated_norm and gated_residual are this
// where they have `rms`:
//   y = added + xh weight (unit + factor), xh = x / sqrt(mean(x^2) + eps)
#pragma once

#include "cuda/cuda.h"

namespace lk::cuda {

struct RmsRows {
  lk_tensor x;
  lk_tensor weight;  // optional, [width]
  lk_tensor factor;  // [rows / rows_per_factor, width]; backward it is needed for dx
  float unit;        // what is added to the factor: 0 or 1
  int64_t rows_per_factor;
  float eps;
};

// added: absent, [rows / rows_per_factor, width], or with `by_row` [rows, width], which y may lie in.
void rms_rows(Cuda& cuda, const RmsRows& norm, const lk_tensor& added, bool by_row, const lk_tensor& y);

// Gradients, each optional; dfactor has a row for every row of the factor. dx is added to `added`, which may be absent,
// or dx itself.
void rms_rows_backward(Cuda& cuda, const RmsRows& norm, const lk_tensor& dy, const lk_tensor& added,
                       const lk_tensor& dx, const lk_tensor& dfactor);

}  // namespace lk::cuda
