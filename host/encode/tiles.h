// Images worked on in overlapping tiles of one size, and put together again.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/tensor.h"

namespace lh {

// Tiles along one axis of `length` places: tile i has the places [starts[i], starts[i] + size).
struct TileAxis {
  int64_t length = 0, size = 0;
  std::vector<int64_t> starts;  // the first is 0, the last length - size

  // The same tiles where each place has `factor` finer ones.
  TileAxis times(int64_t factor) const;
  // What the places of a tile count for [size]: 1 where it is alone, a linear ramp where it meets a neighbour. Over
  // all tiles they add up to one at every place.
  std::vector<float> weights(size_t tile) const;
};

// The fewest tiles of at most `largest` places that overlap by at least `overlap` (at most a third of `largest`),
// made as small as that number allows. No place is in more than two; where `largest` reaches, there is one tile.
TileAxis cut(int64_t length, int64_t largest, int64_t overlap);

struct TileGrid {
  TileAxis rows, columns;
  bool whole() const { return rows.starts.size() * columns.starts.size() == 1; }
  TileGrid times(int64_t factor) const { return {rows.times(factor), columns.times(factor)}; }
};

// Ways to cut an image of rows x columns latent places (each `downscale` pixels wide), in latent places: whole, then
// in smaller and smaller tiles, of several frames in smaller ones yet, which overlap by an eighth and at least 64
// pixels. `tile_pixels`, where it is not 0, is the one size to use.
std::vector<TileGrid> tile_choices(int64_t rows, int64_t columns, int64_t downscale, int64_t tile_pixels,
                                   int64_t frames = 1);

// An image made tile by tile. `make` gets parts of `source` [1, H, W, C], cut by `from`, and gives float32
// [1, h, w, C'], which go to the places of `to` (the tiles of `from`, coarser or finer) in the result. An image in
// one tile is what `make` gives for it. A clip [1, T, H, W, C] likewise, each tile with all frames.
HostTensor in_tiles(const HostTensor& source, const TileGrid& from, const TileGrid& to,
                    const std::function<HostTensor(const HostTensor&)>& make);

}  // namespace lh
