// Weights in four bits, in another type.
#pragma once

#include "cuda/types.cuh"

namespace lk::cuda {

// values [out, in] of an nf4 weight with its scale, in f32, f16 or bf16.
void widen_nf4(Cuda& cuda, const lk_tensor& weight, const lk_tensor& scale, const Out& values);

}  // namespace lk::cuda
