// Layer norm over the last axis C of x [M, C]: y = xh w + b, xh = (x - mean) rstd, rstd = 1 / sqrt(var + eps).
// Backward, with g = dy w:  dx = rstd (g - mean(g) - xh mean(g xh)),  dw = sum dy xh,  db = sum dy.
// Statistics in two passes with double sums.
#include "cpu/layer_norm.h"

#include <vector>

#include "cpu/column_sums.h"
#include "cpu/convert.h"
#include "cpu/row_math.h"

namespace lk::cpu {

namespace {

struct Statistics {
  float mean, rstd;
};

Statistics statistics(const float* x, int64_t n, float eps) {
  const float mean = static_cast<float>(row_sum(x, n) / static_cast<double>(n));
  double squares = 0;
#pragma omp simd reduction(+ : squares)
  for (int64_t i = 0; i < n; ++i) {
    const double d = static_cast<double>(x[i] - mean);
    squares += d * d;
  }
  return {mean, static_cast<float>(1.0 / std::sqrt(squares / static_cast<double>(n) + static_cast<double>(eps)))};
}

void normalize(const float* x, Statistics s, const float* weight, const float* bias, int64_t n, float* y) {
  if (weight != nullptr && bias != nullptr) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - s.mean) * s.rstd * weight[i] + bias[i];
    return;
  }
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - s.mean) * s.rstd;
  if (weight != nullptr) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] *= weight[i];
  }
  if (bias != nullptr) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] += bias[i];
  }
}

// dx first holds g, so that the row is read from memory once.
void input_gradient(const float* dy, const float* x, Statistics s, const float* weight, int64_t n, float* dx) {
  if (weight != nullptr) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) dx[i] = dy[i] * weight[i];
  } else {
    std::memcpy(dx, dy, static_cast<size_t>(n) * sizeof(float));
  }
  double sum = 0, sum_xh = 0;
#pragma omp simd reduction(+ : sum, sum_xh)
  for (int64_t i = 0; i < n; ++i) {
    sum += static_cast<double>(dx[i]);
    sum_xh += static_cast<double>(dx[i]) * static_cast<double>((x[i] - s.mean) * s.rstd);
  }
  const float mean_g = static_cast<float>(sum / static_cast<double>(n));
  const float mean_xh = static_cast<float>(sum_xh / static_cast<double>(n));
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) dx[i] = s.rstd * (dx[i] - mean_g - (x[i] - s.mean) * s.rstd * mean_xh);
}

// Row `row` of a weight or bias, which may be absent.
const float* row_of(const float* weight, const LayerNorm& norm, int64_t row) {
  return weight != nullptr ? weight + row / norm.rows_per_weight * norm.cols : nullptr;
}

}  // namespace

void layer_norm_rows(Cpu& cpu, const LayerNorm& norm, float* y) {
  const int64_t cols = norm.cols;
  parallel_for(cpu, norm.rows, cols, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* const values = norm.x + row * cols;
      normalize(values, statistics(values, cols, norm.eps), row_of(norm.weight, norm, row),
                row_of(norm.bias, norm, row), cols, y + row * cols);
    }
  });
}

void layer_norm_rows_backward(Cpu& cpu, const LayerNorm& norm, const float* dy, const float* added, float* dx,
                              float* dweight, float* dbias) {
  const float* const x = norm.x;
  const int64_t cols = norm.cols, rows = norm.rows_per_weight;
  const Scratch<Statistics> stats(cpu, norm.rows);
  parallel_for(cpu, norm.rows, cols, [&](int64_t begin, int64_t end) {
    std::vector<float> kept(static_cast<size_t>(added != nullptr ? cols : 0));
    for (int64_t row = begin; row < end; ++row) {
      const Statistics s = stats.data()[row] = statistics(x + row * cols, cols, norm.eps);
      if (dx == nullptr) continue;
      float* const to = dx + row * cols;
      onto_row(added != nullptr ? added + row * cols : nullptr, cols, kept.data(), to,
               [&] { input_gradient(dy + row * cols, x + row * cols, s, row_of(norm.weight, norm, row), cols, to); });
    }
  });
  const Scratch<double> sums(cpu, cols);
  for (int64_t first = 0; first < norm.rows; first += rows) {
    const int64_t place = first / rows * cols;
    if (dbias != nullptr) column_sums(cpu, dy + first * cols, rows, cols, dbias + place);
    if (dweight == nullptr) continue;
    column_sums(cpu, rows, cols, sums.data(), [&](int64_t row, double* own) {
      const Statistics s = stats.data()[first + row];
      const float *const g = dy + (first + row) * cols, *const values = x + (first + row) * cols;
#pragma omp simd
      for (int64_t c = 0; c < cols; ++c) own[c] += static_cast<double>(g[c] * ((values[c] - s.mean) * s.rstd));
    });
    for (int64_t c = 0; c < cols; ++c) dweight[place + c] = static_cast<float>(sums.data()[c]);
  }
}

void layer_norm(Cpu& cpu, const lk_layer_norm_params& p) {
  const int64_t cols = last_dim(p.x), rows = numel(p.x) / cols;
  const FloatIn x(cpu, p.x), weight(cpu, p.weight), bias(cpu, p.bias);
  const FloatOut y(cpu, p.y);
  layer_norm_rows(cpu, {x, weight, bias, rows, cols, rows, p.eps}, y);
}

void layer_norm_backward(Cpu& cpu, const lk_layer_norm_backward_params& p) {
  const int64_t cols = last_dim(p.x), rows = numel(p.x) / cols;
  const FloatIn dy(cpu, p.dy), x(cpu, p.x), weight(cpu, p.weight), added(cpu, p.added);
  const FloatOut dx(cpu, p.dx), dweight(cpu, p.dweight), dbias(cpu, p.dbias);
  layer_norm_rows_backward(cpu, {x, weight, nullptr, rows, cols, rows, p.eps}, dy, added, dx, dweight, dbias);
}

}  // namespace lk::cpu
