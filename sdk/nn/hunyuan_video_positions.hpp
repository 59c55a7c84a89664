// Rotary positions of both HunyuanVideos (tencent/HunyuanVideo and HunyuanVideo-1.5).
#pragma once

#include <array>
#include <vector>

#include "nn/rope.hpp"

namespace lora_host::nn {

// Frame, row and column of the video's tokens, of 8, 28 and 28 pairs with base 256; the text behind them has none.
inline RopeTables hunyuan_video_positions(Graph& g, int64_t frames, int64_t rows, int64_t columns, int64_t text) {
  using Id = std::array<int64_t, 3>;
  std::vector<Id> ids;
  for (int64_t frame = 0; frame < frames; ++frame)
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t column = 0; column < columns; ++column) ids.push_back({frame, row, column});
  ids.insert(ids.end(), static_cast<size_t>(text), Id{0, 0, 0});
  return rope_tables(g, ids, Id{16, 56, 56}, 256.0);
}

}  // namespace lora_host::nn
