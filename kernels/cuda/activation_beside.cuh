// gelu, or its slopes, of a part of what a product has stored: where its warps that multiply have gone on to the next
// part, others do this beside them. The arithmetic fits into what matrix instructions leave idle, and the numbers are
// still in the cache. A pass over all that was stored would give the same bits.
#pragma once

#include "cuda/activations.cuh"
#include "cuda/hopper.cuh"

namespace lk::cuda::hopper {

// Columns of tensors of 16-bit numbers, whose rows are so many elements apart: to = gelu(from), or with `before` from
// times gelu'(before).
struct Beside {
  const void *from, *before;
  void* to;
  int64_t from_pitch, before_pitch, to_pitch;
  int rows, cols;
};

// The part of Rows x Cols that begins at (row, col), by so many warps, of which this is number `warp`.
template <class T, class Pair, bool slopes, int Rows, int Cols>
__device__ inline void activate_part(const Beside& b, int row, int col, int warp, int warps) {
  constexpr int lanes_of_row = Cols / 8, rows_at_once = 32 / lanes_of_row, ahead = slopes ? 2 : 4;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int column = col + lane % lanes_of_row * 8, stride = warps * rows_at_once;
  if (column >= b.cols) return;
  const auto place = [&](const void* data, int64_t pitch, int r) {
    return static_cast<const uint4*>(data) + (static_cast<int64_t>(row + r) * pitch + column) / 8;
  };
  for (int first = warp * rows_at_once + lane / lanes_of_row; first < Rows; first += ahead * stride) {
    const auto there = [&](int i) { return first + i * stride < Rows && row + first + i * stride < b.rows; };
    uint4 v[ahead] = {}, at[ahead] = {};
#pragma unroll
    for (int i = 0; i < ahead; ++i) {
      if (!there(i)) continue;
      v[i] = __ldcg(place(b.from, b.from_pitch, first + i * stride));
      if constexpr (slopes) at[i] = __ldcg(place(b.before, b.before_pitch, first + i * stride));
    }
#pragma unroll
    for (int i = 0; i < ahead; ++i) {
      if (!there(i)) continue;
      uint32_t* const words[] = {&v[i].x, &v[i].y, &v[i].z, &v[i].w};
      const uint32_t before[] = {at[i].x, at[i].y, at[i].z, at[i].w};
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const GeluTanhShort gelu;
        float2 x = unpack_pair(*reinterpret_cast<const Pair*>(words[k]));
        if constexpr (slopes) {
          const float2 u = unpack_pair(*reinterpret_cast<const Pair*>(&before[k]));
          x.x *= gelu.slope(u.x), x.y *= gelu.slope(u.y);
        } else {
          x.x = gelu.value(x.x), x.y = gelu.value(x.y);
        }
        *words[k] = Multiply<T>::pack(x.x, x.y);
      }
      *const_cast<uint4*>(place(b.to, b.to_pitch, first + i * stride)) = v[i];
    }
  }
}

}  // namespace lk::cuda::hopper
