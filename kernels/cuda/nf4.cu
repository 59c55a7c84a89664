// A thread widens 16 neighbours in a row, which have one factor.
#include "cuda/await_previous.cuh"
#include "cuda/convert.h"
#include "cuda/nf4.h"
#include "cuda/raw.cuh"

namespace lk::cuda {

namespace {

constexpr int unit = 16;
static_assert(nf4_block % unit == 0);

__global__ void nf4_kernel(const uint8_t* codes, Nf4Factors factors, Out y, int64_t rows, int64_t cols, bool vector) {
  await_previous();
  const int64_t units = (cols + unit - 1) / unit, step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y)
    for (int64_t u = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; u < units; u += step) {
      const int64_t col = u * unit;
      const float factor = factor_at(factors, row, col);
      const uint8_t* const from = codes + row * nf4_row_bytes(cols);
      const int64_t to = row * cols + col;
      if (vector) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float v[8];
          unpack(load_raw<4>(from, col + 8 * half), LK_NF4, v);
#pragma unroll
          for (int k = 0; k < 8; ++k) v[k] *= factor;
          store8(y, to + 8 * half, v);
        }
      } else {
        const int64_t count = min(static_cast<int64_t>(unit), cols - col);
        for (int64_t k = 0; k < count; ++k) store(y, to + k, nf4_table.values[nf4_code(from, col + k)] * factor);
      }
    }
}

}  // namespace

void widen_nf4(Cuda& cuda, const lk_tensor& weight, const lk_tensor& scale, const Out& values) {
  const int64_t rows = weight.dims[0], cols = weight.dims[1];
  const bool vector = cols % unit == 0 && reinterpret_cast<uintptr_t>(weight.data) % 16 == 0 &&
                      reinterpret_cast<uintptr_t>(values.data) % 16 == 0;
  const RowGrid shape = row_grid(cuda, rows, ceil_div(cols, unit));
  cuda.launch(nf4_kernel, shape.grid, shape.block, 0, static_cast<const uint8_t*>(weight.data),
              nf4_factors(weight, scale), values, rows, cols, vector);
}

}  // namespace lk::cuda
