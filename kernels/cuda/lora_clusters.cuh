// What the warps of lora_clusters.cu are given, and those that load, project and add.
#pragma once

#include "cuda/fragments.cuh"
#include "cuda/hopper.cuh"
#include "cuda/types.cuh"

namespace lk::cuda {

constexpr int most_stages = 8, most_turns = 4;
constexpr int loading_warps = 2, adding_warps = 4;  // one that loads has dy and s, the other x

// A matrix in shared memory: boxes of 16, 32 or 64 columns one after the other, of `rows` each, in which pieces of 16
// bytes change places as bulk copies with the swizzle of a line's bytes leave them; eight rows have no bank conflicts.
// 16 rows further are 16 << log numbers, 64 columns further 64 times the rows.
struct Tile {
  uint16_t* memory;
  int rows, log;  // of a box, and the logarithm of its width
  __device__ int place(int row, int col) const {
    const int change = (row << log) / 64 % (1 << (log - 3)) * 8;
    return (((col >> log) * rows + row) << log) + ((col & ((1 << log) - 1)) ^ change);
  }
  __device__ uint16_t* at(int row, int col) const { return memory + place(row, col); }
};
__host__ __device__ constexpr int log_of_box(int cols) { return cols % 64 == 0 ? 6 : cols % 32 == 0 ? 5 : 4; }

// As boxes of a tile's rows and so many columns.
struct Maps {
  CUtensorMap dy, x, s;
};

struct Problem {
  const float *up, *down;
  In mask;
  float scale;
  uint16_t* dx;
  const uint16_t* added;
  Out ds, ddown, dup;
  bool add;
  int rows, in, out, rank;
  int tile_rows, span;  // a cluster has `span` rows
  int row_clusters, column_clusters;
  int dy_cols, x_cols;  // of slices
  int dy_stages, x_stages, turns;
  int projecting_warps, dup_warps, x_warps;
  int x_groups;     // of warps that have the same columns
  float4* partial;  // [slices, row clusters, numbers of a lane / 4, 32], a slice of a warp
  uint32_t* ended;  // [slices]
};

// In shared memory: rings of tiles; `up` as fragments; sums of ds over this block's columns that leave for the others,
// and theirs of this block's rows; what groups of warps add up in the end.
struct Places {
  uint16_t *dy, *x, *s, *ds;
  uint4* up;
  float *leaving, *parts, *joined;
};
// A tile is there, or no longer needed; all sums of a part of ds are there, or all of ds, or its tile is free again.
struct Barriers {
  uint64_t dy_full[most_stages], dy_empty[most_stages], x_full[most_stages], x_empty[most_stages];
  uint64_t parts[most_turns], ds[most_turns], used[most_turns];
};

#if __CUDA_ARCH__ >= 900

// Where a block is, and which part of the work it has.
struct Share {
  int block, blocks;  // of the cluster
  int row_cluster, column_cluster;
  int begin, end;  // rows
  int tiles;
  __device__ explicit Share(const Problem& p)
      : block(static_cast<int>(blockIdx.y)),
        blocks(static_cast<int>(gridDim.y)),
        row_cluster(static_cast<int>(blockIdx.x) / p.column_clusters),
        column_cluster(static_cast<int>(blockIdx.x) % p.column_clusters),
        begin(row_cluster * p.span),
        end(min(begin + p.span, p.rows)),
        tiles((end - begin + p.tile_rows - 1) / p.tile_rows) {}
  // Rows of a tile, in sixteens.
  __device__ int rows_of(const Problem& p, int tile) const {
    return min(p.tile_rows, (end - begin - tile * p.tile_rows + 15) / 16 * 16);
  }
};

// As hopper::Ring, where only a call knows how many stages there are.
struct Turn {
  int stages, stage = 0, parity = 0;
  __device__ explicit Turn(int count) : stages(count) {}
  __device__ void next() {
    if (++stage == stages) stage = 0, parity ^= 1;
  }
};

// Tiles of dy and s, or of x, by one thread.
template <int Rank>
__device__ inline void load_tiles(const Problem& p, const Maps& maps, const Share& share, const Places& places,
                                  Barriers& barriers, bool of_dy) {
  const int T = p.tile_rows, cols = of_dy ? p.dy_cols : p.x_cols, width = 1 << log_of_box(cols);
  const int slice = of_dy ? share.block : share.block * p.column_clusters + share.column_cluster;
  const CUtensorMap& map = of_dy ? maps.dy : maps.x;
  const bool of_s = of_dy && p.dup_warps > 0;
  uint16_t* const ring = of_dy ? places.dy : places.x;
  uint64_t* const full = of_dy ? barriers.dy_full : barriers.x_full;
  uint64_t* const empty = of_dy ? barriers.dy_empty : barriers.x_empty;
  Turn turn(of_dy ? p.dy_stages : p.x_stages);
  for (int tile = 0; tile < share.tiles; ++tile, turn.next()) {
    if (tile >= turn.stages) hopper::barrier_wait(&empty[turn.stage], turn.parity ^ 1);
    const int first_row = share.begin + tile * T;
    uint64_t* const told = &full[turn.stage];
    hopper::barrier_arrive_with(told, T * (cols + (of_s ? Rank : 0)) * 2);
    for (int col = 0; col < cols; col += width)
      hopper::copy_box(ring + (turn.stage * cols + col) * T, map, slice * cols + col, first_row, told);
    if (of_s) hopper::copy_box(places.s + turn.stage * T * Rank, maps.s, 0, first_row, told);
  }
}

// By the warps that project and add. As fragments: words of lane l are at [step of 16 columns, 16 ranks, l].
template <int Rank, bool Bf16>
__device__ inline void narrow_up(const Problem& p, const Share& share, const Places& places, int thread) {
  const int count = p.dy_cols / 16 * (Rank / 16) * 32, threads = (p.projecting_warps + adding_warps) * 32;
#pragma unroll 2
  for (int i = thread; i < count; i += threads) {
    const int lane = i % 32, n = i / 32 % (Rank / 16), step = i / 32 / (Rank / 16);
    const int col = share.block * p.dy_cols + step * 16 + lane % 4 * 2, j = n * 16 + lane / 4;
    const auto at = [&](int c, int r) { return c < p.out && r < p.rank ? p.up[int64_t{c} * p.rank + r] : 0.0f; };
    const auto two = [&](int c, int r) { return pack<Bf16>(at(c, r), at(c + 1, r)); };
    places.up[i] = make_uint4(two(col, j), two(col + 8, j), two(col, j + 8), two(col + 8, j + 8));
  }
  hopper::barrier_among<1>(threads);
}

// Sums of ds over the slice.
template <int Rank, bool Bf16>
__device__ inline void project(const Problem& p, const Share& share, const Places& places, Barriers& barriers,
                               int thread) {
  constexpr int most_steps = 4, at_once = Rank == 16 ? 4 : 2;  // 64 columns, and what is multiplied at once of them
  const int warp = thread / 32, lane = thread % 32, g = lane / 4, t = lane % 4;
  const int steps = p.dy_cols / 16, log = log_of_box(p.dy_cols), part_rows = p.tile_rows / share.blocks;
  narrow_up<Rank, Bf16>(p, share, places, thread);
  const Tile of_steps{nullptr, p.tile_rows, log};
  int places_of_steps[most_steps];
#pragma unroll
  for (int k = 0; k < most_steps; ++k) places_of_steps[k] = of_steps.place(lane % 16, k * 16 + lane / 16 * 8);
  hopper::cluster_has_begun();
  Turn stage(p.dy_stages), turn(p.turns);
  for (int tile = 0; tile < share.tiles; ++tile, stage.next(), turn.next()) {
    hopper::barrier_wait(&barriers.dy_full[stage.stage], stage.parity);
    if (tile >= p.turns) hopper::barrier_wait(&barriers.used[turn.stage], turn.parity ^ 1);
    const int rows = share.rows_of(p, tile);
    for (int row = warp * 16; row < rows; row += p.projecting_warps * 16) {
      const uint16_t* dy = places.dy + stage.stage * p.tile_rows * p.dy_cols + (row << log);
      const uint4* up = places.up + lane;
      float sum[Rank / 8][4] = {};
      for (int step = 0; step < steps; step += most_steps, dy += 64 * p.tile_rows) {
#pragma unroll
        for (int first = 0; first < most_steps; first += at_once) {
          uint32_t left[at_once][4];
          uint4 right[at_once][Rank / 16];
#pragma unroll
          for (int k = 0; k < at_once; ++k) {
            if (step + first + k >= steps) break;
            load_matrices<false>(left[k], dy + places_of_steps[first + k]);
#pragma unroll
            for (int n = 0; n < Rank / 16; ++n) right[k][n] = up[n * 32];
            up += Rank / 16 * 32;
          }
#pragma unroll
          for (int k = 0; k < at_once; ++k) {
            if (step + first + k >= steps) break;
#pragma unroll
            for (int n = 0; n < Rank / 16; ++n) {
              const uint32_t b[2][2] = {{right[k][n].x, right[k][n].y}, {right[k][n].z, right[k][n].w}};
              multiply_add<Bf16>(sum[2 * n], left[k], b[0]);
              multiply_add<Bf16>(sum[2 * n + 1], left[k], b[1]);
            }
          }
        }
      }
      float* const leaving = places.leaving + (turn.stage * p.tile_rows + row) * Rank;
#pragma unroll
      for (int n = 0; n < Rank / 8; ++n) {
        *reinterpret_cast<float2*>(leaving + g * Rank + n * 8 + 2 * t) = make_float2(sum[n][0], sum[n][1]);
        *reinterpret_cast<float2*>(leaving + (g + 8) * Rank + n * 8 + 2 * t) = make_float2(sum[n][2], sum[n][3]);
      }
      hopper::fence_async_shared();
      __syncwarp();
      float* const part = places.parts + (turn.stage * p.tile_rows + share.block * part_rows) * Rank;
      const int to = row / part_rows + lane, own = share.block * part_rows - row;
      if (lane * part_rows < 16 && to != share.block)
        hopper::copy_to_block(part, to, leaving + lane * part_rows * Rank, part_rows * Rank * 4,
                              &barriers.parts[turn.stage]);
      if (own >= 0 && own < 16) {
        for (int i = lane * 4; i < part_rows * Rank; i += 32 * 4)
          *reinterpret_cast<float4*>(part + i) = *reinterpret_cast<const float4*>(leaving + own * Rank + i);
        __syncwarp();
        if (lane == 0) hopper::barrier_arrive(&barriers.parts[turn.stage]);
      }
      __syncwarp();
    }
    if (lane == 0) hopper::barrier_arrive(&barriers.dy_empty[stage.stage]);
  }
  __syncwarp();
}

// ds of the block's part of a tile, for all blocks.
template <int Rank, bool Bf16>
__device__ inline void add_parts(const Problem& p, const Share& share, const Places& places, Barriers& barriers,
                                 int thread) {
  constexpr int threads = adding_warps * 32;
  const int warp = thread / 32, lane = thread % 32;
  const int part_rows = p.tile_rows / share.blocks, own = share.block * part_rows;
  constexpr int row_bytes = Rank * 2;
  narrow_up<Rank, Bf16>(p, share, places, p.projecting_warps * 32 + thread);
  hopper::cluster_has_begun();
  Turn turn(p.turns);
  const bool special = p.mask.data != nullptr || p.ds.data != nullptr;
  for (int tile = 0; tile < share.tiles; ++tile, turn.next()) {
    const int rows = share.rows_of(p, tile);
    const bool has_rows = own < rows;
    uint64_t* const told = &barriers.ds[turn.stage];
    if (!has_rows) {
      if (tile >= p.turns) hopper::barrier_wait(&barriers.used[turn.stage], turn.parity ^ 1);
      if (thread == 0) hopper::barrier_arrive_with(told, rows * row_bytes);
      continue;
    }
    hopper::barrier_wait(&barriers.parts[turn.stage], turn.parity);
    if (thread == 0) hopper::barrier_arrive_with(&barriers.parts[turn.stage], (p.tile_rows - part_rows) * Rank * 4);
    const float* const parts = places.parts + turn.stage * p.tile_rows * Rank;
    const Tile ds{places.ds + turn.stage * p.tile_rows * Rank, p.tile_rows, log_of_box(Rank)};
    const int first_row = share.begin + tile * p.tile_rows + own;
    for (int i = thread * 4; i < part_rows * Rank; i += threads * 4) {
      float v[4] = {};
      const float* from = parts + i;
#pragma unroll 8
      for (int block = 0; block < share.blocks; ++block, from += part_rows * Rank) {
        const float4 more = *reinterpret_cast<const float4*>(from);
        v[0] += more.x, v[1] += more.y, v[2] += more.z, v[3] += more.w;
      }
      const int row = i / Rank, j = i % Rank;
      const bool inside = first_row + row < share.end;
#pragma unroll
      for (float& number : v) number = inside ? p.scale * number : 0.0f;
      if (special && inside) {
        const int64_t at = int64_t{first_row + row} * p.rank + j;
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          if (j + k >= p.rank) break;
          if (p.mask.data != nullptr) v[k] *= load(p.mask, at + k);
          if (p.ds.data != nullptr && share.column_cluster == 0) store(p.ds, at + k, v[k]);
        }
      }
      *reinterpret_cast<uint2*>(ds.at(own + row, j / 8 * 8) + j % 8) =
          make_uint2(pack<Bf16>(v[0], v[1]), pack<Bf16>(v[2], v[3]));
    }
    hopper::fence_async_shared();
    hopper::barrier_among<2, threads>();
    if (thread == 0) hopper::barrier_arrive_with(told, (rows - part_rows) * row_bytes);
    const int to = lane * adding_warps + warp;
    uint16_t* const part = ds.memory + own * Rank;
    if (to < share.blocks && to != share.block) hopper::copy_to_block(part, to, part, part_rows * row_bytes, told);
    __syncwarp();
  }
  __syncwarp();
}

#endif

}  // namespace lk::cuda
