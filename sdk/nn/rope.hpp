// Tables of rotary positions: cosines and sines of angles, computed in double and stored as f32 [S, D/2].
#pragma once

#include <array>
#include <cmath>
#include <vector>

#include "lora_host/lora_host.hpp"

namespace lora_host::nn {

struct RopeTables {
  Value cos, sin;
  bool interleaved = true;  // pairs are neighbours; or else halves of a head
};

// theta^(-2k / width), k < width / 2
inline std::vector<double> rope_frequencies(int64_t width, double theta) {
  std::vector<double> frequencies;
  for (int64_t k = 0; k < width / 2; ++k)
    frequencies.push_back(std::pow(theta, -2.0 * static_cast<double>(k) / static_cast<double>(width)));
  return frequencies;
}

// Angles of positions, in rows one after the other.
class RopeAngles {
 public:
  void add(double angle) {
    cosines_.push_back(static_cast<float>(std::cos(angle)));
    sines_.push_back(static_cast<float>(std::sin(angle)));
  }
  void add(int64_t position, const std::vector<double>& frequencies) {
    for (double frequency : frequencies) add(static_cast<double>(position) * frequency);
  }
  RopeTables tables(Graph& g, const Dims& dims) const { return {g.constant(dims, cosines_), g.constant(dims, sines_)}; }

 private:
  std::vector<float> cosines_, sines_;
};

// For positions 0, 1, ... `length` - 1.
inline RopeTables rope_tables(Graph& g, int64_t length, const std::vector<double>& frequencies) {
  RopeAngles angles;
  for (int64_t i = 0; i < length; ++i) angles.add(i, frequencies);
  return angles.tables(g, {length, static_cast<int64_t>(frequencies.size())});
}

// For positions on several axes: the angles of each axis side by side.
template <size_t N>
RopeTables rope_tables(Graph& g, const std::vector<std::array<int64_t, N>>& ids, const std::array<int64_t, N>& axes,
                       double theta) {
  RopeAngles angles;
  int64_t half = 0;
  for (int64_t axis : axes) half += axis / 2;
  for (const auto& id : ids)
    for (size_t a = 0; a < N; ++a) angles.add(id[a], rope_frequencies(axes[a], theta));
  return angles.tables(g, {static_cast<int64_t>(ids.size()), half});
}

// For positions on several axes that share one list of frequencies, each of which turns by the axis `by`.
template <size_t N>
RopeTables rope_tables(Graph& g, const std::vector<std::array<int64_t, N>>& ids, const std::vector<size_t>& by,
                       const std::vector<double>& frequencies) {
  RopeAngles angles;
  for (const auto& id : ids)
    for (size_t k = 0; k < frequencies.size(); ++k) angles.add(static_cast<double>(id[by[k]]) * frequencies[k]);
  return angles.tables(g, {static_cast<int64_t>(ids.size()), static_cast<int64_t>(frequencies.size())});
}

// Of the positions from `start` on, of tables [S, D/2] or [B, S, D/2].
inline RopeTables rope_rows(Graph& g, const RopeTables& tables, int64_t start, int64_t length) {
  return {g.slice(tables.cos, -2, start, length), g.slice(tables.sin, -2, start, length), tables.interleaved};
}

// [B, n, W] of a table [n, W] or [1 | B, 1 | n, W].
inline Value spread(Graph& g, Value table, int64_t batch, int64_t tokens) {
  const Dims d = g.shape(table);
  if (d.size() == 2) table = g.reshape(table, {1, d[0], d[1]});
  return g.expand(table, {batch, tokens, d.back()});
}

// Tables [B, ., W] of an image, and of the image and the text behind it.
struct ImageBehindText {
  RopeTables image, all;
};

// Of an image whose first axis goes on where its own text ends, each sample's at another place. starts [1, L + 1, A]:
// that axis by the length of a text; places [n, W - A]: the other axes; text [L, W]; lengths i32 [B], at most L.
inline ImageBehindText image_behind_text(Graph& g, const RopeTables& starts, const RopeTables& places,
                                         const RopeTables& text, Value lengths) {
  const Dims by_length = g.shape(starts.cos);
  const int64_t batch = g.shape(lengths)[0], image = g.shape(places.cos)[0], length = g.shape(text.cos)[0];
  ImageBehindText out{{{}, {}, text.interleaved}, {{}, {}, text.interleaved}};
  for (Value RopeTables::*part : {&RopeTables::cos, &RopeTables::sin}) {
    Value start = g.gather(g.expand(starts.*part, {batch, by_length[1], by_length[2]}), lengths);
    start = g.reshape(start, {batch, 1, by_length[2]});
    out.image.*part = g.concat({spread(g, start, batch, image), spread(g, places.*part, batch, image)}, -1);
    out.all.*part = g.concat({out.image.*part, spread(g, text.*part, batch, length)}, 1);
  }
  return out;
}

}  // namespace lora_host::nn
