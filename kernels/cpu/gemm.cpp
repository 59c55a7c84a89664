#include "cpu/gemm.h"

#include <cblas.h>

#include "cpu/gemm_parts.h"

namespace lk::cpu {

void gemm_serial(int64_t m, int64_t n, int64_t k, float alpha, Matrix a, Matrix b, float beta, float* c,
                 int64_t c_stride) {
  cblas_sgemm(CblasRowMajor, a.transposed ? CblasTrans : CblasNoTrans, b.transposed ? CblasTrans : CblasNoTrans,
              static_cast<blasint>(m), static_cast<blasint>(n), static_cast<blasint>(k), alpha, a.data,
              static_cast<blasint>(a.stride), b.data, static_cast<blasint>(b.stride), beta, c,
              static_cast<blasint>(c_stride));
}

namespace {

void gemm_part(const Part& part, int64_t k, float alpha, Matrix a, Matrix b, float beta, float* c, int64_t c_stride) {
  gemm_serial(part.rows, part.columns, k, alpha, from_row(a, part.row), from_column(b, part.column), beta,
              c + part.row * c_stride + part.column, c_stride);
}

}  // namespace

void gemm_alone(int64_t m, int64_t n, int64_t k, float alpha, Matrix a, Matrix b, float beta, float* c,
                int64_t c_stride) {
  const Parts parts(m, n);
  for (int64_t i = 0; i < parts.count; ++i) gemm_part(parts[i], k, alpha, a, b, beta, c, c_stride);
}

void gemm(const Cpu& cpu, int64_t m, int64_t n, int64_t k, float alpha, Matrix a, Matrix b, float beta, float* c,
          int64_t c_stride) {
  each_part(cpu, Parts(m, n), k, "OpenBLAS", "f32",
            [&](const Part& part) { gemm_part(part, k, alpha, a, b, beta, c, c_stride); });
}

}  // namespace lk::cpu
