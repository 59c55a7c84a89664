// Cuts axes into tiles, and adds tiles up with ramps where they overlap.
#include "encode/tiles.h"

#include <algorithm>

#include "core/error.h"

namespace lh {
namespace {

constexpr int64_t tile_sizes[] = {1536, 1024, 768, 512, 384, 256};  // pixels
constexpr int64_t smallest_still = 512;  // a picture's norms see too little of it in smaller ones
constexpr int64_t smallest_tile = 64, least_overlap = 64;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Weight of the upper of two tiles that share `overlap` places, at the middle of place k; the lower one has the rest.
float ramp(int64_t k, int64_t overlap) { return static_cast<float>(2 * k + 1) / static_cast<float>(2 * overlap); }

// The same frames and channels with other rows and columns.
Shape with_area(const Shape& shape, int64_t rows, int64_t columns) {
  const int64_t axes = shape.rank();
  return shape.with(axes - 3, rows).with(axes - 2, columns);
}

// What [1, (T,) H, W, C] is of.
struct Axes {
  explicit Axes(const Shape& shape)
      : frames(shape.rank() == 5 ? shape[1] : 1),
        height(shape[shape.rank() - 3]),
        width(shape[shape.rank() - 2]),
        channels(shape[shape.rank() - 1]) {}
  int64_t frames, height, width, channels;
};

// [1, (T,) rows.size, columns.size, C] from [1, (T,) H, W, C].
HostTensor part_of(const HostTensor& whole, const TileGrid& grid, size_t row, size_t column) {
  const Axes axes(whole.desc.shape);
  HostTensor part(Desc{whole.desc.dtype, with_area(whole.desc.shape, grid.rows.size, grid.columns.size)});
  const int64_t place = axes.channels * dtype_size(whole.desc.dtype), line = grid.columns.size * place;
  auto to = part.data.begin();
  for (int64_t frame = 0; frame < axes.frames; ++frame)
    for (int64_t y = 0; y < grid.rows.size; ++y, to += line) {
      const int64_t above = frame * axes.height + grid.rows.starts[row] + y;
      std::copy_n(whole.data.begin() + (above * axes.width + grid.columns.starts[column]) * place, line, to);
    }
  return part;
}

// Adds a part to the whole it is of, weighted; both float32.
void add_part(const HostTensor& part, const TileGrid& grid, size_t row, size_t column, HostTensor& whole) {
  const std::vector<float> down = grid.rows.weights(row), across = grid.columns.weights(column);
  const Axes axes(whole.desc.shape);
  const float* in = part.as<float>().data();
  for (int64_t frame = 0; frame < axes.frames; ++frame)
    for (int64_t y = 0; y < grid.rows.size; ++y) {
      const int64_t above = frame * axes.height + grid.rows.starts[row] + y;
      float* out = whole.as<float>().data() + (above * axes.width + grid.columns.starts[column]) * axes.channels;
      for (const float x : across) {
        const float weight = down[static_cast<size_t>(y)] * x;
        for (int64_t c = 0; c < axes.channels; ++c) *out++ += weight * *in++;
      }
    }
}

}  // namespace

TileAxis TileAxis::times(int64_t factor) const {
  TileAxis finer{length * factor, size * factor, starts};
  for (int64_t& start : finer.starts) start *= factor;
  return finer;
}

std::vector<float> TileAxis::weights(size_t tile) const {
  std::vector<float> weights(static_cast<size_t>(size), 1.0f);
  if (tile > 0) {
    const int64_t overlap = starts[tile - 1] + size - starts[tile];
    for (int64_t k = 0; k < overlap; ++k) weights[static_cast<size_t>(k)] = ramp(k, overlap);
  }
  if (tile + 1 < starts.size()) {
    const int64_t overlap = starts[tile] + size - starts[tile + 1];
    for (int64_t k = 0; k < overlap; ++k) weights[static_cast<size_t>(size - overlap + k)] = 1.0f - ramp(k, overlap);
  }
  return weights;
}

TileAxis cut(int64_t length, int64_t largest, int64_t overlap) {
  if (largest >= length) return {length, length, {0}};
  if (overlap < 0 || 3 * overlap > largest)
    fail(Code::internal, "tiles of {} places cannot overlap by {}, at most by a third", largest, overlap);
  const int64_t count = ceil_div(length - overlap, largest - overlap);
  TileAxis axis{length, ceil_div(length + (count - 1) * overlap, count), {}};
  for (int64_t i = 0; i < count; ++i) axis.starts.push_back(i * (length - axis.size) / (count - 1));
  return axis;
}

std::vector<TileGrid> tile_choices(int64_t rows, int64_t columns, int64_t downscale, int64_t tile_pixels,
                                   int64_t frames) {
  if (tile_pixels != 0 && tile_pixels < smallest_tile)
    fail(Code::config, "model.vae_tile: expected 0 or at least {} pixels, found {}", smallest_tile, tile_pixels);
  const auto choice = [&](int64_t pixels) {
    const int64_t largest = std::max<int64_t>(pixels / downscale, 1);
    const int64_t overlap = std::min(ceil_div(std::max(pixels / 8, least_overlap), downscale), largest / 3);
    return TileGrid{cut(rows, largest, overlap), cut(columns, largest, overlap)};
  };
  if (tile_pixels != 0) return {choice(tile_pixels)};
  std::vector<TileGrid> choices{choice(std::max(rows, columns) * downscale)};
  for (const int64_t pixels : tile_sizes) {
    if (frames == 1 && pixels < smallest_still) break;
    if (TileGrid grid = choice(pixels); !grid.whole()) choices.push_back(std::move(grid));
  }
  return choices;
}

HostTensor in_tiles(const HostTensor& source, const TileGrid& from, const TileGrid& to,
                    const std::function<HostTensor(const HostTensor&)>& make) {
  if (from.whole()) return make(source);
  HostTensor result;
  for (size_t row = 0; row < from.rows.starts.size(); ++row)
    for (size_t column = 0; column < from.columns.starts.size(); ++column) {
      const HostTensor made = make(part_of(source, from, row, column));
      const Desc expected{DType::f32, with_area(made.desc.shape, to.rows.size, to.columns.size)};
      if (made.desc != expected) fail(Code::internal, "a tile is {}, expected {}", made.desc.text(), expected.text());
      if (result.data.empty())
        result = HostTensor(Desc{DType::f32, with_area(made.desc.shape, to.rows.length, to.columns.length)});
      add_part(made, to, row, column, result);
    }
  return result;
}

}  // namespace lh
