// How a row becomes codes of 8 bits for LK_PRODUCTS_E4M3 and LK_PRODUCTS_I8 (lora_kernels.h), on either backend.
#pragma once

namespace lk {

constexpr float least_row_factor = 0x1p-126f;
constexpr float largest_e4m3_code = 448, largest_i8_code = 127;  // what the largest value of a row becomes

}  // namespace lk
