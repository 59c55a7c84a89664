// Values rounded to codes times factors. docs/quantisation.md has the rules, to the bit: what is made here depends on
// the values alone, neither on threads nor on the machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/tensor.h"

namespace lh {

// Rounds a matrix (factors.size() rows, one after the other) to e4m3, whose largest value is 448, or to int8, of which
// -127 to 127 are used:
//   factor = max|row| / largest, code = round(value / factor), halves to even, so that value = code * factor within
//   max(|value| / 16, factor / 1024) in e4m3, half a step of the three mantissa bits or of the subnormals, and
//   factor / 2 in int8, to float rounding.
// A row with an infinity or NaN gets a factor that is not finite; its codes mean nothing.
void quantise_rows(DType dtype, std::span<const float> values, std::span<std::byte> codes, std::span<float> factors);

// Rounds a matrix to nf4: codes and scale as lora_kernels.h has them, "weights in fewer bits". The code of a value is
// that of the level nearest to value / factor, the factor being the one that is kept, that is with the error of its own
// 8 bits in it. With an infinity or NaN among the values the offset in the scale is not finite.
void quantise_nf4(std::span<const float> values, int64_t rows, std::span<std::byte> codes, std::span<std::byte> scale);

}  // namespace lh
