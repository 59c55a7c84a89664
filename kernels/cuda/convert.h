// Copies of matrices in another type, in scratch memory.
#pragma once

#include "cuda/cuda.h"

namespace lk::cuda {

// A stack of row-major matrices; `pitch` elements from one row to the next, `stride` from one matrix to the next.
struct MatrixView {
  const void* data;
  lk_dtype dtype;
  int64_t pitch, stride;
};

// `to` = `from` converted, rounded to nearest even; factors (f32, one or one per row, may be nullptr) multiply it.
// `from` may be fp8 or i8, `to` may not.
void convert(Cuda& cuda, const MatrixView& from, const MatrixView& to, int64_t batch, int64_t rows, int64_t cols,
             const float* factors = nullptr, bool factor_per_row = false);

// Blocks for a kernel that walks over rows by blockIdx.y and over the units of a row by blockIdx.x and its threads: as
// many threads as a row keeps busy, blocks enough to fill the device.
struct RowGrid {
  dim3 grid, block;
};
RowGrid row_grid(const Cuda& cuda, int64_t rows, int64_t units);

// The values of a dense tensor in `dtype`, times its scale, where it is a weight that has one: the tensor's own memory
// where nothing has to be done, else scratch.
const void* as_type(Cuda& cuda, const lk_tensor& tensor, lk_dtype dtype, const lk_tensor& scale = {});

// The type in which two operands are multiplied: their own if they share one, else f32, which holds both exactly.
inline lk_dtype product_type(lk_dtype a, lk_dtype b) { return a == b ? a : LK_F32; }

}  // namespace lk::cuda
