#include "cpu/gemm.h"

#include <cblas.h>

namespace lk::cpu {

namespace {

constexpr int64_t tile = 16;              // parts are multiples of this many rows or columns
constexpr int64_t least_work = 64 << 10;  // multiply-adds below which another thread costs more than it saves

Matrix from_row(Matrix a, int64_t row) {
  return {a.data + (a.transposed ? row : row * a.stride), a.stride, a.transposed};
}

Matrix from_column(Matrix b, int64_t column) {
  return {b.data + (b.transposed ? column * b.stride : column), b.stride, b.transposed};
}

}  // namespace

void gemm_serial(int64_t m, int64_t n, int64_t k, float alpha, Matrix a, Matrix b, float beta, float* c,
                 int64_t c_stride) {
  cblas_sgemm(CblasRowMajor, a.transposed ? CblasTrans : CblasNoTrans, b.transposed ? CblasTrans : CblasNoTrans,
              static_cast<blasint>(m), static_cast<blasint>(n), static_cast<blasint>(k), alpha, a.data,
              static_cast<blasint>(a.stride), b.data, static_cast<blasint>(b.stride), beta, c,
              static_cast<blasint>(c_stride));
}

void gemm(const Cpu& cpu, int64_t m, int64_t n, int64_t k, float alpha, Matrix a, Matrix b, float beta, float* c,
          int64_t c_stride) {
  const bool by_rows = m >= n;
  const int64_t tiles = ((by_rows ? m : n) + tile - 1) / tile;
  const int64_t work = tile * (by_rows ? n : m) * k;  // of one tile
  parallel_for(cpu, tiles, std::max<int64_t>(1, work * parallel_grain / least_work), [&](int64_t begin, int64_t end) {
    const int64_t first = begin * tile, last = std::min(end * tile, by_rows ? m : n);
    if (by_rows) {
      gemm_serial(last - first, n, k, alpha, from_row(a, first), b, beta, c + first * c_stride, c_stride);
    } else {
      gemm_serial(m, last - first, k, alpha, a, from_column(b, first), beta, c + first, c_stride);
    }
  });
}

}  // namespace lk::cpu
