// Weights in four bits, as float.
#pragma once

#include "cpu/cpu.h"

namespace lk::cpu {

// values [out, in] of an nf4 weight with its scale.
void widen_nf4(const Cpu& cpu, const lk_tensor& weight, const lk_tensor& scale, float* values);

}  // namespace lk::cpu
