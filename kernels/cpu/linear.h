#pragma once

#include "cpu/cpu.h"

namespace lk::cpu {

// y [rows, cols]: every row a copy of `row`. A product with beta = 1 then adds to a bias without another pass.
void fill_rows(const Cpu& cpu, const float* row, int64_t rows, int64_t cols, float* y);

}  // namespace lk::cpu
