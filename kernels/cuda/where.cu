// y = condition != 0 ? a : b. No integer and no float but zero becomes zero on its way to float32.
#include "cuda/elements.cuh"

namespace lk::cuda {

namespace {

__global__ void where_kernel(In condition, In a, In b, Out y, int64_t count) {
  for (int64_t i = thread_index(); i < count; i += thread_count()) {
    store(y, i, load(load(condition, i) != 0.0f ? a : b, i));
  }
}

}  // namespace

void where(Cuda& cuda, const lk_where_params& p) {
  const int64_t count = numel(p.y);
  cuda.launch(where_kernel, grid_for(cuda, count), block_threads, 0, in(p.condition), in(p.a), in(p.b), out(p.y),
              count);
}

}  // namespace lk::cuda
