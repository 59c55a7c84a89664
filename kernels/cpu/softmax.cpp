// Softmax over the last axis C of x [M, C], and dx = y (dy - sum_c(dy y)).
#include "cpu/convert.h"
#include "cpu/row_math.h"

namespace lk::cpu {

void softmax(Cpu& cpu, const lk_softmax_params& p) {
  const int64_t cols = last_dim(p.x), rows = numel(p.x) / cols;
  const FloatIn x(cpu, p.x);
  const FloatOut y(cpu, p.y);
  parallel_for(cpu, rows, cols, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* const from = x + row * cols;
      float* const to = y + row * cols;
      const float largest = row_max(from, cols);
      std::copy(from, from + cols, to);
      const double sum = row_exp(to, cols, largest);  // a row of -inf is NaN: it has no distribution
      row_scale(to, cols, static_cast<float>(1.0 / sum));
    }
  });
}

void softmax_backward(Cpu& cpu, const lk_softmax_backward_params& p) {
  const int64_t cols = last_dim(p.dy), rows = numel(p.dy) / cols;
  const FloatIn dy(cpu, p.dy), y(cpu, p.y);
  const FloatOut dx(cpu, p.dx);
  parallel_for(cpu, rows, cols, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float *const g = dy + row * cols, *const value = y + row * cols;
      float* const to = dx + row * cols;
      const float dot = static_cast<float>(row_dot(g, value, cols));
#pragma omp simd
      for (int64_t i = 0; i < cols; ++i) to[i] = value[i] * (g[i] - dot);
    }
  });
}

}  // namespace lk::cpu
