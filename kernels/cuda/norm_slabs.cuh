// Norms of rows [rows, columns] that are wide enough for a block each, and their gradients, in one pass:
//   y = xh weight (unit + factor) + shift, xh = (x - mean) / sqrt(variance + eps), or x / sqrt(mean(x^2) + eps)
// where factor and shift have a row for every `rows_per_factor` rows.
//
// A block goes over a slab of rows under one factor, two at a time, so that both share a barrier. Rows come by
// cp.async, each thread's columns to a place of its own, several rows ahead. What stays the same down the rows stays in
// registers, and types are known when this is compiled: some 20 instructions for each element, which memory does not
// wait for. A warp sums its part of a row around its own mean; the parts are then joined by Chan's formula, so the
// variance is as accurate as in two passes.
#pragma once

#include "cuda/column_sums.cuh"
#include "cuda/fragments.cuh"
#include "cuda/reduce.cuh"

namespace lk::cuda {

struct NormSlabs {
  lk_tensor x;
  lk_tensor weight, factor;  // optional: [width] and [rows / rows_per_factor, width]
  float unit;                // 1 where the factor is absent
  int64_t rows_per_factor;
  float eps;
  bool centered;  // the mean is taken off
};

// Whether it can be done so: x and `rows`, which are read beside it, of one 16-bit type, capability 8.0, neither few
// nor too many columns, `others` aligned. While measuring, addresses say nothing and it may.
bool norm_slabs_fit(const Cuda& cuda, const NormSlabs& norm, std::initializer_list<const lk_tensor*> rows,
                    std::initializer_list<const lk_tensor*> others);

// The same for norm_slabs_forward.
bool norm_slabs_forward_fit(const Cuda& cuda, const NormSlabs& norm, const lk_tensor& added, bool by_row,
                            const lk_tensor& y);

// `added` is the shift, or, `by_row`, is like x; it may be absent.
void norm_slabs_forward(Cuda& cuda, const NormSlabs& norm, const lk_tensor& added, bool by_row, const lk_tensor& y);

// dx is optional, and so is what it is added to, which may be dx itself; sums[0] = weight sum dy xh and sums[1] = sum
// dy, or none of them. Without `centered` there is no sums[1].
void norm_slabs_backward(Cuda& cuda, const NormSlabs& norm, const lk_tensor& dy, const lk_tensor& added,
                         const lk_tensor& dx, const Sums& sums);

namespace norm_slabs {

constexpr int packs = 2, width = vector_width;  // a thread's: so many times eight columns
constexpr int at_once = 2, ahead = 4;           // rows
constexpr int most_threads = 256, most_warps = most_threads / 32;

inline unsigned threads_for(int64_t columns) {
  return static_cast<unsigned>(ceil_div(columns, 32 * packs * width) * 32);
}

// So many that all run at once, of whole pairs of rows. `kernel` has `shared` bytes.
inline Slabs plan(const Cuda& cuda, const void* kernel, unsigned threads, size_t shared, int64_t images, int64_t rows) {
  int resident = 1;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)), "norm");
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, static_cast<int>(threads), shared),
        "occupancy");
  const int64_t wanted = int64_t{cuda.device().multiProcessorCount} * std::max(resident, 1) / images;
  Slabs slabs;
  slabs.rows = ceil_div(ceil_div(rows, std::clamp<int64_t>(wanted, 1, rows)), at_once) * at_once;
  slabs.count = ceil_div(rows, slabs.rows);
  return slabs;
}

template <bool Bf16>
__device__ inline void unpack(const uint4& packed, float (&v)[width]) {
  unpack16(packed, Bf16 ? LK_BF16 : LK_F16, v);
}

// Sum over the warps of a block, of which each eighth lane has one.
__device__ inline float warps_sum(float v) {
#pragma unroll
  for (int offset = most_warps / 2; offset > 0; offset /= 2) v += __shfl_xor_sync(0xffffffffu, v, offset);
  return v;
}

// How many numbers of a row this thread's warp has, and the warp `other` of the block. `counts` is shared.
struct Counts {
  float mine, of_other;
};
__device__ inline Counts count_numbers(float of_thread, int other, float (&counts)[most_warps]) {
  if (threadIdx.x < most_warps) counts[threadIdx.x] = 0;
  __syncthreads();
  const float mine = warp_sum(of_thread);
  if (threadIdx.x % 32 == 0) counts[threadIdx.x / 32] = mine;
  __syncthreads();
  return {mine, counts[other]};
}

// A thread's columns of the rows begin .. end of `tensors` tensors, and those of several rows on their way to its
// places in ring [ahead][tensors][packs][threads], which no other thread reads.
template <int tensors>
struct ColumnsOfRows {
  uint4* ring;
  int64_t begin, end, columns;
  const uint16_t* from[tensors] = {};
  int64_t column[packs] = {};
  bool inside[packs] = {};
  float count = 0;  // of them

  __device__ ColumnsOfRows(uint4* to, int64_t first, int64_t behind, int64_t width_of_row)
      : ring(to), begin(first), end(behind), columns(width_of_row) {
#pragma unroll
    for (int k = 0; k < packs; ++k) {
      column[k] = int64_t{k * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)} * width;
      inside[k] = column[k] < columns;
      count += inside[k] ? width : 0;
    }
  }
  __device__ uint4& at(int64_t row, int tensor, int k) const {
    const int slot = (static_cast<int>((row - begin) % ahead) * tensors + tensor) * packs + k;
    return ring[slot * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)];
  }
  // A group of copies; of rows behind the end it has none.
  __device__ void fetch(int64_t row) const {
#pragma unroll
    for (int k = 0; k < packs; ++k) {
      if (!inside[k] || row >= end) continue;
#pragma unroll
      for (int t = 0; t < tensors; ++t) copy_16_async(&at(row, t, k), from[t] + row * columns + column[k], true);
    }
    commit_copies();
  }
};

}  // namespace norm_slabs

}  // namespace lk::cuda
