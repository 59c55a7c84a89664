// Where tokens stand.
//
// Place (row, column) of the image is at (n, row, column), n the length of the sample's own text, whose token j is at
// (j, 0, 0). The three axes have 16, 24 and 24 angles, 64 for a head of 128. They are applied to pairs in halves,
// numbers i and i + 64, but stand twice in a row, as for neighbours:
//
//   y_i = x_i cos a_(i / 2) - x_(i + 64) sin a_(i / 2)
//   y_(i + 64) = x_(i + 64) cos a_(32 + i / 2) + x_i sin a_(32 + i / 2)
//
// So the two of a pair have different angles, and it is no rotation: what two tokens say to each other depends on
// where they are, not only on how far apart.
#pragma once

#include "denoiser.h"
#include "nn/rope.hpp"

namespace ernie_image {

// [B, S, 128], of rows x columns places and behind them `length` rows of text, of which text_lengths i32 [B] are there.
lora_host::nn::RopeTables positions(lora_host::Graph& g, int64_t rows, int64_t columns, int64_t length,
                                    lora_host::Value text_lengths);

}  // namespace ernie_image
