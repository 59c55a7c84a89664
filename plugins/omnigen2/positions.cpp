// Tables of positions (positions.h).
#include "positions.h"

#include <algorithm>

namespace omnigen2 {

namespace nn = lora_host::nn;
using lora_host::Graph;
using lora_host::Value;

namespace {

constexpr double theta = 10000;

}  // namespace

Positions positions(Graph& g, Value lengths, int64_t length, int64_t references, int64_t rows, int64_t columns,
                    int64_t head_dim) {
  const std::vector<double> frequencies = nn::rope_frequencies(head_dim / 3, theta);
  const auto axis = static_cast<int64_t>(frequencies.size());  // angles of one axis
  nn::RopeAngles cells, tokens;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column) {
      cells.add(row, frequencies);
      cells.add(column, frequencies);
    }
  for (int64_t token = 0; token < length; ++token)
    for (int i = 0; i < 3; ++i) tokens.add(token, frequencies);
  const nn::RopeTables grid = cells.tables(g, {rows * columns, 2 * axis});
  const nn::RopeTables text = tokens.tables(g, {length, 3 * axis});
  // Of the picture that has so many others in front of it.
  const auto picture = [&](int64_t before) {
    nn::RopeAngles starts;
    for (int64_t i = 0; i <= length; ++i) starts.add(i + before * std::max(rows, columns), frequencies);
    return nn::image_behind_text(g, starts.tables(g, {1, length + 1, axis}), grid, text, lengths).image;
  };
  Positions out{.image = picture(references), .references = {}, .text = text, .all = {}};
  for (int64_t i = 0; i < references; ++i) out.references.push_back(picture(i));
  for (Value nn::RopeTables::*part : {&nn::RopeTables::cos, &nn::RopeTables::sin}) {
    std::vector<Value> parts{out.image.*part};
    for (const nn::RopeTables& reference : out.references) parts.push_back(reference.*part);
    parts.push_back(nn::spread(g, text.*part, g.shape(lengths)[0], length));
    out.all.*part = g.concat(parts, 1);
  }
  return out;
}

}  // namespace omnigen2
