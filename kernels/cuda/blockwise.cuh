// Block-wise 8-bit storage on a GPU: a warp has one block of 256 elements, 8 in each lane. Also compiled at run time,
// for pointwise.cu.
#pragma once

#include "blockwise_map.h"

namespace lk::cuda {

__device__ constexpr BlockwiseMap blockwise_maps[2] = {make_blockwise_map(false), make_blockwise_map(true)};

// Called by all threads of a block, which then synchronise: maps are read with a place of its own by each lane, which
// shared memory is made for.
__device__ inline void copy_map(int is_signed, BlockwiseMap& shared) {
  const auto* const from = reinterpret_cast<const uint32_t*>(&blockwise_maps[is_signed]);
  auto* const to = reinterpret_cast<uint32_t*>(&shared);
  for (unsigned i = threadIdx.x; i < sizeof(BlockwiseMap) / sizeof(uint32_t); i += blockDim.x) to[i] = from[i];
}

__device__ inline uint32_t magnitude_bits(float x) { return __float_as_uint(x) & 0x7fffffffu; }

// Codes of the block that the lanes of a warp hold, 0 where it has no element; the result is its scale.
__device__ inline float quantize_block(const BlockwiseMap& map, const float (&x)[8], uint8_t (&codes)[8]) {
  uint32_t largest = 0;  // floats that are not negative have the order of their bits, with NaN above all
#pragma unroll
  for (int k = 0; k < 8; ++k) largest = max(largest, magnitude_bits(x[k]));
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
  const float scale = __uint_as_float(largest), factor = blockwise_factor(scale);
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    const uint32_t bits = magnitude_bits(__fmul_rn(x[k], factor));
    codes[k] = static_cast<uint8_t>(blockwise_code(map, __uint_as_float(bits), bits, x[k] < 0.0f));
  }
  return scale;
}

__device__ inline void dequantize(const BlockwiseMap& map, const uint8_t (&codes)[8], float scale, float (&y)[8]) {
#pragma unroll
  for (int k = 0; k < 8; ++k) y[k] = __fmul_rn(map.values[codes[k]], scale);
}

// Codes i .. i + length - 1 of a tensor; `wide`: it is aligned to 8 bytes. The rest of `codes` becomes 0.
__device__ inline void load_codes(const uint8_t* from, int64_t i, int length, bool wide, uint8_t (&codes)[8]) {
  if (wide && length == 8) {
    const uint2 words = *reinterpret_cast<const uint2*>(from + i);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      codes[k] = static_cast<uint8_t>(words.x >> (8 * k));
      codes[k + 4] = static_cast<uint8_t>(words.y >> (8 * k));
    }
    return;
  }
#pragma unroll
  for (int k = 0; k < 8; ++k) codes[k] = k < length ? from[i + k] : uint8_t{0};
}

__device__ inline void store_codes(uint8_t* to, int64_t i, int length, bool wide, const uint8_t (&codes)[8]) {
  if (wide && length == 8) {
    uint2 words = make_uint2(0, 0);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      words.x |= uint32_t{codes[k]} << (8 * k);
      words.y |= uint32_t{codes[k + 4]} << (8 * k);
    }
    *reinterpret_cast<uint2*>(to + i) = words;
    return;
  }
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    if (k < length) to[i + k] = codes[k];
  }
}

}  // namespace lk::cuda
