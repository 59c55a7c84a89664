// y = a (kind) b with broadcasting. The loop is over y's chunks; along its inner axis each input either advances by
// one or stands still, so equal shapes, a scalar, a [C] vector and [B, 1, C] are all read in chunks as well.
#include "cuda/await_previous.cuh"
#include "cuda/axes.cuh"
#include "cuda/elements.cuh"
#include "integers.h"

namespace lk::cuda {

namespace {

template <class F>
__device__ void combine(const float (&a)[8], const float (&b)[8], float (&y)[8], F f) {
#pragma unroll
  for (int k = 0; k < 8; ++k) y[k] = f(a[k], b[k]);
}

// NaN in either operand of the largest and the smallest gives NaN.
__device__ void combine(lk_binary_kind kind, const float (&a)[8], const float (&b)[8], float (&y)[8]) {
  switch (kind) {
    case LK_ADD: return combine(a, b, y, [](float l, float r) { return l + r; });
    case LK_SUB: return combine(a, b, y, [](float l, float r) { return l - r; });
    case LK_MUL: return combine(a, b, y, [](float l, float r) { return l * r; });
    case LK_DIV: return combine(a, b, y, [](float l, float r) { return l / r; });
    case LK_MAX: return combine(a, b, y, [](float l, float r) { return l > r || l != l ? l : r; });
    case LK_MIN: return combine(a, b, y, [](float l, float r) { return l < r || l != l ? l : r; });
    case LK_GREATER_EQUAL: return combine(a, b, y, [](float l, float r) { return l >= r ? 1.0f : 0.0f; });
    case LK_EQUAL: return combine(a, b, y, [](float l, float r) { return l == r ? 1.0f : 0.0f; });
    case LK_LESS: return combine(a, b, y, [](float l, float r) { return l < r ? 1.0f : 0.0f; });
    case LK_LESS_EQUAL: return combine(a, b, y, [](float l, float r) { return l <= r ? 1.0f : 0.0f; });
    default: return combine(a, b, y, [](float l, float r) { return l > r ? 1.0f : 0.0f; });
  }
}

__global__ void binary_kernel(lk_binary_kind kind, ChunksIn a, ChunksIn b, Axes<2> axes, ChunksOut y, int64_t rows) {
  await_previous();
  const int64_t width = axes.inner();
  for (ChunkWalk walk(rows, width); walk.there(); walk.next()) {
    const Chunk chunk = walk.chunk();
    int64_t at[2];
    axes.locate(chunk.row, axes.rank - 1, at);
    float left[8], right[8], result[8];
    load_along(a, at[0], axes.inner_stride(0), chunk, left);
    load_along(b, at[1], axes.inner_stride(1), chunk, right);
    combine(kind, left, right, result);
    const int64_t to = chunk.row * width + chunk.column;
    if (y.tensor.dtype != LK_I32) {
      store_chunk(y, to, chunk.length, result);
      continue;
    }
    for (int k = 0; k < chunk.length; ++k) static_cast<int32_t*>(y.tensor.data)[to + k] = result[k] != 0.0f;
  }
}

__global__ void integer_kernel(lk_binary_kind kind, const int32_t* a, const int32_t* b, Axes<2> axes, Out y,
                               int64_t count) {
  await_previous();
  for (int64_t i = thread_index(); i < count; i += thread_count()) {
    int64_t at[2];
    axes.locate(i, axes.rank, at);
    const int32_t result = integer_binary(kind, a[at[0]], b[at[1]]);
    if (y.dtype == LK_I32) {
      static_cast<int32_t*>(y.data)[i] = result;
    } else {
      store(y, i, static_cast<float>(result));
    }
  }
}

}  // namespace

void binary(Cuda& cuda, const lk_binary_params& p) {
  const Axes<2> axes = broadcast_axes<2>(p.y, {&p.a, &p.b});
  if (p.a.dtype == LK_I32) {
    const int64_t count = numel(p.y);
    cuda.launch(integer_kernel, grid_for(cuda, count), block_threads, 0, p.kind, static_cast<const int32_t*>(p.a.data),
                static_cast<const int32_t*>(p.b.data), axes, out(p.y), count);
    return;
  }
  const int64_t width = axes.inner(), rows = numel(p.y) / width;
  cuda.launch(binary_kernel, grid_for(cuda, rows * chunks_of(width)), block_threads, 0, p.kind,
              chunks_in(p.a, axes.row_width()), chunks_in(p.b, axes.row_width()), axes,
              chunks_out(p.y, axes.row_width()), rows);
}

}  // namespace lk::cuda
