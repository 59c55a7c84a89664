// Where the tokens of a sequence stand: how long each caption is and which rotary positions follow from that.
//
// A caption of n tokens is filled up to the next multiple of 32 with a learned token, each sample for itself, and the
// filling is read. It counts on, (1 + j, 0, 0), and the image follows at (1 + filled length, row, column); what fills
// up the image's own tokens is at (0, 0, 0). Samples of a batch differ in their captions' lengths, so the image
// comes first in a sequence and what is beyond the filled caption last, where attention leaves it out.
#pragma once

#include "denoiser.h"
#include "nn/rope.hpp"

namespace z_image {

// text_mask [B, L]: 1 for the rows of the caption, which come first.
class Captions {
 public:
  Captions(lora_host::Graph& g, lora_host::Value text_mask);

  int64_t length() const { return length_; }  // of all: L, filled up
  // Rows of the caption [B, length, h], `filling` [1, h] elsewhere.
  lora_host::Value fill(lora_host::Value rows, lora_host::Value filling) const;
  // What attention sees of `before` tokens and the filled captions behind them: i32 [B]; absent where that is all.
  lora_host::Value key_lengths(int64_t before) const;
  // [B, 1, W]: of rows [blocks, W], for captions filled up to 32, 64, ..., the one of each sample.
  lora_host::Value choose(lora_host::Value rows) const;

 private:
  lora_host::Graph& g_;
  int64_t batch_, given_, length_;
  lora_host::Value there_;   // f32 [B, length, 1]: 1 = of the caption
  lora_host::Value blocks_;  // f32 [B, blocks, 1]: 1 = the caption reaches into these 32 rows
};

struct Positions {
  lora_host::nn::RopeTables image, text, both;  // image [B, S, 64], text [length, 64], both [B, S + length, 64]
};
// For images of rows x columns patches, filled up to `tokens`.
Positions positions(lora_host::Graph& g, const Captions& captions, int64_t rows, int64_t columns, int64_t tokens);

inline int64_t rounded_up(int64_t tokens) {
  return (tokens + Dimensions::round - 1) / Dimensions::round * Dimensions::round;
}

}  // namespace z_image
