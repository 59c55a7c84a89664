// Loops over tensors of different layouts, reduced to as few axes as the layouts allow.
#pragma once

#include <array>

#include "cuda/cuda.h"

namespace lk::cuda {

// The axes of a loop, the outermost first, and the stride of each tensor along each, in elements; 0 repeats a tensor.
// There is always one axis, if only of size 1.
template <int tensors>
struct Axes {
  int32_t rank = 1;
  int64_t dims[LK_MAX_RANK] = {1};
  int64_t strides[tensors][LK_MAX_RANK] = {};

  // Adds an inner axis. Size 1 is dropped, and an axis that continues the last one in every tensor joins it.
  void add(int64_t dim, const std::array<int64_t, tensors>& stride) {
    if (dim == 1) return;
    bool joins = true;
    for (int t = 0; t < tensors; ++t) joins = joins && strides[t][rank - 1] == stride[t] * dim;
    if (dims[rank - 1] == 1) {
      dims[rank - 1] = dim;
    } else if (joins) {
      dims[rank - 1] *= dim;
    } else {
      dims[rank++] = dim;
    }
    for (int t = 0; t < tensors; ++t) strides[t][rank - 1] = stride[t];
  }

  int64_t count() const {
    int64_t product = 1;
    for (int32_t i = 0; i < rank; ++i) product *= dims[i];
    return product;
  }
  __host__ __device__ int64_t inner() const { return dims[rank - 1]; }
  // What chunks_in and chunks_out (elements.cuh) take as the width of the rows that the inner axis makes.
  int64_t row_width() const { return rank == 1 ? 0 : inner(); }
  __device__ int64_t inner_stride(int t) const { return strides[t][rank - 1]; }

  // Where each tensor is at place `index` of the first `outer` axes, in row-major order, and at 0 of the others.
  __device__ void locate(int64_t index, int32_t outer, int64_t (&at)[tensors]) const {
#pragma unroll
    for (int t = 0; t < tensors; ++t) at[t] = 0;
    for (int32_t i = outer - 1; i >= 0; --i) {
      const int64_t rest = i > 0 ? index / dims[i] : 0, place = index - rest * dims[i];
#pragma unroll
      for (int t = 0; t < tensors; ++t) at[t] += place * strides[t][i];
      index = rest;
    }
  }
};

// The loop over y's elements in order, with the strides of inputs that broadcast to its shape, right-aligned.
template <int inputs>
Axes<inputs> broadcast_axes(const lk_tensor& y, const std::array<const lk_tensor*, inputs>& tensors) {
  std::array<int64_t, inputs> strides[LK_MAX_RANK];
  for (int t = 0; t < inputs; ++t) {
    const int32_t missing = y.rank - tensors[t]->rank;
    int64_t stride = 1;
    for (int32_t i = y.rank - 1; i >= 0; --i) {
      const int64_t dim = i >= missing ? tensors[t]->dims[i - missing] : 1;
      strides[i][t] = dim == 1 ? 0 : stride;
      stride *= dim;
    }
  }
  Axes<inputs> axes;
  for (int32_t i = 0; i < y.rank; ++i) axes.add(y.dims[i], strides[i]);
  return axes;
}

}  // namespace lk::cuda
