// The ways of lk_matmul beside cuBLASLt's, for what it is slow at: thousands of small products that have one operand in
// common, or of which only the sum is wanted. They are bound by memory, and read each large operand once.
#pragma once

#include <initializer_list>

#include "cuda/partial_sum.h"
#include "cuda/types.cuh"

namespace lk::cuda {

// c [m, n] = op(a) op(b) for each of `batch` matrices; the stride of one that all have is 0.
struct BatchedProduct {
  int64_t batch, m, n, k;
  In a, b;
  Out c;
  bool transpose_a, transpose_b;
  int64_t stride_a, stride_b;  // elements
  bool sum;                    // c is one matrix, the sum over the batch
};

// One left matrix for all, in tensor cores: it stays in shared memory, rounded to b's type, f16 or bf16, which is c's,
// too. Where addresses do not allow pieces of 16 bytes, which is unknown while measuring, nothing is done: false.
bool matmul_of_one_left(Cuda& cuda, const BatchedProduct& p);

// The sum of a b^T over the batch, in tensor cores; a and b f16 or bf16. False as above.
bool matmul_summed(Cuda& cuda, const BatchedProduct& p);
// Any such sum, in float32.
void matmul_summed_wide(Cuda& cuda, const BatchedProduct& p);

// The second stage of both: c of `count` partial matrices [m, n], one after the other.
inline void sum_matrices(Cuda& cuda, const float* partial, int64_t count, const BatchedProduct& p) {
  PartialSum sum{};
  sum.partial = partial;
  sum.count = count;
  sum.stride = p.m * p.n;
  sum.pitch = sum.cols = p.n;
  sum.rows = p.m;
  sum.out = p.c;
  sum_partials(cuda, sum);
}

// Where a batch of matrices [rows, width] is taken in pieces of eight neighbours of a row, by number: those of one row
// of all matrices, the same for each row.
struct Pieces {
  int of_row;  // width / 8
  int count;   // in all matrices
  // The first element of piece i in its matrix's first row.
  __device__ int64_t at(int i, int rows) const {
    const int matrix = i / of_row;
    return (int64_t{matrix} * rows * of_row + (i - matrix * of_row)) * vector_width;
  }
};
// There are none where the width is not of whole pieces, or they are too many for an int.
inline Pieces pieces_of(int64_t batch, int64_t width) {
  const int64_t count = batch * width / vector_width;
  if (width % vector_width != 0 || count >= int64_t{1} << 30) return {0, 0};
  return {static_cast<int>(width / vector_width), static_cast<int>(count)};
}

inline bool in_pieces_of_16_bytes(const Cuda& cuda, std::initializer_list<const void*> all) {
  if (cuda.measuring()) return true;
  for (const void* data : all)
    if (reinterpret_cast<uintptr_t>(data) % 16 != 0) return false;
  return true;
}

}  // namespace lk::cuda
