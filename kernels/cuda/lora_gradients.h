// The gradients of adapters, for layers that may differ in everything.
#pragma once

#include <span>

#include "cuda/gemm.h"
#include "cuda/types.cuh"

namespace lk::cuda {

// ddown [r, in] = ds^T x and dup [out, r] = scale dy^T s, each where it has data; x [rows, in], dy [rows, out], s
// [rows, r], and ds, whose rows are ds_pitch elements apart.
struct AdapterGradients {
  int64_t rows = 0, in = 0, out = 0, rank = 0;
  lk_tensor x{}, dy{};
  In s{}, ds{};
  int64_t ds_pitch = 0;  // the rank, or its even_pitch
  float scale = 1;
  bool add = false;
  lk_tensor ddown{}, dup{};
};

// d = alpha op(a) op(b) + beta d for dense operands of one type.
GemmCall adapter_product(int64_t m, int64_t n, int64_t k, const void* a, const void* b, lk_dtype type, const Out& d,
                         void* workspace);

// Three ways: up to 8 rows, on tensor cores where skinny_pays, and cuBLASLt's. The second takes layers at once that
// have one padded rank and one type of x and dy.
void gradients_of_few_rows(Cuda& cuda, const AdapterGradients& layer);
void skinny_gradients(Cuda& cuda, std::span<const AdapterGradients> layers);
void gemm_gradients(Cuda& cuda, const AdapterGradients& layer, void* workspace);

}  // namespace lk::cuda
