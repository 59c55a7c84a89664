// Box-Muller (1958): two uniform words u, v give sqrt(-2 ln u) (cos 2 pi v, sin 2 pi v). Elements 4i .. 4i+3 come from
// the Philox block with counter (i, 0, stream) and key = seed.
#include "cuda/await_previous.cuh"
#include "cuda/elements.cuh"
#include "philox.h"

namespace lk::cuda {

namespace {

__global__ void normal_kernel(float scale, uint64_t seed, uint64_t stream, ChunksOut y, int64_t count) {
  await_previous();
  constexpr float turn = 6.283185307179586f;
  for (int64_t i = thread_index() * vector_width; i < count; i += thread_count() * vector_width) {
    float v[8];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const PhiloxBlock random = philox(static_cast<uint32_t>(i / 4 + half), 0, stream, seed);
#pragma unroll
      for (int pair = 0; pair < 4; pair += 2) {
        const float radius = sqrtf(-2.0f * logf(philox_uniform(random.words[pair])));
        float sine, cosine;
        sincosf(turn * philox_uniform(random.words[pair + 1]), &sine, &cosine);
        v[4 * half + pair] = scale * radius * cosine;
        v[4 * half + pair + 1] = scale * radius * sine;
      }
    }
    store_chunk(y, i, chunk_length(count - i), v);
  }
}

}  // namespace

void random_normal(Cuda& cuda, const lk_random_normal_params& p) {
  const int64_t count = numel(p.y);
  cuda.launch(normal_kernel, grid_for(cuda, chunks_of(count)), block_threads, 0, p.scale, p.seed, p.stream,
              chunks_out(p.y), count);
}

}  // namespace lk::cuda
