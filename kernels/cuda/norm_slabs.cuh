// Gradients of norms of rows [rows, width] that are wide enough for a block each, in one pass over x and dy:
//   y = xh weight (unit + factor) + shift, xh = (x - mean) / sqrt(variance + eps), or x / sqrt(mean(x^2) + eps)
// where factor and shift have a row for every `rows_per_factor` rows.
#pragma once

#include "cuda/column_sums.cuh"

namespace lk::cuda {

struct NormSlabs {
  lk_tensor x;
  lk_tensor weight, factor;  // optional: [width] and [rows / rows_per_factor, width]
  float unit;                // 1 where the factor is absent
  int64_t rows_per_factor;
  float eps;
  bool centered;  // the mean is taken off
};

// Whether it can be done so: 16-bit x and dy of one type, capability 8.0, neither few nor too many columns. While
// measuring, addresses say nothing and it may.
bool norm_slabs_fit(const Cuda& cuda, const NormSlabs& norm, const lk_tensor& dy, const lk_tensor& dx);

// dx is optional; sums[0] = weight sum dy xh and sums[1] = sum dy, or none of them. Without `centered` there is no
// sums[1].
void norm_slabs_backward(Cuda& cuda, const NormSlabs& norm, const lk_tensor& dy, const lk_tensor& dx, const Sums& sums);

}  // namespace lk::cuda
