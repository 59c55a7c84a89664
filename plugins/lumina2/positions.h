// Where the tokens of a sequence stand on three rotary axes: token j of a text of n at (j, 0, 0), a patch of the image
// at (n, row, column). The image comes first in a sequence all the same, and the text last, so that what is beyond a
// sample's own text is where attention leaves it out.
#pragma once

#include "denoiser.h"

namespace lumina2 {

struct Positions {
  lora_host::nn::RopeTables image, text, both;  // image [B, S, D/2], text [L, D/2], both [B, S + L, D/2]
};
// For images of rows x columns patches, and `length` rows of text, of which lengths i32 [B] are there.
Positions positions(lora_host::Graph& g, lora_host::Value lengths, int64_t length, int64_t rows, int64_t columns,
                    int64_t head_dim);

}  // namespace lumina2
