// A slice of an adapter's matrix in shared memory, rounded to 16 bits (skinny_project.cuh, skinny_spread.cuh).
#pragma once

#include "cuda/fragments.cuh"
#include "cuda/types.cuh"

namespace lk::cuda::skinny {

constexpr int warps = 8, threads = warps * 32;  // of a block

// Numbers first .. first + 7 of a line of `length`; those beyond the end count as zero.
struct Eight {
  float4 low, high;
};
__device__ inline Eight load_line(const float* line, int64_t first, int64_t length, bool whole) {
  Eight v = {};
  if (whole) {
    const auto* const from = reinterpret_cast<const float4*>(line + first);
    if (first < length) v.low = from[0];
    if (first + 4 < length) v.high = from[1];
  } else {
    const auto at = [&](int64_t i) { return i < length ? line[i] : 0.0f; };
    v.low = make_float4(at(first), at(first + 1), at(first + 2), at(first + 3));
    v.high = make_float4(at(first + 4), at(first + 5), at(first + 6), at(first + 7));
  }
  return v;
}

// `Cols` columns of a matrix [width, rank] or, `Lines`, [rank, width], which come as they are and go into a slice in
// shared memory in 16 bits.
//   [rank, width]: a row for each rank, whose chunk c of 8 columns lies in place c ^ (rank % 8)
//   [width, rank]: a row for each column, whose chunks of 8 ranks change places so that 8 rows have no bank conflict
// `Turned`: of each 32 columns, 8 q + 2 i + e comes into place 8 i + 2 q + e.
template <int Rank, int Cols, bool Bf16, bool Lines, bool Turned>
class Slice {
 public:
  __device__ static unsigned place_of_column(unsigned col, unsigned chunk) {
    constexpr unsigned cols_of_line = Rank < 64 ? 64 / Rank : 1;  // of 128 bytes
    return col * Rank + (chunk ^ col / cols_of_line % rank_chunks) * 8;
  }
  __device__ static unsigned place_of_line(unsigned rank, unsigned chunk) {
    return rank * Cols + (chunk ^ rank % 8) * 8;
  }

  // `cols` is a multiple of 32; beyond them there are zeros.
  __device__ void load(const float* weights, int64_t width, int64_t rank, int64_t first_col, int cols, bool whole) {
#pragma unroll
    for (int k = 0; k < pieces; ++k) {
      const int i = piece(k);
      const bool wanted = i < cols * rank_chunks;
      if constexpr (Lines) {
        const int q = i % 4, j = i / 4 % Rank, block = i / (4 * Rank);
        pieces_[k] =
            load_line(weights + j * width, first_col + block * 32 + q * 8, wanted && j < rank ? width : 0, whole);
      } else {
        const int col = i / rank_chunks;
        const bool inside = wanted && first_col + col < width;
        pieces_[k] = load_line(weights + (first_col + col) * rank, i % rank_chunks * 8, inside ? rank : 0, whole);
      }
    }
  }
  __device__ void store(uint16_t* slice) const {
#pragma unroll
    for (int k = 0; k < pieces; ++k) {
      const int i = piece(k);
      const float4 &low = pieces_[k].low, &high = pieces_[k].high;
      const uint32_t words[4] = {pack<Bf16>(low.x, low.y), pack<Bf16>(low.z, low.w), pack<Bf16>(high.x, high.y),
                                 pack<Bf16>(high.z, high.w)};
      const uint4 line = make_uint4(words[0], words[1], words[2], words[3]);
      if constexpr (!Lines) {
        const int col = i / rank_chunks;
        const int place = Turned ? col / 32 * 32 + col / 2 % 4 * 8 + col % 32 / 8 * 2 + col % 2 : col;
        *reinterpret_cast<uint4*>(slice + place_of_column(place, i % rank_chunks)) = line;
      } else {
        const int q = i % 4, j = i / 4 % Rank, block = i / (4 * Rank);
        if constexpr (Turned) {
#pragma unroll
          for (int n = 0; n < 4; ++n)
            *reinterpret_cast<uint32_t*>(slice + place_of_line(j, block * 4 + n) + 2 * q) = words[n];
        } else {
          *reinterpret_cast<uint4*>(slice + place_of_line(j, block * 4 + q)) = line;
        }
      }
    }
  }

 private:
  static constexpr int rank_chunks = Rank / 8, pieces = Cols * rank_chunks / threads;
  static_assert(pieces * threads == Cols * rank_chunks);
  __device__ static int piece(int k) { return k * threads + static_cast<int>(threadIdx.x); }
  Eight pieces_[pieces];
};

}  // namespace lk::cuda::skinny
