// The product with a layer's frozen weight, in the numbers that lk_products names.
#pragma once

#include "cuda/gemm.h"

namespace lk::cuda {

struct WeightProduct {
  lk_products products;
  bool forward;  // d [rows, out] = a weight^T, else d [rows, in] = a weight; weight [out, in]
  int64_t rows;
  const lk_tensor &weight, &scale;
  const lk_tensor &a, &d;
  void* workspace;
};

// Its operands in the types they are multiplied in, made in scratch memory where they are not; what is left to do.
GemmCall weight_product(Cuda& cuda, const WeightProduct& p);

}  // namespace lk::cuda
