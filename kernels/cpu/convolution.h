// Convolution as matrix products over image patches, channels last (convolution_shape.h). Every group is a convolution
// of its own, whose pixels lie further apart than they have channels.
#pragma once

#include <algorithm>

#include "convolution_shape.h"
#include "cpu/cpu.h"

namespace lk::cpu {

// Channels of one group of images whose pixels have `stride` channels.
struct Pixels {
  const float* data;
  int64_t stride;
};

inline size_t float_bytes(int64_t count) { return static_cast<size_t>(count) * sizeof(float); }

// Rows of `row_floats` of one task: about the second-level cache.
inline int64_t run_length(int64_t row_floats) { return std::clamp<int64_t>((256 << 10) / row_floats, 64, 1024); }

// y = x weight^T + bias; bias may be nullptr (convolution_products.cpp).
void convolve(Cpu& cpu, const ConvolutionShape& s, const float* x, const float* weight, const float* bias, float* y);
// convolution_products.cpp
void weight_gradient(Cpu& cpu, const ConvolutionShape& s, const float* dy, const float* x, float* dweight);
// convolution_input_gradient.cpp
void input_gradient(Cpu& cpu, const ConvolutionShape& s, const float* dy, const float* weight, float* dx);

}  // namespace lk::cpu
