// What conv2d.cpp and conv2d_kernels.cu share: x [N, H, W, C], weight [O, KH, KW, C], y [N, OH, OW, O].
#pragma once

#include "cuda/cuda.h"

namespace lk::cuda {

struct ConvolutionShape {
  int64_t n, h, w, c, o, kh, kw, oh, ow, stride, top, left;
  int64_t window() const { return kh * kw * c; }
  int64_t outputs() const { return n * oh * ow; }
  int64_t inputs() const { return n * h * w; }
  bool pointwise() const { return kh == 1 && kw == 1 && stride == 1 && oh == h && ow == w; }
};

// Any shape and any mixture of types: products of gathered patches in float32, sums in a fixed order. Only the gradient
// to the weight takes workspace.
void convolution_by_kernels(Cuda& cuda, const ConvolutionShape& s, const lk_tensor& x, const lk_tensor& weight,
                            const lk_tensor& bias, const lk_tensor& y);
void data_gradient_by_kernels(Cuda& cuda, const ConvolutionShape& s, const lk_tensor& dy, const lk_tensor& weight,
                              const lk_tensor& dx);
void weight_gradient_by_kernels(Cuda& cuda, const ConvolutionShape& s, const lk_tensor& dy, const lk_tensor& x,
                                const lk_tensor& dweight);

}  // namespace lk::cuda
