// Tensors in lines for kernels that take dense ones: copies in scratch.
#pragma once

#include "cuda/cuda.h"

namespace lk::cuda {

// x itself where it is dense.
lk_tensor dense_copy(Cuda& cuda, const lk_tensor& x);

// What a kernel writes in place of `y`: y itself where it is dense or absent or the kernel takes it as it lies, else
// scratch, which `store` copies to y.
class DenseOutput {
 public:
  DenseOutput(Cuda& cuda, const lk_tensor& y, bool taken_as_it_lies = false);
  const lk_tensor& tensor() const { return tensor_; }
  void store(Cuda& cuda) const;

 private:
  lk_tensor y_, tensor_;
};

}  // namespace lk::cuda
