// Dropout factors: element i is word i % 4 of the Philox block with counter (i / 4, step, stream low, stream high) and
// key = seed, whatever thread computes it. An element is dropped where its word is below p 2^32.
#include <cmath>

#include "cuda/await_previous.cuh"
#include "cuda/elements.cuh"
#include "philox.h"

namespace lk::cuda {

namespace {

__global__ void mask_kernel(const int32_t* step, uint64_t threshold, float kept, uint64_t seed, uint64_t stream,
                            ChunksOut y, int64_t count) {
  await_previous();
  const auto turn = static_cast<uint32_t>(*step);
  for (int64_t i = thread_index() * vector_width; i < count; i += thread_count() * vector_width) {
    float v[8];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const PhiloxBlock random = philox(static_cast<uint32_t>(i / 4 + half), turn, stream, seed);
#pragma unroll
      for (int k = 0; k < 4; ++k) v[4 * half + k] = random.words[k] < threshold ? 0.0f : kept;
    }
    store_chunk(y, i, chunk_length(count - i), v);
  }
}

}  // namespace

void dropout_mask(Cuda& cuda, const lk_dropout_mask_params& p) {
  const int64_t count = numel(p.y);
  const auto threshold = static_cast<uint64_t>(std::llround(std::ldexp(static_cast<double>(p.p), 32)));
  const float kept = static_cast<float>(1.0 / (1.0 - static_cast<double>(p.p)));
  cuda.launch(mask_kernel, grid_for(cuda, chunks_of(count)), block_threads, 0, static_cast<const int32_t*>(p.step.data),
              threshold, kept, p.seed, p.stream, chunks_out(p.y), count);
}

}  // namespace lk::cuda
