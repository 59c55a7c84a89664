// y = x with its axes reordered, by element size. Where the last axis stays last, rows are copied; otherwise the plane
// of the two axes that are contiguous in x and in y is transposed in tiles through shared memory, so that both the
// reads and the writes of a warp lie together.
#include <algorithm>

#include "cuda/await_previous.cuh"
#include "cuda/copy.h"
#include "cuda/types.cuh"

namespace lk::cuda {

namespace {

constexpr int tile = 32, tile_rows = 8;  // threads of a block: tile x tile_rows
constexpr int64_t smallest_side = 16;    // of a plane; thinner ones leave most of a tile empty

// Matrices of `rows` (contiguous in y) by `columns` (contiguous in x).
struct Plane {
  int64_t rows, columns, x_pitch, y_pitch;
  int64_t row_tiles, column_tiles;
};

// y[c * y_pitch + r] = x[r * x_pitch + c] for the matrix at each place of `batch`.
template <class T>
__global__ void transpose_kernel(const T* x, T* y, Axes<2> batch, Plane plane, int64_t tiles) {
  await_previous();
  __shared__ T shared[tile][tile + 1];
  const int tx = static_cast<int>(threadIdx.x), ty = static_cast<int>(threadIdx.y);
  const int64_t per_matrix = plane.row_tiles * plane.column_tiles;
  for (int64_t i = blockIdx.x; i < tiles; i += gridDim.x) {
    const int64_t matrix = i / per_matrix, place = i - matrix * per_matrix, row_tile = place / plane.column_tiles;
    const int64_t first_row = row_tile * tile, first_column = (place - row_tile * plane.column_tiles) * tile;
    int64_t at[2];
    batch.locate(matrix, batch.rank, at);
#pragma unroll
    for (int k = 0; k < tile; k += tile_rows) {
      const int64_t row = first_row + ty + k, column = first_column + tx;
      if (row < plane.rows && column < plane.columns) shared[ty + k][tx] = x[at[0] + row * plane.x_pitch + column];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < tile; k += tile_rows) {
      const int64_t row = first_row + tx, column = first_column + ty + k;
      if (row < plane.rows && column < plane.columns) y[at[1] + column * plane.y_pitch + row] = shared[tx][ty + k];
    }
    __syncthreads();  // the tile is read before the next one overwrites it
  }
}

template <class T>
void transpose_as(Cuda& cuda, const void* x, void* y, const Axes<2>& batch, const Plane& plane) {
  const int64_t tiles = batch.count() * plane.row_tiles * plane.column_tiles;
  const int64_t most = int64_t{cuda.device().multiProcessorCount} * 16;
  cuda.launch(transpose_kernel<T>, dim3(static_cast<unsigned>(std::min(tiles, most))), dim3(tile, tile_rows), 0,
              static_cast<const T*>(x), static_cast<T*>(y), batch, plane, tiles);
}

}  // namespace

void permute(Cuda& cuda, const lk_permute_params& p) {
  int64_t x_strides[LK_MAX_RANK], step = 1;
  for (int32_t i = p.x.rank - 1; i >= 0; --i) {
    x_strides[i] = step;
    step *= p.x.dims[i];
  }
  Axes<2> axes;  // in the order of y
  step = numel(p.y);
  for (int32_t i = 0; i < p.y.rank; ++i) {
    step /= p.y.dims[i];
    axes.add(p.y.dims[i], {x_strides[p.axes[i]], step});
  }
  const int64_t size = lk_dtype_size(p.x.dtype);
  const int32_t last = axes.rank - 1;
  int32_t across = last;  // the axis that is contiguous in x
  for (int32_t i = 0; i < last; ++i) {
    if (axes.strides[0][i] == 1) across = i;
  }
  if (across == last || std::min(axes.dims[across], axes.dims[last]) < smallest_side)
    return copy_axes(cuda, p.x.data, p.y.data, size, axes);
  const Plane plane{axes.dims[last],
                    axes.dims[across],
                    axes.strides[0][last],
                    axes.strides[1][across],
                    ceil_div(axes.dims[last], tile),
                    ceil_div(axes.dims[across], tile)};
  Axes<2> batch;
  for (int32_t i = 0; i < last; ++i) {
    if (i != across) batch.add(axes.dims[i], {axes.strides[0][i], axes.strides[1][i]});
  }
  switch (size) {
    case 1: return transpose_as<uint8_t>(cuda, p.x.data, p.y.data, batch, plane);
    case 2: return transpose_as<uint16_t>(cuda, p.x.data, p.y.data, batch, plane);
    case 4: return transpose_as<uint32_t>(cuda, p.x.data, p.y.data, batch, plane);
    default: return transpose_as<uint64_t>(cuda, p.x.data, p.y.data, batch, plane);
  }
}

}  // namespace lk::cuda
