// Values as fp8 codes times factors.
#pragma once

#include <cstddef>
#include <span>

namespace lh {

// Rounds a matrix (factors.size() rows, one after the other) to e4m3, whose largest value is 448:
//   factor = max|row| / 448, code = e4m3(value / factor), so that value = code * factor within
//   max(|value| / 16, factor / 1024), half a step of the three mantissa bits or of the subnormals, to float rounding.
// A row with an infinity or NaN gets a factor that is not finite; its codes mean nothing.
void quantise_rows(std::span<const float> values, std::span<std::byte> codes, std::span<float> factors);

}  // namespace lh
