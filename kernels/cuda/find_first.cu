// index[b] = the first place of `value` in ids[b, :], else the last place. A warp looks at 32 ids of its row at once.
#include "cuda/await_previous.cuh"
#include "cuda/elements.cuh"

namespace lk::cuda {

namespace {

__global__ void find_first_kernel(const int32_t* ids, int64_t rows, int64_t length, int64_t value, int32_t* index) {
  await_previous();
  const int64_t lane = threadIdx.x % 32;
  for (int64_t row = thread_index() / 32; row < rows; row += thread_count() / 32) {
    int64_t place = length - 1;
    for (int64_t begin = 0; begin < length; begin += 32) {
      const bool found = begin + lane < length && ids[row * length + begin + lane] == value;
      const unsigned lanes = __ballot_sync(0xffffffffu, found);
      if (lanes == 0) continue;
      place = begin + __ffs(static_cast<int>(lanes)) - 1;
      break;
    }
    if (lane == 0) index[row] = static_cast<int32_t>(place);
  }
}

}  // namespace

void find_first(Cuda& cuda, const lk_find_first_params& p) {
  const int64_t rows = p.ids.dims[0], length = p.ids.dims[1];
  cuda.launch(find_first_kernel, grid_for(cuda, rows * 32), block_threads, 0, static_cast<const int32_t*>(p.ids.data),
              rows, length, p.value, static_cast<int32_t*>(p.index.data));
}

}  // namespace lk::cuda
