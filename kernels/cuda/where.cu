// y = condition != 0 ? a : b with broadcasting. No integer and no float but zero becomes zero on its way to float32.
#include "cuda/await_previous.cuh"
#include "cuda/axes.cuh"
#include "cuda/elements.cuh"

namespace lk::cuda {

namespace {

__global__ void where_kernel(In condition, In a, In b, Axes<3> axes, Out y, int64_t count) {
  await_previous();
  const bool integers = y.dtype == LK_I32;
  for (int64_t i = thread_index(); i < count; i += thread_count()) {
    int64_t at[3];
    axes.locate(i, axes.rank, at);
    const bool first = load(condition, at[0]) != 0.0f;
    const In& from = first ? a : b;
    const int64_t place = first ? at[1] : at[2];
    if (integers) {
      static_cast<int32_t*>(y.data)[i] = static_cast<const int32_t*>(from.data)[place];
    } else {
      store(y, i, load(from, place));
    }
  }
}

}  // namespace

void where(Cuda& cuda, const lk_where_params& p) {
  const int64_t count = numel(p.y);
  const Axes<3> axes = broadcast_axes<3>(p.y, {&p.condition, &p.a, &p.b});
  cuda.launch(where_kernel, grid_for(cuda, count), block_threads, 0, in(p.condition), in(p.a), in(p.b), axes, out(p.y),
              count);
}

}  // namespace lk::cuda
