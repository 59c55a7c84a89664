// Every pixel of x [N, H, W, C] becomes a 2x2 block of y [N, 2H, 2W, C]: x [NH, 1, W, 1, C] expanded to
// [NH, 2, W, 2, C]. The gradient sums the block.
#include "cuda/await_previous.cuh"
#include "cuda/elements.cuh"

namespace lk::cuda {

namespace {

// Chunks of dx's pixels; a line of dy has 2 * width pixels.
__global__ void sum_blocks_kernel(ChunksIn dy, int64_t width, int64_t channels, ChunksOut dx, int64_t chunks) {
  await_previous();
  const int64_t line = 2 * width * channels;
  for (int64_t i = thread_index(); i < chunks; i += thread_count()) {
    const Chunk chunk = chunk_at(i, channels);  // its row is a pixel of dx
    const int64_t y = chunk.row / width, x = chunk.row - y * width;
    const int64_t top = 2 * y * line + 2 * x * channels + chunk.column, bottom = top + line;
    float a[8], b[8], c[8], d[8];
    load_chunk(dy, top, chunk.length, a);
    load_chunk(dy, top + channels, chunk.length, b);
    load_chunk(dy, bottom, chunk.length, c);
    load_chunk(dy, bottom + channels, chunk.length, d);
#pragma unroll
    for (int k = 0; k < 8; ++k) a[k] = (a[k] + b[k]) + (c[k] + d[k]);
    store_chunk(dx, chunk.row * channels + chunk.column, chunk.length, a);
  }
}

}  // namespace

void upsample_nearest2x(Cuda& cuda, const lk_upsample_nearest2x_params& p) {
  const int64_t lines = p.x.dims[0] * p.x.dims[1], width = p.x.dims[2], channels = p.x.dims[3];
  expand(cuda, {.x = {p.x.data, p.x.dtype, 5, {lines, 1, width, 1, channels}},
                .y = {p.y.data, p.y.dtype, 5, {lines, 2, width, 2, channels}}});
}

void upsample_nearest2x_backward(Cuda& cuda, const lk_upsample_nearest2x_params& p) {
  const int64_t width = p.y.dims[2], channels = p.y.dims[3], chunks = numel(p.y) / channels * chunks_of(channels);
  cuda.launch(sum_blocks_kernel, grid_for(cuda, chunks), block_threads, 0, chunks_in(p.x, channels), width, channels,
              chunks_out(p.y, channels), chunks);
}

}  // namespace lk::cuda
