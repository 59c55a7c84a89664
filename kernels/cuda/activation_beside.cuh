// gelu of a part of what a product has stored, or silu of a part times another: where its warps that multiply have gone
// on to the next part, others do this beside them. The arithmetic fits into what matrix instructions leave idle, and
// the numbers are still in the cache. A pass over all that was stored would give the same bits.
#pragma once

#include "cuda/activations.cuh"
#include "cuda/hopper.cuh"
#include "cuda/matrix_instructions.cuh"

namespace lk::cuda::hopper {

// Columns of tensors of 16-bit numbers, whose rows are so many elements apart: to = gelu(from), or silu(from) * gated
// where there is such. Those lie like `from`.
struct Beside {
  const void *from, *gated;
  void* to;
  int64_t from_pitch, to_pitch;
  int rows, cols;
};

template <class T, class Pair>
__device__ inline uint32_t gelu_of(uint32_t pair) {
  const float2 x = unpack_pair(*reinterpret_cast<const Pair*>(&pair));
  return Multiply<T>::pack(GeluTanhShort{}.value(x.x), GeluTanhShort{}.value(x.y));
}

// The gate is rounded, as if it had been stored.
template <class T, class Pair>
__device__ inline uint32_t gated_by_silu(uint32_t gate, uint32_t pair) {
  const float2 a = unpack_pair(*reinterpret_cast<const Pair*>(&gate));
  const uint32_t rounded = Multiply<T>::pack(SiluBy<Short>{}.value(a.x), SiluBy<Short>{}.value(a.y));
  const float2 f = unpack_pair(*reinterpret_cast<const Pair*>(&rounded));
  const float2 x = unpack_pair(*reinterpret_cast<const Pair*>(&pair));
  return Multiply<T>::pack(f.x * x.x, f.y * x.y);
}

// The part of Rows x Cols that begins at (row, col), by so many warps, of which this is number `warp`.
template <class T, class Pair, int Rows, int Cols>
__device__ inline void activate_part(const Beside& b, int row, int col, int warp, int warps) {
  constexpr int lanes_of_row = Cols / 8, rows_at_once = 32 / lanes_of_row, ahead = 4;
  const bool gates = b.gated != nullptr;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int column = col + lane % lanes_of_row * 8, stride = warps * rows_at_once;
  if (column >= b.cols) return;
  for (int first = warp * rows_at_once + lane / lanes_of_row; first < Rows; first += ahead * stride) {
    const auto there = [&](int i) { return first + i * stride < Rows && row + first + i * stride < b.rows; };
    const auto place = [&](int i, int64_t pitch) {
      return (static_cast<int64_t>(row + first + i * stride) * pitch + column) / 8;
    };
    uint4 v[ahead] = {}, other[ahead] = {};
#pragma unroll
    for (int i = 0; i < ahead; ++i) {
      if (!there(i)) continue;
      v[i] = __ldcg(static_cast<const uint4*>(b.from) + place(i, b.from_pitch));
      if (gates) other[i] = __ldcg(static_cast<const uint4*>(b.gated) + place(i, b.from_pitch));
    }
#pragma unroll
    for (int i = 0; i < ahead; ++i) {
      if (!there(i)) continue;
      if (gates) {
        v[i] = {gated_by_silu<T, Pair>(v[i].x, other[i].x), gated_by_silu<T, Pair>(v[i].y, other[i].y),
                gated_by_silu<T, Pair>(v[i].z, other[i].z), gated_by_silu<T, Pair>(v[i].w, other[i].w)};
      } else {
        v[i] = {gelu_of<T, Pair>(v[i].x), gelu_of<T, Pair>(v[i].y), gelu_of<T, Pair>(v[i].z), gelu_of<T, Pair>(v[i].w)};
      }
      static_cast<uint4*>(b.to)[place(i, b.to_pitch)] = v[i];
    }
  }
}

}  // namespace lk::cuda::hopper
