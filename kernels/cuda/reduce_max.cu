// y = max of x over the axes where y has 1: one block for each element of y. Elements of y too few to fill the device
// share their work among several blocks, whose results are then reduced likewise.
#include "cuda/await_previous.cuh"
#include "cuda/axes.cuh"
#include "cuda/elements.cuh"

namespace lk::cuda {

namespace {

// NaN wins.
__device__ float larger(float a, float b) { return a > b || a != a ? a : b; }

// Block r of the `runs` of element o of y looks at elements [r run, (r + 1) run) of what is reduced to it.
__global__ void reduce_max_kernel(In x, Axes<1> kept, Axes<1> reduced, int64_t width, int64_t run, int64_t runs,
                                  Out y) {
  await_previous();
  __shared__ float shared[block_threads];
  const int64_t o = blockIdx.x / runs, r = blockIdx.x % runs, end = min((r + 1) * run, width);
  int64_t base[1], at[1];
  kept.locate(o, kept.rank, base);
  float most = -INFINITY;
  for (int64_t i = r * run + threadIdx.x; i < end; i += block_threads) {
    reduced.locate(i, reduced.rank, at);
    most = larger(load(x, base[0] + at[0]), most);
  }
  shared[threadIdx.x] = most;
  __syncthreads();
  for (int half = block_threads / 2; half > 0; half /= 2) {
    if (static_cast<int>(threadIdx.x) < half)
      shared[threadIdx.x] = larger(shared[threadIdx.x + half], shared[threadIdx.x]);
    __syncthreads();
  }
  if (threadIdx.x == 0) store(y, blockIdx.x, shared[0]);
}

void launch(Cuda& cuda, const In& x, const Axes<1>& kept, const Axes<1>& reduced, int64_t run, const Out& y) {
  const int64_t width = reduced.count(), runs = ceil_div(width, run);
  const dim3 grid(static_cast<unsigned>(kept.count() * runs));
  cuda.launch(reduce_max_kernel, grid, block_threads, 0, x, kept, reduced, width, run, runs, y);
}

}  // namespace

void reduce_max(Cuda& cuda, const lk_reduce_max_params& p) {
  constexpr int64_t shortest = 4096;
  Axes<1> kept, reduced;
  int64_t stride = 1, strides[LK_MAX_RANK];
  for (int32_t i = p.x.rank - 1; i >= 0; --i) strides[i] = stride, stride *= p.x.dims[i];
  for (int32_t i = 0; i < p.x.rank; ++i) (p.y.dims[i] == 1 ? reduced : kept).add(p.x.dims[i], {strides[i]});
  const int64_t width = reduced.count(),
                wanted = ceil_div(int64_t{cuda.device().multiProcessorCount} * 4, kept.count());
  const int64_t runs = std::min(wanted, ceil_div(width, shortest));
  if (runs <= 1) return launch(cuda, in(p.x), kept, reduced, width, out(p.y));
  const int64_t run = ceil_div(width, runs), parts = ceil_div(width, run);
  float* const partial = cuda.scratch<float>(kept.count() * parts);
  launch(cuda, in(p.x), kept, reduced, run, {partial, LK_F32});
  Axes<1> rows, columns;
  rows.add(kept.count(), {parts});
  columns.add(parts, {1});
  launch(cuda, {partial, LK_F32}, rows, columns, parts, out(p.y));
}

}  // namespace lk::cuda
