// Weights in four bits (Dettmers et al. 2023, "QLoRA"): the levels, the layout of a weight's factors, and what a factor
// is, for both backends. lora_kernels.h, "weights in fewer bits", says what they mean.
#pragma once

#include <cmath>
#include <cstdint>

#include "lora_kernels.h"

#ifdef __CUDACC__
#define LK_NF4_FUNCTION __host__ __device__
#else
#define LK_NF4_FUNCTION
#endif

namespace lk {

constexpr int64_t nf4_block = LK_NF4_BLOCK;  // elements with a factor in common
constexpr int64_t nf4_group = 256;           // blocks with a range in common

struct Nf4Levels {
  float values[16];
};

// Quantiles of the normal distribution, 8 above zero and 7 below, divided by the largest: each level stands for about
// as many of a weight's elements as any other. (Values in use were made in float32.)
constexpr Nf4Levels nf4_levels{{-1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f,
                                -0.28444138169288635f, -0.18477343022823334f, -0.09105003625154495f, 0.0f,
                                0.07958029955625534f, 0.16093020141124725f, 0.24611230194568634f, 0.33791524171829224f,
                                0.44070982933044434f, 0.5626170039176941f, 0.7229568362236023f, 1.0f}};

LK_NF4_FUNCTION constexpr int64_t nf4_row_bytes(int64_t width) { return (width + 1) / 2; }
constexpr int64_t nf4_row_blocks(int64_t width) { return (width + nf4_block - 1) / nf4_block; }
constexpr int64_t nf4_groups(int64_t blocks) { return (blocks + nf4_group - 1) / nf4_group; }

// The factors of the blocks, where they lie.
struct Nf4Scale {
  const float *offset, *ranges;
  const uint8_t* codes;

  Nf4Scale() = default;
  Nf4Scale(const void* scale, int64_t blocks)
      : offset(static_cast<const float*>(scale)),
        ranges(offset + 1),
        codes(reinterpret_cast<const uint8_t*>(ranges + nf4_groups(blocks))) {}

  // map: the values of the signed map of lk_quantize_blockwise.
  LK_NF4_FUNCTION float factor(const float* map, int64_t block) const {
    return fmaf(map[codes[block]], ranges[block / nf4_group], *offset);
  }
};

// The number of the level of element i of a row.
LK_NF4_FUNCTION inline int nf4_code(const uint8_t* row, int64_t i) { return row[i / 2] >> (i % 2 == 0 ? 4 : 0) & 15; }

}  // namespace lk
