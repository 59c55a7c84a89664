#include "cuda/partial_sum.h"

namespace lk::cuda {

namespace {

constexpr int lanes = 32;  // elements of a block
constexpr int groups = 8;  // threads that share the terms of an element: thread g takes g, g + 8, ...

__global__ void sum_partials_kernel(PartialSum first, PartialSum second, int64_t first_blocks) {
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

}  // namespace

void sum_partials(Cuda& cuda, const PartialSum& first, const PartialSum& second) {
  const int64_t blocks = ceil_div(first.rows * first.cols, lanes);
  const int64_t more = ceil_div(second.rows * second.cols, lanes);
  cuda.launch(sum_partials_kernel, dim3(static_cast<unsigned>(blocks + more)), dim3(lanes, groups), 0, first, second,
              blocks);
}

}  // namespace lk::cuda
