// Copies between two layouts of the same elements.
#pragma once

#include "cuda/axes.cuh"

namespace lk::cuda {

// y = x over the axes, whose strides are those of x and of y. Elements have 1, 2, 4 or 8 bytes; neighbours that lie
// together in both are moved together, up to 16 bytes at a time.
void copy_axes(Cuda& cuda, const void* x, void* y, int64_t element_bytes, const Axes<2>& axes);

}  // namespace lk::cuda
