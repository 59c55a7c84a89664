// Products of bf16 matrices by oneDNN, for processors that have instructions for them: twice the rate of float's.
#pragma once

#include <string>

#include "cpu/gemm.h"

namespace lk::cpu {

using Bf16Matrix = MatrixOf<uint16_t>;

// The values of a dense tensor in rows of `stride`.
inline Bf16Matrix bf16_matrix(const lk_tensor& tensor, int64_t stride, bool transposed = false) {
  return {static_cast<const uint16_t*>(tensor.data), stride, transposed};
}

// Whether this build has oneDNN, and this processor instructions of bf16 that oneDNN may use.
bool multiplies_bf16();
// And both are of bf16.
inline bool multiply_in_bf16(const lk_tensor& a, const lk_tensor& b) {
  return a.dtype == LK_BF16 && b.dtype == LK_BF16 && multiplies_bf16();
}
// What decides the bits of these products, such as "oneDNN 2.6.3 avx512_core_bf16"; empty without them.
std::string bf16_library();

// c = op(a) op(b), + c where it `adds`, in float, where multiplies_bf16(). Cut as gemm cuts: equal calls give equal
// bits, with any number of threads. The instructions take numbers below float's smallest normal one, 2^-126, as zero.
void bf16_gemm(Cpu& cpu, int64_t m, int64_t n, int64_t k, Bf16Matrix a, Bf16Matrix b, bool adds, float* c,
               int64_t c_stride);

}  // namespace lk::cpu
