// Rotary positions of a video's tokens, or of an image's, which is a video of one frame.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "nn/rope.hpp"

namespace lora_host::nn {

// Frame, row and column of each token, in that order of nesting, on axes of so many numbers of a head; `text` tokens
// behind them stand at the origin, where nothing turns.
inline RopeTables video_positions(Graph& g, const std::array<int64_t, 3>& frames_rows_columns, int64_t text,
                                  const std::array<int64_t, 3>& axes, double theta) {
  const auto& [frames, rows, columns] = frames_rows_columns;
  std::vector<std::array<int64_t, 3>> ids;
  for (int64_t frame = 0; frame < frames; ++frame)
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t column = 0; column < columns; ++column) ids.push_back({frame, row, column});
  ids.resize(ids.size() + static_cast<size_t>(text));
  return rope_tables(g, ids, axes, theta);
}

}  // namespace lora_host::nn
