// The k largest of each row. A block finds them one after the other: each time the first, in the order of the results,
// of those that come after the last one found. That reads a row k times, which suits the few that are asked for.
#include "cuda/await_previous.cuh"
#include "cuda/elements.cuh"

namespace lk::cuda {

namespace {

// A key orders as the result does: larger values first, NaN before all, equal ones by place. No key is 0 or UINT64_MAX.
__device__ inline uint64_t key_of(float value, int64_t place) {
  const float plain = value == 0.0f ? 0.0f : value;  // -0 equals 0
  const uint32_t raw = __float_as_uint(plain);
  const uint32_t ordered = value != value ? 0xfffffffeu : (raw >> 31 != 0 ? ~raw : raw | 0x80000000u);
  return (static_cast<uint64_t>(ordered) << 32) | (0xffffffffu - static_cast<uint32_t>(place));
}

__device__ inline int64_t place_of(uint64_t key) { return 0xffffffffu - static_cast<uint32_t>(key); }

__device__ inline uint64_t warp_largest(uint64_t key) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) key = max(key, __shfl_xor_sync(0xffffffffu, key, offset));
  return key;
}

// Of all threads of the block.
__device__ inline uint64_t block_largest(uint64_t key, uint64_t* shared) {
  key = warp_largest(key);
  const int warps = static_cast<int>(blockDim.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  __syncthreads();
  if (lane == 0) shared[threadIdx.x / 32] = key;
  __syncthreads();
  return warp_largest(lane < warps ? shared[lane] : 0);
}

__global__ void top_k_kernel(In x, int64_t rows, int64_t size, int64_t k, Out values, int32_t* index) {
  await_previous();
  __shared__ uint64_t shared[32];
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    uint64_t last = UINT64_MAX;
    for (int64_t i = 0; i < k; ++i) {
      uint64_t best = 0;
      for (int64_t place = threadIdx.x; place < size; place += blockDim.x) {
        const uint64_t key = key_of(load(x, row * size + place), place);
        if (key < last) best = max(best, key);
      }
      last = block_largest(best, shared);
      if (threadIdx.x != 0) continue;
      const int64_t place = place_of(last);
      index[row * k + i] = static_cast<int32_t>(place);
      store(values, row * k + i, load(x, row * size + place));
    }
  }
}

__global__ void top_k_backward_kernel(In dvalues, const int32_t* index, int64_t size, int64_t k, Out dx,
                                      int64_t count) {
  await_previous();
  for (int64_t i = thread_index(); i < count; i += thread_count()) {
    const int64_t place = index[i];
    if (place >= 0 && place < size) store(dx, i / k * size + place, load(dvalues, i));
  }
}

}  // namespace

void top_k(Cuda& cuda, const lk_top_k_params& p) {
  const int64_t size = p.x.dims[p.x.rank - 1], k = p.index.dims[p.index.rank - 1], rows = numel(p.x) / size;
  const unsigned threads = size <= 32 ? 32 : size <= 128 ? 128 : block_threads;
  const dim3 grid(static_cast<unsigned>(std::min<int64_t>(rows, 1 << 20)));
  cuda.launch(top_k_kernel, grid, threads, 0, in(p.x), rows, size, k, out(p.values),
              static_cast<int32_t*>(p.index.data));
}

void top_k_backward(Cuda& cuda, const lk_top_k_backward_params& p) {
  const int64_t count = numel(p.index);
  cuda.fill_zero(p.dx.data, bytes_of(p.dx));
  cuda.launch(top_k_backward_kernel, grid_for(cuda, count), block_threads, 0, in(p.dvalues),
              static_cast<const int32_t*>(p.index.data), p.dx.dims[p.dx.rank - 1], p.index.dims[p.index.rank - 1],
              out(p.dx), count);
}

}  // namespace lk::cuda
