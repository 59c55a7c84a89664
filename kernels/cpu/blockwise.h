// Block-wise 8-bit storage, one block at a time: for blockwise.cpp and pointwise.cpp.
#pragma once

#include <cstdint>

#include "blockwise_map.h"

namespace lk::cpu {

const BlockwiseMap& blockwise_map(bool is_signed);

// Codes of `count` <= 256 elements; returns their scale. A NaN among them makes the scale one, and so all of them.
float quantize_block(const BlockwiseMap& map, const float* x, int64_t count, uint8_t* codes);
void dequantize_block(const BlockwiseMap& map, const uint8_t* codes, float scale, int64_t count, float* y);

}  // namespace lk::cpu
