#include <algorithm>

#include "cuda/await_previous.cuh"
#include "cuda/scaled.h"

namespace lk::cuda {

namespace {

struct All {
  Scaled of[most_scaled];
  bool whole[most_scaled];  // aligned to 16 bytes
};

// By blockIdx.y, eight numbers a thread.
__global__ void scale_kernel(All all) {
  await_previous();
  const Scaled& p = all.of[blockIdx.y];
  const int64_t first = (int64_t{blockIdx.x} * block_threads + threadIdx.x) * 8;
  if (all.whole[blockIdx.y] && first + 8 <= p.count) {
    float v[8];
    load8(p.from, first, v);
#pragma unroll
    for (float& number : v) number *= p.factor;
    return store8(p.to, first, v);
  }
  for (int64_t i = first; i < min(first + 8, p.count); ++i) store(p.to, i, p.factor * load(p.from, i));
}

}  // namespace

void scale(Cuda& cuda, std::span<const Scaled> tensors) {
  if (tensors.empty()) return;
  All all{};
  int64_t longest = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Scaled& p = all.of[i] = tensors[i];
    all.whole[i] = (reinterpret_cast<uintptr_t>(p.from.data) | reinterpret_cast<uintptr_t>(p.to.data)) % 16 == 0;
    longest = std::max(longest, p.count);
  }
  const dim3 grid(static_cast<unsigned>(ceil_div(longest, int64_t{block_threads} * 8)),
                  static_cast<unsigned>(tensors.size()));
  cuda.launch(scale_kernel, grid, dim3(block_threads), 0, all);
}

}  // namespace lk::cuda
