// Tensors in lines (lines.h) in loops over rows: where a row of `width` elements begins.
#pragma once

#include <algorithm>
#include <initializer_list>

#include "cuda/elements.cuh"

namespace lk::cuda {

// a / b, both at least 0: a division of 64 bits takes several times as long as one of 32.
__device__ inline int64_t quotient(int64_t a, int64_t b) {
  if (((a | b) >> 32) == 0) return static_cast<uint32_t>(a) / static_cast<uint32_t>(b);
  return a / b;
}

struct LinePlaces {
  int64_t rows_of_line, pitch, width;
  __device__ int64_t row(int64_t i) const {
    if (rows_of_line == 1) return i * pitch;
    const int64_t line = quotient(i, rows_of_line);
    return line * pitch + (i - line * rows_of_line) * width;
  }
};

// Of rows that divide the tensor's lines; an absent tensor's mean nothing.
inline LinePlaces line_places(const lk_tensor& t, int64_t width) {
  if (!present(t)) return {1, width, width};
  const Lines lines = *lines_of(t);
  if (lines.dense()) return {1, width, width};
  return {lines.line / width, lines.pitch, width};
}

// Rows that do not lie whole in a line, or whose lines begin at odd places, are copied.
inline bool takes_lines(const lk_tensor& t, int64_t width) {
  return !present(t) || is_dense(t) || (lines_of(t)->line % width == 0 && lines_aligned(t));
}

// The longest row that lies whole in a line of every one of these tensors of one shape: their lines are products of
// last axes, so the shortest divides the others. 0: all are dense.
inline int64_t common_line(std::initializer_list<const lk_tensor*> tensors) {
  int64_t shortest = 0;
  for (const lk_tensor* t : tensors) {
    if (!present(*t)) continue;
    const Lines lines = *lines_of(*t);
    if (!lines.dense() && (shortest == 0 || lines.line < shortest)) shortest = lines.line;
  }
  return shortest;
}

// Calls body(length, offset in each tensor...) for every chunk of the thread. width 0: tensors are one row each.
template <class Body, class... Places>
__device__ void each_chunk(int64_t count, int64_t width, const Body& body, const Places&... places) {
  if (width == 0) {
    for (int64_t i = thread_index() * vector_width; i < count; i += thread_count() * vector_width)
      body(chunk_length(count - i), (static_cast<void>(places), i)...);
    return;
  }
  for (ChunkWalk walk(count / width, width); walk.there(); walk.next()) {
    const Chunk chunk = walk.chunk();
    body(chunk.length, (places.row(chunk.row) + chunk.column)...);
  }
}

}  // namespace lk::cuda
