// Loops over chunks of up to 8 neighbouring elements, which is what one thread handles at a time: one or two 16-byte
// accesses where the data allows them, element by element at the end of a row and in unaligned data.
#pragma once

#include "cuda/types.cuh"

namespace lk::cuda {

__device__ inline int64_t thread_index() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ inline int64_t thread_count() { return int64_t{gridDim.x} * blockDim.x; }

inline int64_t chunks_of(int64_t width) { return ceil_div(width, vector_width); }

// How many elements the chunk that begins `left` elements before the end of its row has.
__device__ inline int chunk_length(int64_t left) { return left < vector_width ? static_cast<int>(left) : vector_width; }

struct Chunk {
  int64_t row, column;
  int length;
};

// Chunk i of rows of `width` elements, none of which shares a chunk with another.
__device__ inline Chunk chunk_at(int64_t i, int64_t width) {
  const int64_t per_row = (width + vector_width - 1) / vector_width;
  const int64_t row = i / per_row, column = (i - row * per_row) * vector_width;
  return {row, column, chunk_length(width - column)};
}

// A thread's chunks of `rows` rows in a loop with a grid stride: places are divided once, not for every chunk, which
// would take as long as reading it.
class ChunkWalk {
 public:
  __device__ ChunkWalk(int64_t rows, int64_t width)
      : rows_(rows), width_(width), per_row_((width + vector_width - 1) / vector_width) {
    row_ = thread_index() / per_row_, column_ = thread_index() - row_ * per_row_;
    row_step_ = thread_count() / per_row_, column_step_ = thread_count() - row_step_ * per_row_;
  }
  __device__ bool there() const { return row_ < rows_; }
  __device__ Chunk chunk() const {
    const int64_t column = column_ * vector_width;
    return {row_, column, chunk_length(width_ - column)};
  }
  __device__ void next() {
    row_ += row_step_, column_ += column_step_;
    if (column_ >= per_row_) column_ -= per_row_, ++row_;
  }

 private:
  const int64_t rows_, width_, per_row_;
  int64_t row_, column_, row_step_, column_step_;
};

// An f32, f16 or bf16 tensor read or written in chunks of rows of `width`; 0 stands for a single row of any width.
struct ChunksIn {
  In tensor;
  bool wide;  // whole chunks are aligned to 16 bytes
};

struct ChunksOut {
  Out tensor;
  bool wide;
};

inline ChunksIn chunks_in(const lk_tensor& t, int64_t width = 0) { return {in(t), aligned(t, width)}; }
inline ChunksOut chunks_out(const lk_tensor& t, int64_t width = 0) { return {out(t), aligned(t, width)}; }

// Elements i .. i + length - 1; the rest of v becomes 0.
__device__ inline void load_chunk(const ChunksIn& x, int64_t i, int length, float (&v)[8]) {
  if (x.wide && length == vector_width) return load8(x.tensor, i, v);
  if (x.tensor.dtype == LK_F32) {
    const float* const p = static_cast<const float*>(x.tensor.data) + i;
#pragma unroll
    for (int k = 0; k < 8; ++k) v[k] = k < length ? p[k] : 0.0f;
    return;
  }
  const uint16_t* const p = static_cast<const uint16_t*>(x.tensor.data) + i;
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    const uint16_t raw = k < length ? p[k] : uint16_t{0};
    v[k] = x.tensor.dtype == LK_BF16 ? __uint_as_float(uint32_t{raw} << 16) : __half2float(__ushort_as_half(raw));
  }
}

// A chunk of a row that begins at element `start` and advances by `stride`, 0 or 1: with 0 every element is the same.
__device__ inline void load_along(const ChunksIn& x, int64_t start, int64_t stride, const Chunk& chunk, float (&v)[8]) {
  if (stride != 0) return load_chunk(x, start + chunk.column, chunk.length, v);
  const float value = load(x.tensor, start);
#pragma unroll
  for (int k = 0; k < 8; ++k) v[k] = value;
}

__device__ inline void store_chunk(const ChunksOut& y, int64_t i, int length, const float (&v)[8]) {
  if (y.wide && length == vector_width) return store8(y.tensor, i, v);
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    if (k < length) store(y.tensor, i + k, v[k]);
  }
}

}  // namespace lk::cuda
