// Lengths of captions and rotary positions (sequence.h). Everything that depends on a sample is computed from its mask
// in float32, where numbers of tokens are exact.
#include "sequence.h"

namespace z_image {

namespace nn = lora_host::nn;
using lora_host::Dims;
using lora_host::Graph;
using lora_host::Value;

Captions::Captions(Graph& g, Value text_mask) : g_(g) {
  Dims d = g.shape(text_mask);
  batch_ = d[0];
  given_ = d[1];
  length_ = rounded_up(given_);
  const int64_t blocks = length_ / Dimensions::round;
  Value mask = g.pad(g.cast(text_mask, LH_F32), {0, 0}, {0, length_ - given_});
  there_ = g.reshape(mask, {batch_, length_, 1});
  // The first row of each 32. An empty caption would leave attention nothing to see: the first 32 are always there.
  Value first = g.slice(g.reshape(mask, {batch_, blocks, Dimensions::round}), 2, 0, 1);
  std::vector<float> always(static_cast<size_t>(blocks));
  always[0] = 1;
  blocks_ = g.max(first, g.constant({1, blocks, 1}, always));
}

Value Captions::fill(Value rows, Value filling) const {
  Value there = g_.cast(there_, LH_FLOAT);
  rows = g_.pad(rows, {0, 0, 0}, {0, length_ - given_, 0});
  return g_.add(g_.mul(rows, there), g_.mul(g_.affine(there, -1, 1), filling));
}

Value Captions::key_lengths(int64_t before) const {
  if (length_ == Dimensions::round) return {};  // every caption fills it
  Value blocks = g_.reshape(g_.sum(blocks_, {1}), {batch_});
  return g_.cast(g_.affine(blocks, Dimensions::round, static_cast<double>(before)), LH_I32);
}

Value Captions::choose(Value rows) const {
  Value last = blocks_;  // 1 for the last block of each sample
  if (const int64_t blocks = length_ / Dimensions::round; blocks > 1)
    last = g_.sub(last, g_.pad(g_.slice(last, 1, 1, blocks - 1), {0, 0, 0}, {0, 1, 0}));
  return g_.sum(g_.mul(last, rows), {1});
}

namespace {

constexpr double theta = 256;
const std::vector<double> of_sequence = nn::rope_frequencies(32, theta), of_picture = nn::rope_frequencies(48, theta);
constexpr int64_t half = Dimensions::head_dim / 2, first_axis = 16, other_axes = 48;  // angles of a token

}  // namespace

Positions positions(Graph& g, const Captions& captions, int64_t rows, int64_t columns, int64_t tokens) {
  nn::RopeAngles starts, grid, unplaced, text;
  const int64_t places = rows * columns, blocks = captions.length() / Dimensions::round;
  for (int64_t block = 1; block <= blocks; ++block) starts.add(Dimensions::round * block + 1, of_sequence);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column) {
      grid.add(row, of_picture);
      grid.add(column, of_picture);
    }
  unplaced.add(0, std::vector<double>(half));
  for (int64_t token = 0; token < captions.length(); ++token) {
    text.add(token + 1, of_sequence);
    text.add(0, std::vector<double>(other_axes));
  }
  const nn::RopeTables start = starts.tables(g, {blocks, first_axis}), place = grid.tables(g, {places, other_axes});
  const nn::RopeTables none = unplaced.tables(g, {1, half});
  Positions out;
  out.text = text.tables(g, {captions.length(), half});
  for (Value nn::RopeTables::*part : {&nn::RopeTables::cos, &nn::RopeTables::sin}) {
    Value chosen = captions.choose(start.*part);  // [B, 1, 16]
    const int64_t batch = g.shape(chosen)[0];
    Value image = g.concat({nn::spread(g, chosen, batch, places), nn::spread(g, place.*part, batch, places)}, -1);
    if (tokens > places) {
      Value filling = g.expand(g.reshape(none.*part, {1, 1, half}), {batch, tokens - places, half});
      image = g.concat({image, filling}, 1);
    }
    out.image.*part = image;
    out.both.*part = g.concat({image, nn::spread(g, out.text.*part, batch, captions.length())}, 1);
  }
  return out;
}

}  // namespace z_image
