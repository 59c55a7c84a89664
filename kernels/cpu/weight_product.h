// The product with a layer's frozen weight, in the numbers that lk_products names.
#pragma once

#include "cpu/cpu.h"

namespace lk::cpu {

struct WeightProduct {
  lk_products products;
  bool forward;  // c [rows, out] = a weight^T, else c [rows, in] = a weight; weight [out, in]
  int64_t rows;
  const lk_tensor &weight, &scale, &a;
  const float* widened = nullptr;  // a in float32, where the caller has it
};

// c = product + beta c, with a beta of 0 or 1.
void weight_product(Cpu& cpu, const WeightProduct& p, float beta, float* c);

}  // namespace lk::cpu
