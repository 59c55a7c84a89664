// RMS norm over the last axis C of x [M, C]: y = x r w, r = 1 / sqrt(mean(x^2) + eps).
// Backward, with g = dy w:  dx = r (g - x r^2 mean(g x)),  dw = sum dy x r.
#include "cpu/rms_norm.h"

#include <vector>

#include "cpu/column_sums.h"
#include "cpu/convert.h"
#include "cpu/row_math.h"

namespace lk::cpu {

namespace {

float inverse_rms(const float* x, int64_t n, float eps) {
  return static_cast<float>(1.0 / std::sqrt(row_dot(x, x, n) / static_cast<double>(n) + static_cast<double>(eps)));
}

void normalize(const float* x, float r, const float* weight, int64_t n, float* y) {
  if (weight != nullptr) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] = x[i] * r * weight[i];
  } else {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] = x[i] * r;
  }
}

// added + the norm; y may be `added`.
void normalize_onto(const float* added, const float* x, float r, const float* weight, int64_t n, float* y) {
  if (weight != nullptr) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] = added[i] + x[i] * r * weight[i];
  } else {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] = added[i] + x[i] * r;
  }
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

// Row `row` of the weight, which may be absent.
const float* weight_of(const RmsNorm& norm, int64_t row) {
  return norm.weight != nullptr ? norm.weight + row / norm.rows_per_weight * norm.cols : nullptr;
}

}  // namespace

void rms_norm_rows(Cpu& cpu, const RmsNorm& norm, const Added& added, float* y) {
  const int64_t cols = norm.cols;
  parallel_for(cpu, norm.rows, cols, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float *const values = norm.x + row * cols, *const weight = weight_of(norm, row);
      const float r = inverse_rms(values, cols, norm.eps);
      if (added.data != nullptr) {
        normalize_onto(added.data + row / added.rows_per_row * cols, values, r, weight, cols, y + row * cols);
      } else {
        normalize(values, r, weight, cols, y + row * cols);
      }
    }
  });
}

void rms_norm_rows_backward(Cpu& cpu, const RmsNorm& norm, const float* dy, const float* added, float* dx,
                            float* dweight) {
  const float* const x = norm.x;
  const int64_t cols = norm.cols, rows = norm.rows_per_weight;
  const Scratch<float> inverse(cpu, norm.rows);
  parallel_for(cpu, norm.rows, cols, [&](int64_t begin, int64_t end) {
    std::vector<float> kept(static_cast<size_t>(added != nullptr ? cols : 0));
    for (int64_t row = begin; row < end; ++row) {
      const float r = inverse.data()[row] = inverse_rms(x + row * cols, cols, norm.eps);
      if (dx == nullptr) continue;
      float* const to = dx + row * cols;
      onto_row(added != nullptr ? added + row * cols : nullptr, cols, kept.data(), to,
               [&] { input_gradient(dy + row * cols, x + row * cols, r, weight_of(norm, row), cols, to); });
    }
  });
  if (dweight == nullptr) return;
  const Scratch<double> sums(cpu, cols);
  for (int64_t first = 0; first < norm.rows; first += rows) {
    column_sums(cpu, rows, cols, sums.data(), [&](int64_t row, double* own) {
      const float r = inverse.data()[first + row];
      const float *const g = dy + (first + row) * cols, *const values = x + (first + row) * cols;
#pragma omp simd
      for (int64_t c = 0; c < cols; ++c) own[c] += static_cast<double>(g[c] * (values[c] * r));
    });
    for (int64_t c = 0; c < cols; ++c) dweight[first / rows * cols + c] = static_cast<float>(sums.data()[c]);
  }
}

void combine_weights(const float* own, const float* factor, float unit, int64_t images, int64_t cols, float* weight) {
  for (int64_t image = 0; image < images; ++image) {
    const float* const from = factor + image * cols;
    float* const to = weight + image * cols;
#pragma omp simd
    for (int64_t c = 0; c < cols; ++c) to[c] = unit + from[c];
    if (own == nullptr) continue;
#pragma omp simd
    for (int64_t c = 0; c < cols; ++c) to[c] *= own[c];
  }
}

void factor_gradient(const float* own, int64_t images, int64_t cols, float* gradient) {
  if (own == nullptr) return;
  for (int64_t image = 0; image < images; ++image) {
    float* const of_image = gradient + image * cols;
#pragma omp simd
    for (int64_t c = 0; c < cols; ++c) of_image[c] *= own[c];
  }
}

void rms_norm(Cpu& cpu, const lk_rms_norm_params& p) {
  const int64_t cols = last_dim(p.x), rows = numel(p.x) / cols;
  const FloatIn x(cpu, p.x), weight(cpu, p.weight);
  const FloatOut y(cpu, p.y);
  rms_norm_rows(cpu, {x, weight, rows, cols, rows, p.eps}, {}, y);
}

void rms_norm_backward(Cpu& cpu, const lk_rms_norm_backward_params& p) {
  const int64_t cols = last_dim(p.x), rows = numel(p.x) / cols;
  const FloatIn dy(cpu, p.dy), x(cpu, p.x), weight(cpu, p.weight), added(cpu, p.added);
  const FloatOut dx(cpu, p.dx), dweight(cpu, p.dweight);
  rms_norm_rows_backward(cpu, {x, weight, rows, cols, rows, p.eps}, dy, added, dx, dweight);
}

}  // namespace lk::cpu
