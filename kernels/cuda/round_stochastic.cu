// Stochastic rounding to bf16: element i takes word i % 4 of the Philox block i / 4, whatever thread rounds it.
#include "cuda/await_previous.cuh"
#include "cuda/elements.cuh"
#include "round_stochastic.h"

namespace lk::cuda {

namespace {

__global__ void round_kernel(ChunksIn x, const int32_t* step, uint64_t seed, uint64_t stream, ChunksOut y,
                             int64_t count) {
  await_previous();
  const int32_t turn = *step;
  for (int64_t i = thread_index() * vector_width; i < count; i += thread_count() * vector_width) {
    const int length = chunk_length(count - i);
    float v[8];
    load_chunk(x, i, length, v);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const PhiloxBlock random = stochastic_words(i / 4 + half, turn, seed, stream);
#pragma unroll
      for (int k = 4 * half; k < 4 * half + 4; ++k)  // exact in bf16: storing rounds no more
        v[k] = __uint_as_float(stochastic_bf16(__float_as_uint(v[k]), random.words[k % 4]) << 16);
    }
    store_chunk(y, i, length, v);
  }
}

}  // namespace

void round_stochastic(Cuda& cuda, const lk_round_stochastic_params& p) {
  const int64_t count = numel(p.x);
  cuda.launch(round_kernel, grid_for(cuda, chunks_of(count)), block_threads, 0, chunks_in(p.x),
              static_cast<const int32_t*>(p.step.data), p.seed, p.stream, chunks_out(p.y), count);
}

}  // namespace lk::cuda
