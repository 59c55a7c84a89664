#include "cpu/gemm.h"

#include <cblas.h>

namespace lk::cpu {

namespace {

// A library's product of some rows is not bit for bit those rows of the whole product: its inner loops begin at the
// first row and treat the last ones apart. So products are cut by their size alone, whatever the number of threads.
constexpr int64_t tile = 96;              // rows or columns; a multiple of the blocks of known kernels
constexpr int64_t most_parts = 16;        // each part packs the other matrix anew
constexpr int64_t least_work = 64 << 10;  // multiply-adds below which another thread costs more than it saves

struct Parts {
  bool by_rows;
  int64_t size, count;  // rows or columns of one, and how many there are
};

Parts parts_of(int64_t m, int64_t n) {
  const int64_t length = std::max(m, n), tiles = (length + tile - 1) / tile;
  const int64_t size = tile * std::max<int64_t>(1, (tiles + most_parts - 1) / most_parts);
  return {m >= n, size, (length + size - 1) / size};
}

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

namespace {

void gemm_part(const Parts& parts, int64_t part, int64_t m, int64_t n, int64_t k, float alpha, Matrix a, Matrix b,
               float beta, float* c, int64_t c_stride) {
  const int64_t first = part * parts.size, last = std::min(first + parts.size, parts.by_rows ? m : n);
  if (parts.by_rows) {
    gemm_serial(last - first, n, k, alpha, from_row(a, first), b, beta, c + first * c_stride, c_stride);
  } else {
    gemm_serial(m, last - first, k, alpha, a, from_column(b, first), beta, c + first, c_stride);
  }
}

}  // namespace

void gemm_alone(int64_t m, int64_t n, int64_t k, float alpha, Matrix a, Matrix b, float beta, float* c,
                int64_t c_stride) {
  const Parts parts = parts_of(m, n);
  for (int64_t part = 0; part < parts.count; ++part) {
    gemm_part(parts, part, m, n, k, alpha, a, b, beta, c, c_stride);
  }
}

void gemm(const Cpu& cpu, int64_t m, int64_t n, int64_t k, float alpha, Matrix a, Matrix b, float beta, float* c,
          int64_t c_stride) {
  const Parts parts = parts_of(m, n);
  const int64_t work = parts.size * (parts.by_rows ? n : m) * k;  // of one part
  if (cpu.notes != nullptr)
    cpu.notes->ran.push_back("OpenBLAS " + std::to_string(m) + " x " + std::to_string(n) + " x " + std::to_string(k) +
                             " f32, " + std::to_string(parts.count) + (parts.count == 1 ? " part" : " parts"));
  parallel_for(cpu, parts.count, std::max<int64_t>(1, work * parallel_grain / least_work),
               [&](int64_t begin, int64_t end) {
                 for (int64_t part = begin; part < end; ++part) {
                   gemm_part(parts, part, m, n, k, alpha, a, b, beta, c, c_stride);
                 }
               });
}

}  // namespace lk::cpu
