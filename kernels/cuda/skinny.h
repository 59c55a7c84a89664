// The products of an adapter, where one side is its rank. They are bound by reading the wide operand, so everything
// that needs it is computed in one pass over it, on the tensor cores.
#pragma once

#include "cuda/types.cuh"

namespace lk::cuda {

// The largest: from rank 64 on the products are wide enough for cuBLASLt, which is faster (docs/performance.md).
constexpr int64_t skinny_rank = 32;

// With a [rows, cols] and w (element (c, j) at c * w_col + j * w_rank) and z [rows, rank], those that have data of:
//   projected [rows, rank] = alpha mask (a w)
//   gathered  [cols, rank] = alpha a^T z     ([rank, cols] with gathered_transposed), added to with `add`
//   spread    [rows, cols] = alpha z w^T
// Not projected and spread together. w and z are rounded to `type`, which is a's, f16 or bf16; sums are float32.
struct Skinny {
  int64_t rows = 0, cols = 0, rank = 0;
  lk_dtype type = LK_BF16;
  In a{};
  const float* w = nullptr;
  int64_t w_col = 0, w_rank = 0;
  In z{};
  float alpha = 1;
  In mask{};
  Out projected{}, gathered{}, spread{};
  bool gathered_transposed = false, add = false;
};

bool skinny_fits(const Cuda& cuda, lk_dtype type, int64_t rank);
void skinny(Cuda& cuda, const Skinny& p);

}  // namespace lk::cuda
