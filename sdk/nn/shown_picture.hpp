// Pictures among the tokens of a prompt that a language model of the Qwen-VL family reads.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "nn/llm.hpp"

namespace lora_host::nn {

// A picture among the tokens of a prompt: the input that it is, the place of its first row, its sides in rows.
struct ShownPicture {
  std::string input;
  int64_t at = 0, height = 0, width = 0;
};

// Those of picture, picture_2 and picture_3 that a prompt is given, as they stand. cell: pixels of a row's sides.
inline std::vector<ShownPicture> shown_pictures(const Sizes& sizes, int64_t cell) {
  std::vector<ShownPicture> shown;
  for (const std::string name : {"picture", "picture_2", "picture_3"})
    if (sizes.has(name + "_at"))
      shown.push_back({name, sizes[name + "_at"], sizes[name + "_height"] / cell, sizes[name + "_width"] / cell});
  return shown;
}
// The input of one, [1, H, W, 3] in [-1, 1].
inline Value picture_input(Graph& g, const ShownPicture& picture, int64_t cell) {
  return g.input(picture.input, {1, picture.height * cell, picture.width * cell, 3});
}

// (time, row, column) of each of `length` tokens. A picture lies in one moment, rows and columns from there on; the
// token behind it stands where its longer side ends.
inline AxisPositions positions_around(const std::vector<ShownPicture>& pictures, int64_t length) {
  AxisPositions all;
  int64_t next = 0;
  const auto count_to = [&](int64_t end) {
    for (; static_cast<int64_t>(all.size()) < end; ++next) all.push_back({next, next, next});
  };
  for (const ShownPicture& picture : pictures) {  // as they stand
    count_to(picture.at);
    for (int64_t row = 0; row < picture.height; ++row)
      for (int64_t column = 0; column < picture.width; ++column) all.push_back({next, next + row, next + column});
    next += std::max(picture.height, picture.width);
  }
  count_to(length);
  return all;
}

}  // namespace lora_host::nn
