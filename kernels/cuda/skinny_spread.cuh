// What a block of skinny_through.cu does with sums that are complete: the projection of some rows, and its product with
// v for a part of the columns, whose slices come one after the other.
#pragma once

#include "cuda/skinny_project.cuh"

namespace lk::cuda::skinny {

// Of all rows of a block, in 16 bits; + 8: no bank conflicts.
template <int Rank>
using Projected = uint16_t[warps * tile_rows][Rank + 8];

__host__ __device__ inline int64_t numbers_of_narrow(const Through& p) {
  return p.by_rank ? p.rank * p.out : p.out * even_pitch(p.rank);
}
// v in 16 bits for a product that spreads, by the blocks from this number on: eight numbers a thread.
__device__ inline void narrow(const Pass& pass, int64_t block) {
  const Through& p = pass.p;
  const int64_t width = p.by_rank ? p.out : p.rank, pitch = p.by_rank ? p.out : even_pitch(p.rank);
  const int64_t i = (block * threads + threadIdx.x) * 8;
  if (i >= numbers_of_narrow(p)) return;
  // Rows without anything in between are one row.
  const bool dense = pitch == width;
  const int64_t row = dense ? 0 : i / pitch;
  const auto [low, high] = load_line(p.v + row * width, i - row * pitch, dense ? p.out * p.rank : width, pass.whole.v);
  const float v[8] = {p.gain * low.x,  p.gain * low.y,  p.gain * low.z,  p.gain * low.w,
                      p.gain * high.x, p.gain * high.y, p.gain * high.z, p.gain * high.w};
  store8({p.narrow, p.type}, i, v);
}

// Four sums of a row from rank `first` on become what is projected, which is stored, too, if `stores`: numbers beyond
// the rank are zero.
template <bool Bf16>
__device__ inline uint2 finish(const Through& p, int64_t row, int first, const float4& sums, bool stores) {
  float v[4] = {sums.x, sums.y, sums.z, sums.w};
  const bool inside = row < p.rows;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const int j = first + k;
    v[k] *= p.alpha;
    if (p.mask.data != nullptr && inside && j < p.rank) v[k] *= load(p.mask, row * p.rank + j);
    if (stores && inside && j < p.pitch) store(p.projected, row * p.pitch + j, v[k]);
  }
  const uint2 packed = make_uint2(pack<Bf16>(v[0], v[1]), pack<Bf16>(v[2], v[3]));
  const auto pitch = static_cast<int>(even_pitch(p.rank));
  if (p.again != nullptr && stores && inside && first < pitch)
    *reinterpret_cast<uint2*>(static_cast<uint16_t*>(p.again) + row * pitch + first) = packed;
  return packed;
}

// Of the block's part of the columns.
template <int Rank, bool Bf16, bool ByRank>
class Spread {
 public:
  __device__ explicit Spread(const Pass& pass) : pass_(pass), left_(blockIdx.y * pass.spread_cols) {
    const Through& p = pass.p;
    if (p.spread.data != nullptr && left_ < p.out) cols_ = static_cast<int>(min(pass.spread_cols, p.out - left_));
  }
  __device__ bool wanted() const { return cols_ > 0; }
  // The first slice into its place.
  __device__ void begin(uint16_t* weights) {
    load_slice(0);
    store_slice(weights);
    if (ahead) load_slice(slice);
  }
  __device__ void run(const Projected<Rank>& projected, uint16_t* weights);

 private:
  static constexpr int slice = slice_bytes / 2 / Rank;
  static constexpr bool ahead = Rank > 32;  // slices of few columns come while the one before is multiplied
  using Weights = Slice<Rank, slice, Bf16, ByRank, true>;
  // If there is one.
  __device__ void load_slice(int first) {
    if (first >= cols_) return;
    const Through& p = pass_.p;
    coming_.load(p.v, p.out, p.rank, left_ + first, min(slice, (cols_ - first + 31) / 32 * 32), pass_.whole.v);
  }
  __device__ void store_slice(uint16_t* weights) const { coming_.store(weights); }

  const Pass& pass_;
  int64_t left_;
  int cols_ = 0;
  Weights coming_;
};

template <int Rank, bool Bf16, bool ByRank>
__device__ inline void Spread<Rank, Bf16, ByRank>::run(const Projected<Rank>& projected, uint16_t* weights) {
  const Pass& pass = pass_;
  const Through& p = pass.p;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32, g = lane / 4, t = lane % 4;
  const int group = warp % pass.row_groups, share = warp / pass.row_groups, shares = warps / pass.row_groups;
  const int64_t first_row = (int64_t{blockIdx.x} * pass.row_groups + group) * tile_rows, left = left_;
  const int cols = cols_;
  uint32_t z[Rank / 16][4];
#pragma unroll
  for (int step = 0; step < Rank / 16; ++step)
    load_matrices<false>(z[step], &projected[group * tile_rows + lane % 16][step * 16 + lane / 16 * 8]);

  const bool packs = pass.whole.spread && p.spread.dtype == p.type;
  const bool has_top = first_row + g < p.rows, has_bottom = first_row + g + 8 < p.rows;
  const int64_t top = (first_row + g) * p.out + left + 8 * t, bottom = top + 8 * p.out;
  const int matrix_row = lane % 8;
  for (int start = 0; start < cols; start += slice) {
    if (start != 0) {
      __syncthreads();
      if (!ahead) load_slice(start);
      store_slice(weights);
      __syncthreads();
      if (ahead) load_slice(start + slice);
    }
    const int width = min(slice, cols - start);
    // Column g of tile i is column 8 (g / 2) + 2 i + g % 2 of the 32, so a lane's sums are 8 neighbours of a row.
#pragma unroll 2
    for (int first = share * 32; first < width; first += shares * 32) {
      float out[4][4] = {};
#pragma unroll
      for (int step = 0; step < Rank / 16; ++step) {
#pragma unroll
        for (int pair = 0; pair < 2; ++pair) {
          uint32_t b[4];
          const int tile = pair * 2 + lane / 16, half = lane / 8 % 2;
          if constexpr (ByRank)
            load_matrices<true>(b,
                                weights + Weights::place_of_line(step * 16 + half * 8 + matrix_row, first / 8 + tile));
          else
            load_matrices<false>(b, weights + Weights::place_of_column(first + tile * 8 + matrix_row, step * 2 + half));
          const uint32_t words[2][2] = {{b[0], b[1]}, {b[2], b[3]}};
          multiply_add<Bf16>(out[pair * 2], z[step], words[0]);
          multiply_add<Bf16>(out[pair * 2 + 1], z[step], words[1]);
        }
      }
      const int col = start + first;
      if (packs) {
        if (col + 8 * t >= cols) continue;
        const auto put_line = [&](bool there, int64_t at, int half) {
          if (!there) return;
          uint32_t line[4] = {};
          if (p.base.data != nullptr) {
            const uint4 more = *reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(p.base.data) + at);
            line[0] = more.x, line[1] = more.y, line[2] = more.z, line[3] = more.w;
          }
#pragma unroll
          for (int k = 0; k < 4; ++k) {
            const float2 more = unpack<Bf16>(line[k]);
            line[k] = pack<Bf16>(more.x + p.gain * out[k][2 * half], more.y + p.gain * out[k][2 * half + 1]);
          }
          *reinterpret_cast<uint4*>(static_cast<uint16_t*>(p.spread.data) + at) =
              make_uint4(line[0], line[1], line[2], line[3]);
        };
        put_line(has_top, top + col, 0);
        put_line(has_bottom, bottom + col, 1);
      } else {
#pragma unroll
        for (int k = 0; k < 8; ++k) {
          if (col + 8 * t + k >= cols) break;
          if (has_top) store(p.spread, top + col + k, p.gain * out[k / 2][k % 2]);
          if (has_bottom) store(p.spread, bottom + col + k, p.gain * out[k / 2][2 + k % 2]);
        }
      }
    }
  }
}

}  // namespace lk::cuda::skinny
