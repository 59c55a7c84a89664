#include "cuda/await_previous.cuh"
#include "cuda/partial_sum.h"

namespace lk::cuda {

namespace {

constexpr int lanes = 32;  // elements of a block
constexpr int groups = 8;  // threads that share the terms of an element: thread g takes g, g + 8, ...

__global__ void sum_partials_kernel(PartialSum first, PartialSum second, int64_t first_blocks) {
  await_previous();
  __shared__ float sums[groups][lanes];
  const bool is_first = blockIdx.x < first_blocks;
  const PartialSum& p = is_first ? first : second;
  const int lane = static_cast<int>(threadIdx.x), group = static_cast<int>(threadIdx.y);
  const int64_t element = (blockIdx.x - (is_first ? 0 : first_blocks)) * lanes + lane;
  const bool inside = element < p.rows * p.cols;
  const int64_t row = inside ? element / p.cols : 0, col = inside ? element - row * p.cols : 0;
  float sum = 0;
  if (inside) {
    const float* const term = p.partial + row * p.pitch + col;
#pragma unroll 4
    for (int64_t i = group; i < p.count; i += groups) sum += term[i * p.stride];
    for (int64_t k = group; k < p.rank; k += groups)
      sum += load(p.left, row * p.rank + k) * load(p.right, k * p.cols + col);
  }
  sums[group][lane] = sum;
  __syncthreads();
  if (group != 0 || !inside) return;
  sum = 0;
#pragma unroll
  for (int g = 0; g < groups; ++g) sum += sums[g][lane];
  sum *= p.alpha;
  if (p.mask.data != nullptr) sum *= load(p.mask, element);
  const int64_t to = p.transposed ? col * p.rows + row : element;
  if (p.add) sum += load({p.out.data, p.out.dtype}, to);
  store(p.out, to, sum);
}

// A thread adds the terms of four neighbours of a row: for few terms of many elements.
__global__ void __launch_bounds__(block_threads) sum_few_kernel(PartialSum first, PartialSum second, int first_blocks) {
  await_previous();
  const bool is_first = static_cast<int>(blockIdx.x) < first_blocks;
  const PartialSum& p = is_first ? first : second;
  const int block = static_cast<int>(blockIdx.x) - (is_first ? 0 : first_blocks);
  const int quads = static_cast<int>(p.pitch) / 4, i = block * block_threads + static_cast<int>(threadIdx.x);
  const int64_t row = i / quads;
  const int col = i % quads * 4;
  if (row >= p.rows || col >= p.cols) return;
  const float* const terms = p.partial + row * p.pitch + col;
  float sum[4] = {};
#pragma unroll 4
  for (int k = 0; k < static_cast<int>(p.count); ++k) {
    const float4 term = *reinterpret_cast<const float4*>(terms + k * p.stride);
    sum[0] += term.x, sum[1] += term.y, sum[2] += term.z, sum[3] += term.w;
  }
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    if (col + k >= p.cols) break;
    const int64_t element = row * p.cols + col + k, to = p.transposed ? (col + k) * p.rows + row : element;
    float value = p.alpha * sum[k];
    if (p.mask.data != nullptr) value *= load(p.mask, element);
    if (p.add) value += load({p.out.data, p.out.dtype}, to);
    store(p.out, to, value);
  }
}

bool is_few(const PartialSum& p) {
  return p.count <= 2 * groups && p.rank == 0 && p.pitch % 4 == 0 && p.stride % 4 == 0 &&
         reinterpret_cast<uintptr_t>(p.partial) % 16 == 0 && p.rows * p.pitch < int64_t{1} << 31;
}

}  // namespace

void sum_partials(Cuda& cuda, const PartialSum& first, const PartialSum& second) {
  if (is_few(first) && is_few(second)) {
    const auto blocks_of = [](const PartialSum& p) { return ceil_div(p.rows * p.pitch / 4, block_threads); };
    const int64_t blocks = blocks_of(first);
    cuda.launch(sum_few_kernel, dim3(static_cast<unsigned>(blocks + blocks_of(second))), dim3(block_threads), 0, first,
                second, static_cast<int>(blocks));
    return;
  }
  const int64_t blocks = ceil_div(first.rows * first.cols, lanes);
  const int64_t more = ceil_div(second.rows * second.cols, lanes);
  cuda.launch(sum_partials_kernel, dim3(static_cast<unsigned>(blocks + more)), dim3(lanes, groups), 0, first, second,
              blocks);
}

}  // namespace lk::cuda
