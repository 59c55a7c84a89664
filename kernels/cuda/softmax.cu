// Softmax over the last axis C of x [M, C], and dx = y (dy - sum_c(dy y)). A block takes a row, with as many threads
// as the row has chunks, up to 1024; what it reads again comes from the caches.
#include <algorithm>

#include "cuda/await_previous.cuh"
#include "cuda/elements.cuh"
#include "cuda/reduce.cuh"

namespace lk::cuda {

namespace {

// A row of -inf becomes NaN: it has no distribution.
__global__ void softmax_kernel(ChunksIn x, ChunksOut y, int64_t rows, int64_t columns) {
  await_previous();
  __shared__ float shared[32];
  const int64_t first = int64_t{threadIdx.x} * vector_width, step = int64_t{blockDim.x} * vector_width;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const int64_t start = row * columns;
    float v[8], largest = -INFINITY, sum = 0.0f;
    for (int64_t i = first; i < columns; i += step) {
      const int length = chunk_length(columns - i);
      load_chunk(x, start + i, length, v);
#pragma unroll
      for (int k = 0; k < 8; ++k) largest = fmaxf(largest, k < length ? v[k] : -INFINITY);
    }
    largest = block_max(largest, shared);
    for (int64_t i = first; i < columns; i += step) {
      const int length = chunk_length(columns - i);
      load_chunk(x, start + i, length, v);
#pragma unroll
      for (int k = 0; k < 8; ++k) sum += k < length ? expf(v[k] - largest) : 0.0f;
    }
    const float factor = 1.0f / block_sum(sum, shared);
    for (int64_t i = first; i < columns; i += step) {
      const int length = chunk_length(columns - i);
      load_chunk(x, start + i, length, v);
#pragma unroll
      for (int k = 0; k < 8; ++k) v[k] = expf(v[k] - largest) * factor;
      store_chunk(y, start + i, length, v);
    }
  }
}

__global__ void softmax_backward_kernel(ChunksIn dy, ChunksIn y, ChunksOut dx, int64_t rows, int64_t columns) {
  await_previous();
  __shared__ float shared[32];
  const int64_t first = int64_t{threadIdx.x} * vector_width, step = int64_t{blockDim.x} * vector_width;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const int64_t start = row * columns;
    float g[8], v[8], dot = 0.0f;
    for (int64_t i = first; i < columns; i += step) {
      const int length = chunk_length(columns - i);
      load_chunk(dy, start + i, length, g);
      load_chunk(y, start + i, length, v);
#pragma unroll
      for (int k = 0; k < 8; ++k) dot += g[k] * v[k];  // 0 beyond the row
    }
    dot = block_sum(dot, shared);
    for (int64_t i = first; i < columns; i += step) {
      const int length = chunk_length(columns - i);
      load_chunk(dy, start + i, length, g);
      load_chunk(y, start + i, length, v);
#pragma unroll
      for (int k = 0; k < 8; ++k) v[k] *= g[k] - dot;
      store_chunk(dx, start + i, length, v);
    }
  }
}

int64_t last_dim(const lk_tensor& t) { return t.dims[t.rank - 1]; }

// A row for each block, in blocks of `threads`.
dim3 row_grid(const Cuda& cuda, int64_t rows, int64_t threads) {
  const int64_t most = int64_t{cuda.device().multiProcessorCount} * (8192 / threads);
  return dim3(static_cast<unsigned>(std::min(rows, most)));
}

int64_t row_threads(int64_t columns) { return std::min<int64_t>(ceil_div(chunks_of(columns), 32) * 32, 1024); }

}  // namespace

void softmax(Cuda& cuda, const lk_softmax_params& p) {
  const int64_t columns = last_dim(p.x), rows = numel(p.x) / columns, threads = row_threads(columns);
  cuda.launch(softmax_kernel, row_grid(cuda, rows, threads), dim3(static_cast<unsigned>(threads)), 0,
              chunks_in(p.x, columns), chunks_out(p.y, columns), rows, columns);
}

void softmax_backward(Cuda& cuda, const lk_softmax_backward_params& p) {
  const int64_t columns = last_dim(p.dy), rows = numel(p.dy) / columns, threads = row_threads(columns);
  cuda.launch(softmax_backward_kernel, row_grid(cuda, rows, threads), dim3(static_cast<unsigned>(threads)), 0,
              chunks_in(p.dy, columns), chunks_in(p.y, columns), chunks_out(p.dx, columns), rows, columns);
}

}  // namespace lk::cuda
