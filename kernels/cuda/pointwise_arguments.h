// The arguments of a compiled program (pointwise_source.h). Also compiled at run time.
#pragma once

#include <cstdint>

namespace lk::cuda {

constexpr int pointwise_inputs = 24, pointwise_outputs = 12, pointwise_axes = 8;

struct PointwiseArguments {
  const void* inputs[pointwise_inputs];
  const float* input_scales[pointwise_inputs];
  void* outputs[pointwise_outputs];
  float* output_scales[pointwise_outputs];
  int64_t count;  // elements
  // The loop over them, the outermost axis first, and the strides of inputs that are repeated along some.
  int64_t dims[pointwise_axes];
  int64_t strides[pointwise_inputs][pointwise_axes];
  int32_t wide;   // whether all tensors may be read and written in chunks of 8 elements
  uint32_t zero;  // 0, which the compiler does not know
};

}  // namespace lk::cuda
