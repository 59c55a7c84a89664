// Shapes with broadcast inputs, reduced to as few axes as their strides allow.
#pragma once

#include <array>
#include <cstdint>

#include "lora_kernels.h"

namespace lk::cpu {

// Axes of an output walked in row-major order together with the strides (in elements) of `inputs` inputs. Axes of
// size 1 are dropped and neighbours that every tensor lays out as one are joined: equal shapes become one axis, a
// [C] vector against [N, H, W, C] two.
template <int inputs>
struct Walk {
  int32_t rank = 0;
  int64_t dims[LK_MAX_RANK] = {};
  int64_t strides[inputs][LK_MAX_RANK] = {};

  Walk(const lk_tensor& output, const std::array<const lk_tensor*, inputs>& tensors) {
    int64_t full[inputs][LK_MAX_RANK];
    for (int t = 0; t < inputs; ++t) {
      int64_t stride = 1;
      const int32_t missing = output.rank - tensors[t]->rank;
      for (int32_t i = output.rank - 1; i >= 0; --i) {
        const int64_t dim = i >= missing ? tensors[t]->dims[i - missing] : 1;
        full[t][i] = dim == 1 ? 0 : stride;
        stride *= dim;
      }
    }
    for (int32_t i = 0; i < output.rank; ++i) {
      if (output.dims[i] == 1) continue;
      bool joined = rank > 0;
      for (int t = 0; t < inputs; ++t) joined = joined && strides[t][rank - 1] == full[t][i] * output.dims[i];
      if (!joined) {
        ++rank;
        dims[rank - 1] = 1;
      }
      dims[rank - 1] *= output.dims[i];
      for (int t = 0; t < inputs; ++t) strides[t][rank - 1] = full[t][i];
    }
    if (rank == 0) {
      rank = 1;
      dims[0] = 1;
    }
  }

  int64_t inner() const { return dims[rank - 1]; }
  int64_t inner_stride(int t) const { return strides[t][rank - 1]; }
  int64_t rows() const {
    int64_t count = 1;
    for (int32_t i = 0; i < rank - 1; ++i) count *= dims[i];
    return count;
  }
  // Where row `row` (all axes but the last) of input t begins.
  int64_t offset(int t, int64_t row) const {
    int64_t result = 0;
    for (int32_t i = rank - 2; i >= 0; --i) {
      result += row % dims[i] * strides[t][i];
      row /= dims[i];
    }
    return result;
  }
};

}  // namespace lk::cpu
