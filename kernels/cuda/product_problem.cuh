// What a kernel of product_tiles.cuh or product_through.cuh is given, and which there are.
#pragma once

#include <cuda.h>

#include <numeric>

#include "cuda/activation_beside.cuh"
#include "cuda/types.cuh"

namespace lk::cuda::product {

constexpr int tile_rows = 128, depth = 64, group_rows = 64;
constexpr int line = 64, line_bytes = 128;                       // what a row of a matrix in shared memory has
constexpr int a_bytes = tile_rows * line_bytes;                  // of a part
constexpr int box_rows = 64, box_bytes = box_rows * line_bytes;  // of b [k, n]
constexpr int groups = 2, multipliers = groups * 128, threads = multipliers + 128;
constexpr int cluster = 2;

template <int Layers>  // at most
struct Problem {
  In bias[Layers];
  int rows, cols[Layers];
  int steps[Layers];                      // parts of the sum
  int share[Layers], more_share[Layers];  // 16s of the adapter's first part, and parts of it behind that
  int first[Layers];                      // column of tiles; beyond all where there is none
  int summed;                             // layers
  int row_tiles, col_tiles;               // of a cluster, 256 rows each
  int band;                               // so many rows of tiles are made together
  bool adds;                              // c
  int activated_from, gates;              // columns of tiles: from which on, and how many gate as many behind them
  hopper::Beside beside;
  // Of tiles that make z themselves, alpha a op(w): where it is left, and what v is multiplied by.
  struct {
    void* z;
    int pitch, rank;
    float alpha, gain;
  } made[Layers];
};

template <int Layers>
struct Maps {
  struct {
    CUtensorMap a, b, z, v, d;  // w in the place of z, where tiles make that
  } of[Layers];
  CUtensorMap c;
};

// Of a box in which a tile's results leave.
constexpr int leaving_cols(int cols) { return std::gcd(cols, line); }

template <int Layers>
struct Tile {
  int cols;
  void (*kernel)(Problem<Layers>, Maps<Layers>);
  size_t shared;
};

// Tiles of Cols columns, 96, 128, 160, 192, 208 or 256, for one layer or LK_LORA_GROUP_MAX, with b [n, k] or, `across`,
// [k, n]. Of 128 and 256 columns and b [n, k] there are some whose results go through an activation.
template <int Cols, int Layers>
Tile<Layers> tile_of(lk_dtype type, bool across, bool activates);

// The same of product_through.cuh, of 96, 128 or 160 columns, which make z too: w and v are float32. Without a kernel
// where v does not fit, of 160 columns with a rank over 16.
constexpr int most_made = 32;  // rank
template <int Cols, int Layers>
Tile<Layers> through_tile_of(lk_dtype type, bool across, int64_t rank);

}  // namespace lk::cuda::product
