// What convolution.cpp, convolution_dnn.cpp and convolution_kernels.cu share.
#pragma once

#include "convolution_shape.h"
#include "cuda/cuda.h"

namespace lk::cuda {

// A convolution and its tensors: x and y are the image and the result or their gradients, as is the weight.
struct ConvolutionTask {
  ConvolutionShape s;
  lk_tensor x, weight, y, bias;
};

enum class Convolution;  // dnn_graph.h

// The result, one of the three, is computed from the other two (and the bias, for the forward pass). False: cuDNN does
// not do this.
bool convolution_by_cudnn(Cuda& cuda, Convolution kind, const ConvolutionTask& task);

// Any shape and any mixture of types: products of gathered patches in float32, sums in a fixed order. Only the gradient
// to the weight takes workspace.
void convolution_by_kernels(Cuda& cuda, const ConvolutionShape& s, const lk_tensor& x, const lk_tensor& weight,
                            const lk_tensor& bias, const lk_tensor& y);
void data_gradient_by_kernels(Cuda& cuda, const ConvolutionShape& s, const lk_tensor& dy, const lk_tensor& weight,
                              const lk_tensor& dx);
void weight_gradient_by_kernels(Cuda& cuda, const ConvolutionShape& s, const lk_tensor& dy, const lk_tensor& x,
                                const lk_tensor& dweight);

}  // namespace lk::cuda
