// Activations of what a product has stored, by warps of its blocks that multiply nothing, while the others make their
// next tile: the arithmetic fits into what matrix instructions leave idle, and the numbers are still in the cache.
//
// A group of warps that multiplies hands its part of a tile over when it is stored, one at a time; where the last one
// is not finished, or nothing is made after it, the group activates the part itself. Either way gives the same bits.
#pragma once

#include "cuda/activations.cuh"
#include "cuda/hopper.cuh"

namespace lk::cuda::hopper {

// Columns of tensors whose rows are so many elements apart: to = gelu(from), or from times gelu'(before), 16-bit
// numbers.
struct Beside {
  const void *from, *before;
  void* to;
  int64_t from_pitch, before_pitch, to_pitch;
  int rows, cols;
};

// In shared memory, one for each group that multiplies.
struct HandedOver {
  int row, col;       // of the last part
  uint32_t count;     // of parts
  uint32_t finished;  // times every warp beside
  uint32_t over;      // there will be no more
  uint32_t kept;      // the group activates its part itself
};

// By one thread of the group.
__device__ inline bool is_taken(const volatile HandedOver& handed, int warps) {
  return handed.finished == handed.count * static_cast<uint32_t>(warps);
}
__device__ inline void hand_over(volatile HandedOver& handed, int row, int col) {
  bulk_wait();  // the part is stored
  handed.row = row, handed.col = col;
  __threadfence_block();
  handed.count = handed.count + 1;
}
__device__ inline void end_of_parts(volatile HandedOver& handed) {
  __threadfence_block();
  handed.over = 1;
}

// The part of `Rows` x `Cols` that begins at (row, col), by `warps` warps, of which this is number `warp`. `slopes`:
// from times gelu'(before).
template <class Pair, class Pack, bool slopes, int Rows, int Cols>
__device__ inline void activate_part(const Beside& b, int row, int col, int warp, int warps, const Pack& pack) {
  constexpr int lanes_of_row = Cols / 8, rows_at_once = 32 / lanes_of_row, ahead = slopes ? 2 : 4;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int column = col + lane % lanes_of_row * 8;
  const int stride = warps * rows_at_once;
  const auto place = [&](const void* data, int64_t pitch, int r) {
    return static_cast<const uint4*>(data) + (static_cast<int64_t>(row + r) * pitch + column) / 8;
  };
  for (int first = warp * rows_at_once + lane / lanes_of_row; first < Rows; first += ahead * stride) {
    uint4 v[ahead], at[slopes ? ahead : 1];
    const auto there = [&](int i) {
      const int r = first + i * stride;
      return r < Rows && row + r < b.rows && column < b.cols;
    };
#pragma unroll
    for (int i = 0; i < ahead; ++i) {
      if (!there(i)) continue;
      v[i] = __ldcg(place(b.from, b.from_pitch, first + i * stride));
      if constexpr (slopes) at[i] = __ldcg(place(b.before, b.before_pitch, first + i * stride));
    }
#pragma unroll
    for (int i = 0; i < ahead; ++i) {
      if (!there(i)) continue;
      auto* const words = reinterpret_cast<uint32_t*>(&v[i]);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        float2 x = unpack_pair(*reinterpret_cast<const Pair*>(words + k));
        const GeluTanhShort gelu;
        if constexpr (slopes) {
          const float2 u = unpack_pair(*reinterpret_cast<const Pair*>(reinterpret_cast<const uint32_t*>(&at[i]) + k));
          x.x *= gelu.slope(u.x), x.y *= gelu.slope(u.y);
        } else {
          x.x = gelu.value(x.x), x.y = gelu.value(x.y);
        }
        words[k] = pack(x.x, x.y);
      }
      *const_cast<uint4*>(place(b.to, b.to_pitch, first + i * stride)) = v[i];
    }
  }
}

// Until the groups say that there is no more.
template <class Pair, class Pack, bool slopes, int Rows, int Cols, int groups>
__device__ inline void activate_beside(const Beside& b, HandedOver (&handed)[groups], int warp, int warps,
                                       const Pack& pack) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto read = [](const uint32_t& word) {
    const uint32_t v = *static_cast<const volatile uint32_t*>(&word);
    __threadfence_block();
    return __shfl_sync(0xffffffffu, v, 0);
  };
  uint32_t taken[groups] = {};
  for (bool over = false; !over;) {
    bool idle = true;
    over = true;
#pragma unroll
    for (int g = 0; g < groups; ++g) {
      over = read(handed[g].over) != 0 && over;
      if (read(handed[g].count) == taken[g]) continue;
      ++taken[g];
      over = idle = false;
      const volatile HandedOver& part = handed[g];
      activate_part<Pair, Pack, slopes, Rows, Cols>(b, part.row, part.col, warp, warps, pack);
      __syncwarp();
      if (lane == 0) atomicAdd(&handed[g].finished, 1u);
    }
    if (idle && !over) __nanosleep(500);
  }
}

}  // namespace lk::cuda::hopper
