// RMS norm of x [rows, cols] whose weight changes every `rows_per_weight` rows: one for all rows in rms_norm, one per
// image in modulated_norm and gated_residual with `rms`, which multiply the norm's own weight with their factor.
#pragma once

#include "cpu/cpu.h"

namespace lk::cpu {

struct RmsNorm {
  const float* x;
  const float* weight;  // optional, [rows / rows_per_weight, cols]
  int64_t rows, cols, rows_per_weight;
  float eps;
};

// What is added to a result: a row for every `rows_per_row` rows, which may be y itself where that is 1.
struct Added {
  const float* data = nullptr;
  int64_t rows_per_row = 1;
};

void rms_norm_rows(Cpu& cpu, const RmsNorm& norm, const Added& added, float* y);

// Gradients, each optional; dweight has a row for every row of the weight. dx is added to `added`, which may be absent,
// or dx itself.
void rms_norm_rows_backward(Cpu& cpu, const RmsNorm& norm, const float* dy, const float* added, float* dx,
                            float* dweight);

// The weight of a norm with `factor` [images, cols] behind it: (unit + factor) own, own [cols] being optional.
void combine_weights(const float* own, const float* factor, float unit, int64_t images, int64_t cols, float* weight);

// The gradient of `factor` from that of the weight, in place: times own.
void factor_gradient(const float* own, int64_t images, int64_t cols, float* gradient);

}  // namespace lk::cpu
