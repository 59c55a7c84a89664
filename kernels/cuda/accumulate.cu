// total (+)= alpha x.
#include "cuda/await_previous.cuh"
#include "cuda/elements.cuh"

namespace lk::cuda {

namespace {

__global__ void accumulate_kernel(ChunksIn x, float alpha, bool add, ChunksIn before, ChunksOut total, int64_t count) {
  await_previous();
  for (int64_t i = thread_index() * vector_width; i < count; i += thread_count() * vector_width) {
    const int length = chunk_length(count - i);
    float v[8], sum[8] = {};
    load_chunk(x, i, length, v);
    if (add) load_chunk(before, i, length, sum);
#pragma unroll
    for (int k = 0; k < 8; ++k) sum[k] = add ? sum[k] + alpha * v[k] : alpha * v[k];
    store_chunk(total, i, length, sum);
  }
}

}  // namespace

void accumulate(Cuda& cuda, const lk_accumulate_params& p) {
  const int64_t count = numel(p.x);
  cuda.launch(accumulate_kernel, grid_for(cuda, chunks_of(count)), block_threads, 0, chunks_in(p.x), p.alpha,
              p.accumulate != 0, chunks_in(p.total), chunks_out(p.total), count);
}

}  // namespace lk::cuda
