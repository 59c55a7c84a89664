// The parts that a product is cut into for threads, whoever multiplies.
#pragma once

#include <string>

#include "cpu/gemm.h"

namespace lk::cpu {

struct Part {
  int64_t row, column, rows, columns;  // of c
};

// A library's product of some rows is not bit for bit those rows of the whole product: its inner loops begin at the
// first row and treat the last ones apart. So products are cut by their size alone, whatever the number of threads.
struct Parts {
  static constexpr int64_t tile = 96;              // rows or columns; a multiple of the blocks of known kernels
  static constexpr int64_t most_parts = 16;        // each part packs the other matrix anew
  static constexpr int64_t least_work = 64 << 10;  // multiply-adds below which another thread costs more than it saves

  Parts(int64_t m, int64_t n) : m(m), n(n), by_rows(m >= n) {
    const int64_t length = std::max(m, n), tiles = (length + tile - 1) / tile;
    size = tile * std::max<int64_t>(1, (tiles + most_parts - 1) / most_parts);
    count = (length + size - 1) / size;
  }
  Part operator[](int64_t i) const {
    const int64_t first = i * size, length = std::min(size, (by_rows ? m : n) - first);
    return by_rows ? Part{first, 0, length, n} : Part{0, first, m, length};
  }

  int64_t m, n;
  bool by_rows;
  int64_t size, count;  // rows or columns of one, and how many there are
};

template <class T>
MatrixOf<T> from_row(MatrixOf<T> a, int64_t row) {
  return {a.data + (a.transposed ? row : row * a.stride), a.stride, a.transposed};
}

template <class T>
MatrixOf<T> from_column(MatrixOf<T> b, int64_t column) {
  return {b.data + (b.transposed ? column * b.stride : column), b.stride, b.transposed};
}

// Calls body(part) for all of them on all threads, and notes that `library` multiplied matrices of `type`.
template <class Body>
void each_part(const Cpu& cpu, const Parts& parts, int64_t k, const char* library, const char* type, const Body& body) {
  const int64_t work = parts.size * (parts.by_rows ? parts.n : parts.m) * k;  // of one part
  if (cpu.notes != nullptr)
    cpu.notes->ran.push_back(std::string(library) + " " + std::to_string(parts.m) + " x " + std::to_string(parts.n) +
                             " x " + std::to_string(k) + " " + type + ", " + std::to_string(parts.count) +
                             (parts.count == 1 ? " part" : " parts"));
  parallel_for(cpu, parts.count, std::max<int64_t>(1, work * parallel_grain / Parts::least_work),
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) body(parts[i]);
               });
}

}  // namespace lk::cpu
