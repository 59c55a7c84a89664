// How norm_slabs_forward.cu shares out rows: a block goes over a slab of rows under one factor. Its threads are groups,
// each of which takes every so many'th row, two at a time, and waits at a barrier of its own. A thread keeps to eight
// columns: what stays the same down the rows stays in registers. Rows come by cp.async to places of the thread's own,
// several ahead.
#pragma once

#include <algorithm>

#include "cuda/fragments.cuh"
#include "cuda/types.cuh"

namespace lk::cuda::norm_groups {

constexpr int width = vector_width;    // columns of a thread
constexpr int at_once = 2, ahead = 3;  // rows of a group that share a barrier; pairs of them that have a place
constexpr int most_threads = 512, most_warps = most_threads / 32, most_groups = 8;

inline int64_t threads_for(int64_t columns) { return ceil_div(columns, 32 * width) * 32; }

// Bytes of shared memory that a kernel may ask for beside its own.
inline int64_t shared_room(const Cuda& cuda) {
  return static_cast<int64_t>(cuda.device().sharedMemPerBlockOptin) - (12 << 10);
}

// Whether rows of so many columns fit, with `tensors` of them, and their places can be counted in 32 bits.
inline bool fits(const Cuda& cuda, int tensors, int64_t rows, int64_t columns) {
  const int64_t bytes = static_cast<int64_t>(sizeof(uint4)) * tensors * ahead * at_once * threads_for(columns);
  return bytes <= shared_room(cuda) && rows * columns <= int64_t{1} << 30;
}

struct Plan {
  dim3 grid, block;
  size_t shared;
  int64_t slabs;  // of an image
};

// Groups of as many threads as a row wants, up to `threads` in a block, and as many blocks as run at once.
inline Plan plan(const Cuda& cuda, const void* kernel, int64_t threads, int tensors, int64_t images, int64_t rows,
                 int64_t columns) {
  Plan plan;
  const int64_t group = threads_for(columns);
  const int64_t bytes = static_cast<int64_t>(sizeof(uint4)) * tensors * ahead * at_once * group;
  const int64_t most = std::min({threads / group, shared_room(cuda) / bytes, int64_t{most_groups}});
  const int64_t groups = std::max<int64_t>(most, 1);
  plan.block = dim3(static_cast<unsigned>(group), static_cast<unsigned>(groups));
  plan.shared = static_cast<size_t>(groups * bytes);
  int resident = 1;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(plan.shared)),
        "norm");
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, static_cast<int>(groups * group), plan.shared),
        "occupancy");
  const int64_t blocks = int64_t{cuda.device().multiProcessorCount} * std::max(resident, 1);
  plan.slabs = std::clamp<int64_t>(blocks / images, 1, ceil_div(rows, groups));
  plan.grid = dim3(static_cast<unsigned>(images * plan.slabs));
  return plan;
}

template <bool Bf16>
__device__ inline void unpack(const uint4& packed, float (&v)[width]) {
  unpack16(packed, Bf16 ? LK_BF16 : LK_F16, v);
}

template <bool Bf16>
__device__ inline uint4 packed(const float (&v)[width]) {
  return make_uint4(pack<Bf16>(v[0], v[1]), pack<Bf16>(v[2], v[3]), pack<Bf16>(v[4], v[5]), pack<Bf16>(v[6], v[7]));
}

// The sums over a warp of several values at once, a power of two: of value lane / (32 / count). Each step halves the
// values that a lane has, so that all together take hardly more steps than one.
template <int count>
__device__ inline float warp_sums(float (&v)[count], int lane) {
  int offset = 16;
#pragma unroll
  for (int left = count / 2; left >= 1; left /= 2, offset /= 2) {
    const bool upper = (lane & offset) != 0;
#pragma unroll
    for (int j = 0; j < left; ++j) {
      const float kept = upper ? v[j + left] : v[j], sent = upper ? v[j] : v[j + left];
      v[j] = kept + __shfl_xor_sync(0xffffffffu, sent, offset);
    }
  }
  float sum = v[0];
#pragma unroll
  for (offset = 16 / count; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  return sum;
}

// What the warps of a group tell each other: sums of `count` values. Barriers take turns with two places.
template <int count>
struct Exchange {
  float of_warp[2][count][most_warps];

  __device__ void clear(int thread, int threads) {
    float* const all = &of_warp[0][0][0];
    for (int i = thread; i < 2 * count * most_warps; i += threads) all[i] = 0;
  }
  // v becomes the sums over the group.
  __device__ void sum(float (&v)[count], int turn, int group, int threads, int warp, int lane) {
    constexpr int lanes = 32 / count, each = count * most_warps / 32;
    const float mine = warp_sums(v, lane);
    if (lane % lanes == 0) of_warp[turn][lane / lanes][warp] = mine;
    asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "r"(threads) : "memory");
    const float* const from = &of_warp[turn][0][0] + lane * each;
    float sum = 0;
    if constexpr (each == 1) {
      sum = from[0];
    } else {
      static_assert(each == 2);
      const float2 two = *reinterpret_cast<const float2*>(from);
      sum = two.x + two.y;
    }
#pragma unroll
    for (int offset = lanes / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
#pragma unroll
    for (int j = 0; j < count; ++j) v[j] = __shfl_sync(0xffffffffu, sum, j * lanes);
  }
};

// A thread's part of the rows of its group. Places in a tensor count from the block's first row.
struct GroupRows {
  int threads, groups, group, thread, warp, lane;
  int column, columns;
  bool inside;
  int64_t image, block;  // block: element of its first row
  int first, step;       // place of the first row's part, and from row to row
  int count;             // rows of the group

  __device__ GroupRows(int64_t slabs, int64_t rows, int64_t columns_of_row)
      : threads(static_cast<int>(blockDim.x)),
        groups(static_cast<int>(blockDim.y)),
        group(static_cast<int>(threadIdx.y)),
        thread(static_cast<int>(threadIdx.x)),
        warp(thread / 32),
        lane(thread % 32),
        column(thread * width),
        columns(static_cast<int>(columns_of_row)),
        inside(column < columns),
        image(blockIdx.x / slabs) {
    const int64_t slab = blockIdx.x % slabs, begin = rows * slab / slabs, end = rows * (slab + 1) / slabs;
    block = (image * rows + begin) * columns;
    first = group * columns + column;
    step = groups * columns;
    count = (static_cast<int>(end - begin) - group + groups - 1) / groups;
  }
  // Two rows on their way to [at_once][threads] in shared memory, of which `left` are there; others are 0, and columns
  // beyond the last. from: the block's first row.
  __device__ void fetch(uint4* to, const uint16_t* from, int at, int left) const {
#pragma unroll
    for (int i = 0; i < at_once; ++i) copy_16_async(to + i * threads, from + at + i * step, inside && left > i);
  }
};

}  // namespace lk::cuda::norm_groups
