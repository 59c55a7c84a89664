// Tables of positions (positions.h).
#include "positions.h"

namespace lumina2 {

namespace nn = lora_host::nn;
using lora_host::Graph;
using lora_host::Value;

namespace {

constexpr double theta = 10000;

}  // namespace

Positions positions(Graph& g, Value lengths, int64_t length, int64_t rows, int64_t columns, int64_t head_dim) {
  const std::vector<double> frequencies = nn::rope_frequencies(head_dim / 3, theta);
  const auto axis = static_cast<int64_t>(frequencies.size());  // angles of one axis
  const std::vector<double> unplaced(2 * frequencies.size());
  const int64_t places = rows * columns;
  nn::RopeAngles starts, grid, text;
  for (int64_t i = 0; i <= length; ++i) starts.add(i, frequencies);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column) {
      grid.add(row, frequencies);
      grid.add(column, frequencies);
    }
  for (int64_t token = 0; token < length; ++token) {
    text.add(token, frequencies);
    text.add(0, unplaced);
  }
  const nn::RopeTables by_token = text.tables(g, {length, 3 * axis});
  const nn::ImageBehindText at = nn::image_behind_text(g, starts.tables(g, {1, length + 1, axis}),
                                                       grid.tables(g, {places, 2 * axis}), by_token, lengths);
  return {.image = at.image, .text = by_token, .both = at.all};
}

}  // namespace lumina2
