// gelu of a part of what a product has stored: where its warps that multiply have gone on to the next part, others do
// this beside them. The arithmetic fits into what matrix instructions leave idle, and the numbers are still in the
// cache. A pass over all that was stored would give the same bits.
#pragma once

#include "cuda/activations.cuh"
#include "cuda/hopper.cuh"
#include "cuda/matrix_instructions.cuh"

namespace lk::cuda::hopper {

// Columns of tensors of 16-bit numbers, whose rows are so many elements apart: to = gelu(from).
struct Beside {
  const void* from;
  void* to;
  int64_t from_pitch, to_pitch;
  int rows, cols;
};

// The part of Rows x Cols that begins at (row, col), by so many warps, of which this is number `warp`.
template <class T, class Pair, int Rows, int Cols>
__device__ inline void activate_part(const Beside& b, int row, int col, int warp, int warps) {
  constexpr int lanes_of_row = Cols / 8, rows_at_once = 32 / lanes_of_row, ahead = 4;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int column = col + lane % lanes_of_row * 8, stride = warps * rows_at_once;
  if (column >= b.cols) return;
  for (int first = warp * rows_at_once + lane / lanes_of_row; first < Rows; first += ahead * stride) {
    const auto there = [&](int i) { return first + i * stride < Rows && row + first + i * stride < b.rows; };
    const auto place = [&](int i, int64_t pitch) {
      return (static_cast<int64_t>(row + first + i * stride) * pitch + column) / 8;
    };
    uint4 v[ahead] = {};
#pragma unroll
    for (int i = 0; i < ahead; ++i)
      if (there(i)) v[i] = __ldcg(static_cast<const uint4*>(b.from) + place(i, b.from_pitch));
#pragma unroll
    for (int i = 0; i < ahead; ++i) {
      if (!there(i)) continue;
#pragma unroll
      for (uint32_t* const word : {&v[i].x, &v[i].y, &v[i].z, &v[i].w}) {
        const float2 x = unpack_pair(*reinterpret_cast<const Pair*>(word));
        *word = Multiply<T>::pack(GeluTanhShort{}.value(x.x), GeluTanhShort{}.value(x.y));
      }
      static_cast<uint4*>(b.to)[place(i, b.to_pitch)] = v[i];
    }
  }
}

}  // namespace lk::cuda::hopper
