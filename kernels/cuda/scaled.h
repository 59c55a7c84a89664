// Dense tensors times a factor, in another type: an adapter's matrices as products of 16-bit numbers take them.
#pragma once

#include <span>

#include "cuda/types.cuh"

namespace lk::cuda {

// to = factor from; f32, f16 or bf16.
struct Scaled {
  In from;
  Out to;
  int64_t count;
  float factor = 1;
};
constexpr size_t most_scaled = 8;
void scale(Cuda& cuda, std::span<const Scaled> tensors);  // at most so many, by one kernel

}  // namespace lk::cuda
