// The second stage of sums that were split over blocks: partial results are added in their order.
#pragma once

#include "cuda/types.cuh"

namespace lk::cuda {

// out[i, j] = alpha * mask[i, j] * (sum over p of partial[p, i, j] + sum over k of left[i, k] right[k, j])
// added to out with `add`. left and right (dense, `rank` columns and rows) and mask may be absent. transposed: out is
// [cols, rows].
struct PartialSum {
  const float* partial = nullptr;
  int64_t count = 0, stride = 0, pitch = 0;  // partial matrices, elements from one to the next and from row to row
  int64_t rows = 0, cols = 0;
  float alpha = 1;
  In mask{};
  In left{}, right{};
  int64_t rank = 0;
  Out out{};
  bool transposed = false, add = false;
};

// One or two independent sums in one kernel.
void sum_partials(Cuda& cuda, const PartialSum& first, const PartialSum& second = {});

}  // namespace lk::cuda
