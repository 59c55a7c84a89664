// A thread converts 16 elements at a time; an fp8 or i8 weight has one factor, or one for each row. Blocks stand over
// the units of a row and over rows, so that no thread divides to find its own.
#include <algorithm>

#include "cuda/await_previous.cuh"
#include "cuda/convert.h"
#include "cuda/nf4.h"
#include "cuda/raw.cuh"
#include "cuda/types.cuh"

namespace lk::cuda {

namespace {

constexpr int unit = 16;  // elements per thread and step: 16 bytes of fp8

struct Conversion {
  In from;
  Out to;
  int64_t from_pitch, from_stride, to_pitch, to_stride;
  int64_t rows, cols, units, lines;  // units of a row; rows in all matrices
  const float* factors;
  bool factor_per_row, vector;
};

__device__ inline void load8_any(const In& x, int64_t i, float (&v)[8]) {
  switch (lk_bits(x.dtype)) {
    case 8: unpack(load_raw<8>(x.data, i), x.dtype, v); break;
    case 16: unpack(load_raw<16>(x.data, i), x.dtype, v); break;
    default: unpack(load_raw<32>(x.data, i), x.dtype, v); break;
  }
}

__device__ void convert_unit(const Conversion& p, int64_t from, int64_t to, int64_t col, float factor) {
  if (p.vector) {
    float v[2][8];
    if (lk_bits(p.from.dtype) == 8) {
      const uint4 raw = *reinterpret_cast<const uint4*>(static_cast<const uint8_t*>(p.from.data) + from);
      unpack(Raw<8>{{raw.x, raw.y}}, p.from.dtype, v[0]);
      unpack(Raw<8>{{raw.z, raw.w}}, p.from.dtype, v[1]);
    } else {
      load8_any(p.from, from, v[0]);
      load8_any(p.from, from + 8, v[1]);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int k = 0; k < 8; ++k) v[half][k] *= factor;
      store8(p.to, to + 8 * half, v[half]);
    }
    return;
  }
  const int64_t count = min(static_cast<int64_t>(unit), p.cols - col);
  for (int64_t k = 0; k < count; ++k) store(p.to, to + k, load(p.from, from + k) * factor);
}

__global__ void convert_kernel(Conversion p) {
  await_previous();
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t line = blockIdx.y; line < p.lines; line += gridDim.y) {
    const int64_t batch = line / p.rows, row = line - batch * p.rows;
    const float factor = p.factors == nullptr ? 1.0f : p.factors[p.factor_per_row ? row : 0];
    const int64_t from = batch * p.from_stride + row * p.from_pitch, to = batch * p.to_stride + row * p.to_pitch;
    for (int64_t u = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; u < p.units; u += step)
      convert_unit(p, from + u * unit, to + u * unit, u * unit, factor);
  }
}

bool whole_units(const MatrixView& view) {
  return view.pitch % unit == 0 && view.stride % unit == 0 && reinterpret_cast<uintptr_t>(view.data) % 16 == 0;
}

}  // namespace

RowGrid row_grid(const Cuda& cuda, int64_t rows, int64_t units) {
  const int64_t threads = std::min<int64_t>(block_threads, ceil_div(units, int64_t{32}) * 32);
  const int64_t most = int64_t{cuda.device().multiProcessorCount} * 32;
  const int64_t across = std::min(ceil_div(units, threads), most);
  const int64_t down = std::min(rows, std::max<int64_t>(most / across, 1));
  return {dim3(static_cast<unsigned>(across), static_cast<unsigned>(down)), dim3(static_cast<unsigned>(threads))};
}

void convert(Cuda& cuda, const MatrixView& from, const MatrixView& to, int64_t batch, int64_t rows, int64_t cols,
             const float* factors, bool factor_per_row) {
  Conversion p{};
  p.from = {from.data, from.dtype};
  p.to = {const_cast<void*>(to.data), to.dtype};
  p.from_pitch = from.pitch;
  p.from_stride = from.stride;
  p.to_pitch = to.pitch;
  p.to_stride = to.stride;
  p.rows = rows;
  p.cols = cols;
  p.units = ceil_div(cols, unit);
  p.lines = batch * rows;
  p.factors = factors;
  p.factor_per_row = factor_per_row;
  p.vector = cols % unit == 0 && whole_units(from) && whole_units(to);
  const RowGrid shape = row_grid(cuda, p.lines, p.units);
  cuda.launch(convert_kernel, shape.grid, shape.block, 0, p);
}

const void* as_type(Cuda& cuda, const lk_tensor& tensor, lk_dtype dtype, const lk_tensor& scale) {
  if (tensor.dtype == dtype && !present(scale)) return tensor.data;
  const int64_t count = numel(tensor);
  void* const copy = cuda.scratch<std::byte>(count * lk_dtype_size(dtype));
  if (tensor.dtype == LK_NF4) {
    widen_nf4(cuda, tensor, scale, {copy, dtype});
    return copy;
  }
  // Without a factor per row the tensor is one long row.
  const bool per_row = present(scale) && numel(scale) > 1;
  const int64_t rows = per_row ? tensor.dims[0] : 1, cols = count / rows;
  convert(cuda, {tensor.data, tensor.dtype, cols, 0}, {copy, dtype, cols, 0}, 1, rows, cols,
          static_cast<const float*>(scale.data), per_row);
  return copy;
}

}  // namespace lk::cuda
