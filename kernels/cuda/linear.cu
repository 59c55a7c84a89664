// y = x weight^T + bias and its gradients, x [rows, in], weight [out, in]. Up to 8 rows (a modulation layer has one per
// sample) the weight is streamed where it lies; otherwise cuBLASLt multiplies in x's type or in fp8, or in f32 for
// dweight where dy and x differ.
#include <algorithm>

#include "cuda/await_previous.cuh"
#include "cuda/convert.h"
#include "cuda/gemv.h"
#include "cuda/partial_sum.h"
#include "cuda/weight_product.h"

namespace lk::cuda {

namespace {

// A block sums `block_cols` columns over its part of the rows: 8 columns a thread, 8 threads for each of them.
constexpr int column_threads = 32, row_threads = 8, block_cols = column_threads * vector_width;

__global__ void column_sums_kernel(In x, int64_t rows, int64_t cols, int64_t span, float* partial, bool vector) {
  await_previous();
  __shared__ float sums[row_threads][block_cols];
  const int column = static_cast<int>(threadIdx.x) * vector_width;
  const int64_t col = int64_t{blockIdx.x} * block_cols + column;
  const int64_t begin = int64_t{blockIdx.y} * span, end = min(begin + span, rows);
  float sum[vector_width] = {};
  if (vector && col < cols) {
#pragma unroll 4
    for (int64_t row = begin + threadIdx.y; row < end; row += row_threads) {
      float v[vector_width];
      load8(x, row * cols + col, v);
#pragma unroll
      for (int k = 0; k < vector_width; ++k) sum[k] += v[k];
    }
  } else if (col < cols) {
    for (int64_t row = begin + threadIdx.y; row < end; row += row_threads) {
#pragma unroll
      for (int k = 0; k < vector_width; ++k) sum[k] += col + k < cols ? load(x, row * cols + col + k) : 0.0f;
    }
  }
#pragma unroll
  for (int k = 0; k < vector_width; ++k) sums[threadIdx.y][column + k] = sum[k];
  __syncthreads();
  const int thread = static_cast<int>(threadIdx.y * column_threads + threadIdx.x);
  const int64_t own = int64_t{blockIdx.x} * block_cols + thread;
  if (own >= cols) return;
  float total = 0;
#pragma unroll
  for (int y = 0; y < row_threads; ++y) total += sums[y][thread];
  partial[blockIdx.y * cols + own] = total;
}
static_assert(column_threads * row_threads == block_cols);  // a thread for each column at the end

void column_sums(Cuda& cuda, const lk_tensor& x, int64_t rows, int64_t cols, const lk_tensor& out_tensor) {
  const int64_t column_blocks = ceil_div(cols, block_cols);
  const int64_t wanted = ceil_div(int64_t{cuda.device().multiProcessorCount} * 4, column_blocks);
  const int64_t span = ceil_div(rows, std::min(wanted, ceil_div(rows, int64_t{row_threads} * 4)));
  const int64_t parts = ceil_div(rows, span);
  float* const partial = cuda.scratch<float>(parts * cols);
  cuda.launch(column_sums_kernel, dim3(static_cast<unsigned>(column_blocks), static_cast<unsigned>(parts)),
              dim3(column_threads, row_threads), 0, in(x), rows, cols, span, partial, aligned(x, cols));
  PartialSum sum{};
  sum.partial = partial;
  sum.count = parts;
  sum.stride = sum.pitch = sum.cols = cols;
  sum.rows = 1;
  sum.out = out(out_tensor);
  sum_partials(cuda, sum);
}

}  // namespace

void linear(Cuda& cuda, const lk_linear_params& p) {
  const int64_t rows = numel(p.x) / p.weight.dims[1];
  if (rows <= gemv_rows) {
    Gemv call;
    call.rows = rows;
    call.x = in(p.x);
    call.weight = weight_of(p.weight, p.weight_scale);
    call.bias = in(p.bias);
    call.y = out(p.y);
    return gemv(cuda, call);
  }
  GemmCall call = weight_product(cuda, {.products = p.products,
                                        .forward = true,
                                        .rows = rows,
                                        .weight = p.weight,
                                        .scale = p.weight_scale,
                                        .a = p.x,
                                        .d = p.y,
                                        .workspace = cuda.gemm().workspace()});
  call.bias = p.bias.data;
  call.bias_dtype = p.bias.dtype;
  cuda.gemm().run(call);
}

void linear_backward(Cuda& cuda, const lk_linear_backward_params& p) {
  const int64_t out_width = p.dy.dims[p.dy.rank - 1], rows = numel(p.dy) / out_width;
  const bool few = rows <= gemv_rows;
  void* const workspace = few ? nullptr : cuda.gemm().workspace();
  if (present(p.dx) && few) {
    GemvTransposed call;
    call.rows = rows;
    call.dy = in(p.dy);
    call.weight = weight_of(p.weight, p.weight_scale);
    call.dx = out(p.dx);
    gemv_transposed(cuda, call);
  } else if (present(p.dx)) {
    const GemmCall call = weight_product(cuda, {.products = p.products,
                                                .forward = false,
                                                .rows = rows,
                                                .weight = p.weight,
                                                .scale = p.weight_scale,
                                                .a = p.dy,
                                                .d = p.dx,
                                                .workspace = workspace});
    cuda.gemm().run(call);
  }
  if (present(p.dweight)) {
    const int64_t in_width = p.x.dims[p.x.rank - 1];
    if (few) {
      outer(cuda, rows, out_width, in_width, 1.0f, in(p.dy), in(p.x), out(p.dweight), false);
    } else {
      const lk_dtype type = product_type(p.dy.dtype, p.x.dtype);
      GemmCall call;
      call.m = out_width;
      call.n = in_width;
      call.k = rows;
      call.a = as_type(cuda, p.dy, type);
      call.b = as_type(cuda, p.x, type);
      call.d = p.dweight.data;
      call.a_dtype = call.b_dtype = type;
      call.d_dtype = p.dweight.dtype;
      call.transpose_a = true;
      call.workspace = workspace;
      cuda.gemm().run(call);
    }
  }
  if (present(p.dbias)) column_sums(cuda, p.dy, rows, out_width, p.dbias);
}

}  // namespace lk::cuda
