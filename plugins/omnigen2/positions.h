// Where the tokens of a sequence stand on three rotary axes: token j of a text of n at (j, j, j), a patch of the first
// picture behind it at (n, row, column), and one of each next picture further along the first axis by the longer side
// of a picture. In that order come the references and, last, the image itself. A sequence has the image first all the
// same, then the references, and the text last, so that what is beyond a sample's own text is where attention leaves it
// out.
#pragma once

#include "denoiser.h"

namespace omnigen2 {

struct Positions {
  lora_host::nn::RopeTables image;                    // [B, S, D/2]
  std::vector<lora_host::nn::RopeTables> references;  // [B, S, D/2] each
  lora_host::nn::RopeTables text;                     // [L, D/2]
  lora_host::nn::RopeTables all;                      // [B, S + references S + L, D/2]
};
// For pictures of rows x columns patches, and `length` rows of text, of which lengths i32 [B] are there.
Positions positions(lora_host::Graph& g, lora_host::Value lengths, int64_t length, int64_t references, int64_t rows,
                    int64_t columns, int64_t head_dim);

}  // namespace omnigen2
