// c = alpha op(a) op(b) + beta c, row-major with leading dimensions, float.
#pragma once

#include "cpu/cpu.h"

namespace lk::cpu {

template <class T>
struct MatrixOf {
  const T* data;
  int64_t stride;  // elements from one stored row to the next
  bool transposed = false;
};
using Matrix = MatrixOf<float>;

// On the calling thread only, for use inside parallel loops.
void gemm_serial(int64_t m, int64_t n, int64_t k, float alpha, Matrix a, Matrix b, float beta, float* c,
                 int64_t c_stride);
// Likewise, with the bits that gemm gives.
void gemm_alone(int64_t m, int64_t n, int64_t k, float alpha, Matrix a, Matrix b, float beta, float* c,
                int64_t c_stride);

// Cut over rows of c, or over columns when there are more of them, into parts that depend on m and n alone: equal calls
// give equal bits, with any number of threads.
void gemm(const Cpu& cpu, int64_t m, int64_t n, int64_t k, float alpha, Matrix a, Matrix b, float beta, float* c,
          int64_t c_stride);

}  // namespace lk::cpu
