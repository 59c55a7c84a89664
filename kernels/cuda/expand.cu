// y = x repeated along the axes where x has 1: along the inner axis x either advances with y or stands still.
#include "cuda/await_previous.cuh"
#include "cuda/axes.cuh"
#include "cuda/elements.cuh"

namespace lk::cuda {

namespace {

__global__ void expand_kernel(ChunksIn x, Axes<1> axes, ChunksOut y, int64_t chunks) {
  await_previous();
  const int64_t width = axes.inner();
  for (int64_t i = thread_index(); i < chunks; i += thread_count()) {
    const Chunk chunk = chunk_at(i, width);
    int64_t at[1];
    axes.locate(chunk.row, axes.rank - 1, at);
    float v[8];
    load_along(x, at[0], axes.inner_stride(0), chunk, v);
    store_chunk(y, chunk.row * width + chunk.column, chunk.length, v);
  }
}

}  // namespace

void expand(Cuda& cuda, const lk_expand_params& p) {
  const Axes<1> axes = broadcast_axes<1>(p.y, {&p.x});
  lk_tensor x = p.x, y = p.y;
  if (x.dtype == LK_I32) x.dtype = y.dtype = LK_F32;  // 32 bits that nothing computes with
  const int64_t width = axes.inner(), chunks = numel(p.y) / width * chunks_of(width);
  cuda.launch(expand_kernel, grid_for(cuda, chunks), block_threads, 0, chunks_in(x, axes.row_width()), axes,
              chunks_out(y, axes.row_width()), chunks);
}

}  // namespace lk::cuda
