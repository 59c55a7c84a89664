// y [B, K, D] = x [B, index[b, k], D], and the gradient. The indices are on the device, so one outside the rows cannot
// be reported: y's row becomes NaN, in the gradient the first row of dx[b].
#include "cuda/await_previous.cuh"
#include "cuda/elements.cuh"

namespace lk::cuda {

namespace {

// `taken` rows of each of `batch` samples of `length` rows of `depth` elements.
struct Rows {
  int64_t batch, length, taken, depth;
};

Rows rows_of(const lk_tensor& x, const lk_tensor& index) {
  const int64_t batch = x.dims[0], length = x.dims[1];
  return {batch, length, numel(index) / batch, numel(x) / (batch * length)};
}

__global__ void gather_kernel(In x, const int32_t* index, Rows r, Out y, int64_t count) {
  await_previous();
  for (int64_t i = thread_index(); i < count; i += thread_count()) {
    const int64_t place = i / r.depth, column = i - place * r.depth, row = index[place];
    const bool good = row >= 0 && row < r.length;
    const int64_t from = (place / r.taken * r.length + row) * r.depth + column;
    if (y.dtype == LK_I32) {
      static_cast<int32_t*>(y.data)[i] = good ? static_cast<const int32_t*>(x.data)[from] : INT32_MIN;
    } else {
      store(y, i, good ? load(x, from) : NAN);
    }
  }
}

// One row of each sample: dx was filled with zeros.
__global__ void scatter_kernel(In dy, const int32_t* index, Rows r, Out dx, int64_t count) {
  await_previous();
  for (int64_t i = thread_index(); i < count; i += thread_count()) {
    const int64_t b = i / r.depth, column = i - b * r.depth, row = index[b];
    const bool good = row >= 0 && row < r.length;
    store(dx, (b * r.length + (good ? row : 0)) * r.depth + column, good ? load(dy, i) : NAN);
  }
}

// A warp for a row of dx and 32 of its columns: it looks at 32 indices at once and adds, in their order, the rows of dy
// whose index is its own.
__global__ void add_rows_kernel(In dy, const int32_t* index, Rows r, Out dx) {
  await_previous();
  const int64_t lane = threadIdx.x % 32, parts = (r.depth + 31) / 32, tasks = r.batch * r.length * parts;
  for (int64_t task = thread_index() / 32; task < tasks; task += thread_count() / 32) {
    const int64_t row = task / parts, column = task % parts * 32 + lane, b = row / r.length, own = row % r.length;
    const int32_t* const places = index + b * r.taken;
    float sum = 0;
    for (int64_t begin = 0; begin < r.taken; begin += 32) {
      const int64_t place = begin + lane < r.taken ? places[begin + lane] : own + r.length;
      const bool outside = begin + lane < r.taken && (place < 0 || place >= r.length);
      if (__any_sync(0xffffffffu, outside) && own == 0) sum = NAN;
      for (unsigned mine = __ballot_sync(0xffffffffu, place == own); mine != 0; mine &= mine - 1) {
        const int64_t k = begin + __ffs(static_cast<int>(mine)) - 1;
        if (column < r.depth) sum += load(dy, (b * r.taken + k) * r.depth + column);
      }
    }
    if (column < r.depth) store(dx, row * r.depth + column, sum);
  }
}

}  // namespace

void gather(Cuda& cuda, const lk_gather_params& p) {
  const int64_t count = numel(p.y);
  cuda.launch(gather_kernel, grid_for(cuda, count), block_threads, 0, in(p.x),
              static_cast<const int32_t*>(p.index.data), rows_of(p.x, p.index), out(p.y), count);
}

void gather_backward(Cuda& cuda, const lk_gather_backward_params& p) {
  const auto* const index = static_cast<const int32_t*>(p.index.data);
  const Rows r = rows_of(p.dx, p.index);
  if (r.taken == 1) {
    const int64_t count = numel(p.dy);
    cuda.fill_zero(p.dx.data, bytes_of(p.dx));
    cuda.launch(scatter_kernel, grid_for(cuda, count), block_threads, 0, in(p.dy), index, r, out(p.dx), count);
    return;
  }
  const int64_t warps = r.batch * r.length * ceil_div(r.depth, 32);
  cuda.launch(add_rows_kernel, grid_for(cuda, warps * 32), block_threads, 0, in(p.dy), index, r, out(p.dx));
}

}  // namespace lk::cuda
