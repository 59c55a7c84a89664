// y [B, D] = x [B, index[b], D], and the gradient, which is zero elsewhere. The indices are on the device, so one
// outside the rows cannot be reported: y's row becomes NaN, in the gradient the first row of dx[b].
#include "cuda/elements.cuh"

namespace lk::cuda {

namespace {

__global__ void gather_kernel(In x, const int32_t* index, int64_t length, int64_t depth, Out y, int64_t count) {
  for (int64_t i = thread_index(); i < count; i += thread_count()) {
    const int64_t b = i / depth, column = i - b * depth, row = index[b];
    store(y, i, row >= 0 && row < length ? load(x, (b * length + row) * depth + column) : NAN);
  }
}

__global__ void scatter_kernel(In dy, const int32_t* index, int64_t length, int64_t depth, Out dx, int64_t count) {
  for (int64_t i = thread_index(); i < count; i += thread_count()) {
    const int64_t b = i / depth, column = i - b * depth, row = index[b];
    const bool good = row >= 0 && row < length;
    store(dx, (b * length + (good ? row : 0)) * depth + column, good ? load(dy, i) : NAN);
  }
}

}  // namespace

void gather(Cuda& cuda, const lk_gather_params& p) {
  const int64_t count = numel(p.y);
  cuda.launch(gather_kernel, grid_for(cuda, count), block_threads, 0, in(p.x),
              static_cast<const int32_t*>(p.index.data), p.x.dims[1], p.x.dims[2], out(p.y), count);
}

void gather_backward(Cuda& cuda, const lk_gather_backward_params& p) {
  const int64_t count = numel(p.dy);
  cuda.fill_zero(p.dx.data, bytes_of(p.dx));
  cuda.launch(scatter_kernel, grid_for(cuda, count), block_threads, 0, in(p.dy),
              static_cast<const int32_t*>(p.index.data), p.dx.dims[1], p.dx.dims[2], out(p.dx), count);
}

}  // namespace lk::cuda
