// y[i, :] = table[ids[i], :]. The ids are on the device, so one outside the table cannot be reported while the
// operation is enqueued: its row of y becomes NaN, which no later result hides.
#include "cuda/await_previous.cuh"
#include "cuda/elements.cuh"

namespace lk::cuda {

namespace {

__global__ void embedding_kernel(const int32_t* ids, In table, int64_t entries, int64_t depth, Out y, int64_t count) {
  await_previous();
  for (int64_t i = thread_index(); i < count; i += thread_count()) {
    const int64_t place = i / depth, column = i - place * depth, id = ids[place];
    store(y, i, id >= 0 && id < entries ? load(table, id * depth + column) : NAN);
  }
}

}  // namespace

void embedding(Cuda& cuda, const lk_embedding_params& p) {
  const int64_t count = numel(p.y);
  cuda.launch(embedding_kernel, grid_for(cuda, count), block_threads, 0, static_cast<const int32_t*>(p.ids.data),
              in(p.table), p.table.dims[0], p.table.dims[1], out(p.y), count);
}

}  // namespace lk::cuda
