// Sums over rows, column by column, in double: bias and norm gradients, statistics, reductions.
#pragma once

#include <algorithm>
#include <cstring>

#include "cpu/cpu.h"

namespace lk::cpu {

// Parts that rows are cut into: by the work alone, so that sums do not depend on the number of threads.
inline int64_t column_sum_parts(int64_t rows, int64_t cols) {
  constexpr int64_t most = 32;
  return std::clamp<int64_t>(rows * cols / parallel_grain, 1, std::min(most, std::max<int64_t>(rows, 1)));
}

// add(row, sums) adds row `row` to its `cols` running sums. Every part of the rows has its own sums, which are added
// in the order of the parts, so the result depends neither on the number of threads nor on their timing.
template <class AddRow>
void column_sums(Cpu& cpu, int64_t rows, int64_t cols, double* sums, const AddRow& add) {
  const int64_t parts = column_sum_parts(rows, cols);
  Scratch<double> partial(cpu, parts * cols);
  std::memset(partial.data(), 0, static_cast<size_t>(parts * cols) * sizeof(double));
  parallel_tasks(cpu, parts, [&](int64_t part, int64_t) {
    double* const own = partial.data() + part * cols;
    for (int64_t row = rows * part / parts; row < rows * (part + 1) / parts; ++row) add(row, own);
  });
  for (int64_t i = 0; i < cols; ++i) {
    double sum = 0;
    for (int64_t part = 0; part < parts; ++part) sum += partial.data()[part * cols + i];
    sums[i] = sum;
  }
}

// out[c] = sum over rows of x[r, c].
inline void column_sums(Cpu& cpu, const float* x, int64_t rows, int64_t cols, float* out) {
  Scratch<double> sums(cpu, cols);
  column_sums(cpu, rows, cols, sums.data(), [=](int64_t row, double* own) {
    const float* const values = x + row * cols;
#pragma omp simd
    for (int64_t c = 0; c < cols; ++c) own[c] += static_cast<double>(values[c]);
  });
  for (int64_t c = 0; c < cols; ++c) out[c] = static_cast<float>(sums.data()[c]);
}

}  // namespace lk::cpu
