// How kernels share out the rows of x [rows, width]: `lanes` threads per row - a power of two up to 32, several rows
// per block, or whole warps, one row per block. A row that allows it is held packed in registers, so that it is read
// once; any other is fetched again for every pass over it.
#pragma once

#include <algorithm>

#include "cuda/packs.cuh"
#include "cuda/reduce.cuh"

namespace lk::cuda {

constexpr int row_threads = 512;  // at most; leaves each the registers for two held rows

// Packs of a row in registers, 0 where it is not held: rows of up to 16384 16-bit values, or 8192 of f32.
template <class Pack>
constexpr int held_packs = Pack::width == 1 ? 0 : 16 / Pack::registers;

struct RowPlan {
  int lanes;
  dim3 grid, block;
};

// For rows that want so many lanes.
inline RowPlan plan_rows(int64_t rows, int64_t wanted) {
  RowPlan plan;
  plan.lanes = 1;
  while (plan.lanes < 32 && plan.lanes < wanted) plan.lanes *= 2;
  if (wanted > 32) plan.lanes = static_cast<int>(ceil_div(wanted, 32) * 32);
  const int threads = plan.lanes > 32 ? plan.lanes : block_threads;
  plan.block = dim3(static_cast<unsigned>(threads));
  plan.grid = dim3(static_cast<unsigned>(ceil_div(rows, threads / plan.lanes)));
  return plan;
}

// Calls body(plan, pack), pack being a value of the kind to use, One for rows that are not held; arguments as of
// with_pack.
template <class Body>
void with_rows(std::initializer_list<In> fetched, std::initializer_list<In> others, int64_t rows, int64_t width,
               const Body& body) {
  with_pack(fetched, others, width, [&](auto pack) {
    constexpr int per_lane = held_packs<decltype(pack)> * vector_width;
    if (width <= row_threads * per_lane) {
      body(plan_rows(rows, ceil_div(width, std::max(per_lane, 1))), pack);
    } else {
      body(plan_rows(rows, width <= 1024 ? std::min<int64_t>(width, 32) : block_threads), One{});
    }
  });
}

// A thread's place. Threads without a row take the last one, so that all reach every shuffle and barrier; they must
// not write.
struct RowSpan {
  int64_t row, width;
  int lane, lanes;
  bool exists;
};

__device__ inline RowSpan row_span(int64_t rows, int64_t width, int lanes) {
  const int thread = static_cast<int>(threadIdx.x), of_block = static_cast<int>(blockDim.x) / lanes;
  const int64_t row = int64_t{blockIdx.x} * of_block + thread / lanes;
  return {min(row, rows - 1), width, thread % lanes, lanes, row < rows};
}

// Calls body(k, column) for every pack of the row that is this thread's; k is a constant where rows are held.
template <class Pack, int held = held_packs<Pack>, class Body>
__device__ inline void each_pack(const RowSpan& span, const Body& body) {
  if constexpr (held > 0) {
#pragma unroll
    for (int k = 0; k < held; ++k) {
      const int column = (k * span.lanes + span.lane) * Pack::width;
      if (column < span.width) body(k, column);
    }
  } else {
    for (int64_t column = span.lane; column < span.width; column += span.lanes) body(0, column);
  }
}

template <class Pack, int held = held_packs<Pack>>
class Row {
 public:
  __device__ Row(const In& x, const RowSpan& span) : Row(x, span, span.row * span.width) {}
  // base: where the row begins.
  __device__ Row(const In& x, const RowSpan& span, int64_t base) : x_(x), base_(base) {
    if constexpr (held > 0) {
      each_pack<Pack, held>(span, [&](int k, int64_t column) { held_[k] = Pack::fetch(x, base_ + column); });
    }
  }
  __device__ void get(int k, int64_t column, float (&v)[Pack::width]) const {
    if constexpr (held > 0) {
      held_[k].unpack(x_.dtype, v);
    } else {
      Pack::fetch(x_, base_ + column).unpack(x_.dtype, v);
    }
  }

 private:
  In x_;
  int64_t base_;
  Pack held_[std::max(held, 1)];
};

// Sum over the threads of a row within one warp.
__device__ inline float lanes_sum(float v, int lanes) {
  for (int offset = min(lanes, 32) / 2; offset > 0; offset /= 2) v += __shfl_xor_sync(0xffffffffu, v, offset);
  return v;
}

// Each value of every warp of the block for every thread: the value of warp `lane`, 0 beyond the last. All of them
// pass one barrier; `shared` has 32 * count floats and may be used once.
template <int count>
__device__ inline void exchange_warps(float (&v)[count], float* shared) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  if (lane == 0) {
#pragma unroll
    for (int i = 0; i < count; ++i) shared[32 * i + warp] = v[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < count; ++i) v[i] = lane < static_cast<int>(blockDim.x) / 32 ? shared[32 * i + lane] : 0.0f;
}

// Sum over all threads of a row; `shared` has 32 floats and may be used once.
__device__ inline float row_sum(float v, int lanes, float* shared) {
  float sum[1] = {lanes_sum(v, lanes)};
  if (lanes <= 32) return sum[0];
  exchange_warps(sum, shared);
  return warp_sum(sum[0]);
}

}  // namespace lk::cuda
