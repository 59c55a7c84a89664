// y = a (kind) b with broadcasting. The loop is over y's chunks; along its inner axis each input either advances by
// one or stands still, so equal shapes, a scalar, a [C] vector and [B, 1, C] are all read in chunks as well.
#include "cuda/axes.cuh"
#include "cuda/elements.cuh"

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
    default: return combine(a, b, y, [](float l, float r) { return l >= r ? 1.0f : 0.0f; });
  }
}

__global__ void binary_kernel(lk_binary_kind kind, ChunksIn a, ChunksIn b, Axes<2> axes, ChunksOut y, int64_t chunks) {
  const int64_t width = axes.inner();
  for (int64_t i = thread_index(); i < chunks; i += thread_count()) {
    const Chunk chunk = chunk_at(i, width);
    int64_t at[2];
    axes.locate(chunk.row, axes.rank - 1, at);
    float left[8], right[8], result[8];
    load_along(a, at[0], axes.inner_stride(0), chunk, left);
    load_along(b, at[1], axes.inner_stride(1), chunk, right);
    combine(kind, left, right, result);
    store_chunk(y, chunk.row * width + chunk.column, chunk.length, result);
  }
}

}  // namespace

void binary(Cuda& cuda, const lk_binary_params& p) {
  const Axes<2> axes = broadcast_axes<2>(p.y, {&p.a, &p.b});
  const int64_t width = axes.inner(), chunks = numel(p.y) / width * chunks_of(width);
  cuda.launch(binary_kernel, grid_for(cuda, chunks), block_threads, 0, p.kind, chunks_in(p.a, axes.row_width()),
              chunks_in(p.b, axes.row_width()), axes, chunks_out(p.y, axes.row_width()), chunks);
}

}  // namespace lk::cuda
