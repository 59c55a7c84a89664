// Tables of positions (positions.h).
#include "positions.h"

namespace ernie_image {

namespace nn = lora_host::nn;
using lora_host::Graph;
using lora_host::Value;

namespace {

constexpr double theta = 256;
constexpr int64_t sequence = 32, picture = 48;  // numbers of the first axis, and of each of the other two
const std::vector<double> of_sequence = nn::rope_frequencies(sequence, theta),
                          of_picture = nn::rope_frequencies(picture, theta);

void add_twice(nn::RopeAngles& angles, int64_t position, const std::vector<double>& frequencies) {
  for (const double frequency : frequencies)
    for (int i = 0; i < 2; ++i) angles.add(static_cast<double>(position) * frequency);
}

}  // namespace

nn::RopeTables positions(Graph& g, int64_t rows, int64_t columns, int64_t length, Value text_lengths) {
  const int64_t places = rows * columns;
  nn::RopeAngles starts, grid, text;
  for (int64_t n = 0; n <= length; ++n) add_twice(starts, n, of_sequence);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column) {
      add_twice(grid, row, of_picture);
      add_twice(grid, column, of_picture);
    }
  for (int64_t token = 0; token < length; ++token) {
    add_twice(text, token, of_sequence);
    for (int axis = 0; axis < 2; ++axis) add_twice(text, 0, of_picture);
  }
  nn::RopeTables by_token = text.tables(g, {length, Dimensions::head});
  by_token.interleaved = false;
  return nn::image_behind_text(g, starts.tables(g, {1, length + 1, sequence}), grid.tables(g, {places, 2 * picture}),
                               by_token, text_lengths)
      .all;
}

}  // namespace ernie_image
