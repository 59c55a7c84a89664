// The image stands behind a text whose length differs from sample to sample: its first angles are chosen from those of
// all lengths by the mask, in float32, where a sum of one row and zeros is exact.
#include "positions.h"

namespace lumina2 {

namespace nn = lora_host::nn;
using lora_host::Dims;
using lora_host::Graph;
using lora_host::Value;

namespace {

constexpr double theta = 10000;

// f32 [B, L + 1, 1]: 1 at the place that is the text's length.
Value at_length(Graph& g, Value text_mask) {
  const Dims d = g.shape(text_mask);
  Value there = g.cast(text_mask, LH_F32);
  // Of 1, m_0, m_1, ... the last 1: what falls from one place to the next.
  Value reached = g.concat({g.expand(g.constant({1, 1}, std::vector<float>{1}), {d[0], 1}), there}, 1);
  return g.reshape(g.sub(reached, g.pad(there, {0, 0}, {0, 1})), {d[0], d[1] + 1, 1});
}

// [B, n, W] of a table [n, W] or [B, 1, W].
Value spread(Graph& g, Value table, int64_t batch, int64_t tokens) {
  const Dims d = g.shape(table);
  if (d.size() == 2) table = g.reshape(table, {1, d[0], d[1]});
  return g.expand(table, {batch, tokens, d.back()});
}

}  // namespace

Positions positions(Graph& g, Value text_mask, int64_t rows, int64_t columns, int64_t head_dim) {
  const std::vector<double> frequencies = nn::rope_frequencies(head_dim / 3, theta);
  const auto axis = static_cast<int64_t>(frequencies.size());  // angles of one axis
  const std::vector<double> unplaced(2 * frequencies.size());
  const int64_t batch = g.shape(text_mask)[0], length = g.shape(text_mask)[1], places = rows * columns;
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
  const nn::RopeTables start = starts.tables(g, {1, length + 1, axis}), place = grid.tables(g, {places, 2 * axis});
  const Value chosen = at_length(g, text_mask);
  Positions out;
  out.text = text.tables(g, {length, 3 * axis});
  for (Value nn::RopeTables::*part : {&nn::RopeTables::cos, &nn::RopeTables::sin}) {
    Value first = g.sum(g.mul(chosen, start.*part), {1});  // [B, 1, axis]
    out.image.*part = g.concat({spread(g, first, batch, places), spread(g, place.*part, batch, places)}, -1);
    out.both.*part = g.concat({out.image.*part, spread(g, out.text.*part, batch, length)}, 1);
  }
  return out;
}

}  // namespace lumina2
