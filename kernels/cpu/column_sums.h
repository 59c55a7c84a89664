// Sums over rows, column by column, in double: bias and norm gradients, statistics, reductions.
#pragma once

#include <cstring>

#include "cpu/cpu.h"

namespace lk::cpu {

// add(row, sums) adds row `row` to its `cols` running sums. Every part of the rows has its own sums, which are added
// in the order of the parts, so the result depends on the number of threads but not on their timing.
template <class AddRow>
void column_sums(Cpu& cpu, int64_t rows, int64_t cols, double* sums, const AddRow& add) {
  const int64_t parts = std::max<int64_t>(1, std::min<int64_t>(cpu.threads(), rows * cols / parallel_grain));
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
