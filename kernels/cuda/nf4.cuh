// Weights in four bits on a GPU: the tables that kernels look up, and the factors of blocks.
#pragma once

#include "cuda/blockwise.cuh"
#include "cuda/cuda.h"
#include "nf4_format.h"

namespace lk::cuda {

__device__ constexpr Nf4Levels nf4_table = nf4_levels;

// The factors of a weight's blocks, by row.
struct Nf4Factors {
  Nf4Scale scale;
  int64_t row_blocks;
};

inline Nf4Factors nf4_factors(const lk_tensor& weight, const lk_tensor& scale) {
  const int64_t row_blocks = nf4_row_blocks(weight.dims[1]);
  return {Nf4Scale(scale.data, weight.dims[0] * row_blocks), row_blocks};
}

// Of element i of a row.
__device__ inline float factor_at(const Nf4Factors& p, int64_t row, int64_t i) {
  return p.scale.factor(blockwise_maps[1].values, row * p.row_blocks + i / nf4_block);
}

}  // namespace lk::cuda
