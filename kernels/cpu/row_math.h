// Sums, maxima and exponentials of one row, vectorised with a fixed order of summation.
#pragma once

#include <cstring>
#include <limits>

#include "cpu/vector_math.h"

namespace lk::cpu {

// The largest value; NaNs are passed over.
inline float row_max(const float* x, int64_t n) {
  float largest = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : largest)
  for (int64_t i = 0; i < n; ++i) largest = x[i] > largest ? x[i] : largest;
  return largest;
}

inline double row_sum(const float* x, int64_t n) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]);
  return sum;
}

inline double row_dot(const float* x, const float* y, int64_t n) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(y[i]);
  return sum;
}

// x becomes e^(x - shift); returns the sum of the results. The float sum is split into short runs, so its error does
// not grow with n.
inline double row_exp(float* x, int64_t n, float shift) {
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += 256) {
    const int64_t end = begin + 256 < n ? begin + 256 : n;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = begin; i < end; ++i) {
      const float value = exp_float(x[i] - shift);
      x[i] = value;
      sum += value;
    }
    total += static_cast<double>(sum);
  }
  return total;
}

inline void row_scale(float* x, int64_t n, float factor) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}

// Adds a row of `added`, which may be absent, to what `write` leaves in y; both may be the same memory. `kept` has room
// for n numbers.
template <class Write>
void onto_row(const float* added, int64_t n, float* kept, float* y, const Write& write) {
  if (added == nullptr) return write();
  std::memcpy(kept, added, static_cast<size_t>(n) * sizeof(float));
  write();
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] += kept[i];
}

}  // namespace lk::cpu
