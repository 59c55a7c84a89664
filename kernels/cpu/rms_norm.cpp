// RMS norm over the last axis C of x [M, C]: y = x r w, r = 1 / sqrt(mean(x^2) + eps).
// Backward, with g = dy w:  dx = r (g - x r^2 mean(g x)),  dw = sum dy x r.
#include "cpu/column_sums.h"
#include "cpu/convert.h"
#include "cpu/row_math.h"

namespace lk::cpu {

namespace {

float inverse_rms(const float* x, int64_t n, float eps) {
  return static_cast<float>(1.0 / std::sqrt(row_dot(x, x, n) / static_cast<double>(n) + static_cast<double>(eps)));
}

void input_gradient(const float* dy, const float* x, float r, const float* weight, int64_t n, float* dx) {
  if (weight != nullptr) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) dx[i] = dy[i] * weight[i];
  } else {
    std::memcpy(dx, dy, static_cast<size_t>(n) * sizeof(float));
  }
  const double projection = row_dot(dx, x, n) / static_cast<double>(n);
  const float factor = static_cast<float>(projection * static_cast<double>(r) * static_cast<double>(r));
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) dx[i] = r * (dx[i] - x[i] * factor);
}

}  // namespace

void rms_norm(Cpu& cpu, const lk_rms_norm_params& p) {
  const int64_t cols = last_dim(p.x), rows = numel(p.x) / cols;
  const FloatIn x(cpu, p.x), weight(cpu, p.weight);
  const FloatOut y(cpu, p.y);
  parallel_for(cpu, rows, cols, [&](int64_t begin, int64_t end) {
    const float* const w = weight;
    for (int64_t row = begin; row < end; ++row) {
      const float* const values = x + row * cols;
      float* const out = y + row * cols;
      const float r = inverse_rms(values, cols, p.eps);
      if (w != nullptr) {
#pragma omp simd
        for (int64_t i = 0; i < cols; ++i) out[i] = values[i] * r * w[i];
      } else {
#pragma omp simd
        for (int64_t i = 0; i < cols; ++i) out[i] = values[i] * r;
      }
    }
  });
}

void rms_norm_backward(Cpu& cpu, const lk_rms_norm_backward_params& p) {
  const int64_t cols = last_dim(p.x), rows = numel(p.x) / cols;
  const FloatIn dy(cpu, p.dy), x(cpu, p.x), weight(cpu, p.weight);
  const FloatOut dx(cpu, p.dx), dweight(cpu, p.dweight);
  const Scratch<float> scale(cpu, rows);
  parallel_for(cpu, rows, cols, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float r = scale.data()[row] = inverse_rms(x + row * cols, cols, p.eps);
      if (dx != nullptr) input_gradient(dy + row * cols, x + row * cols, r, weight, cols, dx + row * cols);
    }
  });
  if (dweight == nullptr) return;
  const Scratch<double> sums(cpu, cols);
  column_sums(cpu, rows, cols, sums.data(), [&](int64_t row, double* own) {
    const float r = scale.data()[row];
    const float *const g = dy + row * cols, *const values = x + row * cols;
#pragma omp simd
    for (int64_t c = 0; c < cols; ++c) own[c] += static_cast<double>(g[c] * (values[c] * r));
  });
  for (int64_t c = 0; c < cols; ++c) dweight[c] = static_cast<float>(sums.data()[c]);
}

}  // namespace lk::cpu
