// What the gradients of wide norms with sums down their columns are made of (norm_slabs.cu).
//
// A block's threads are groups, each of which takes every so many'th row of an image and waits at a barrier of its own.
// A thread keeps to two chunks of eight columns: what stays the same down the rows stays in registers. Rows come by
// cp.async to places of the thread's own, two or three ahead: more on the way at once make memory slower. The next
// row's mean is summed with what is summed of this one, so that the variance is around the mean itself and a row costs
// one barrier. It is the number of instructions that bounds this, some 20 for each element, and how many warps take
// turns: sums of 16-bit values are left to the matrix instruction, what a row costs once is shared by two chunks, and a
// single local variable that leaves its register costs a third.
#pragma once

#include "cuda/wide_norm.cuh"

namespace lk::cuda::norm_slabs_parts {

using namespace wide_norm;

constexpr int chunks = 2;  // of a thread, as many threads apart
constexpr int most_threads = most_columns / (chunks * width), most_warps = most_threads / 32, most_groups = 8;

// total += the eight values of each lane, by products with a matrix that picks them: two instructions for eight sums.
template <bool Bf16>
class Adder {
 public:
  __device__ explicit Adder(int lane) {
    constexpr uint32_t one = Bf16 ? 0x3f80u : 0x3c00u;
    const int row = 2 * (lane % 4), column = lane / 4;
    pick_ = row == column ? one : row + 1 == column ? one << 16 : 0;
  }
  __device__ void add(const uint4& packed, float (&total)[2][4]) const {
    multiply_add<Bf16>(total[0], {packed.x, packed.y, packed.z, packed.w}, {pick_, 0});
    multiply_add<Bf16>(total[1], {packed.x, packed.y, packed.z, packed.w}, {0, pick_});
  }

 private:
  uint32_t pick_;
};

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

// A thread's part of the rows of its group. All groups of an image take its rows in turn, so that what is read at a
// time lies together. A warp has chunks that lie together, of which its lanes take turns, so that both of a thread's
// are at a constant distance. Places in a tensor count from the image's first row.
struct GroupRows {
  int threads, groups, group, thread, lane;
  int columns, column;  // column: the first of the thread
  int image;
  int64_t image_at;
  int first, step;  // place of the first row's part, and from row to row
  int count;        // rows of the group

  __device__ GroupRows(int slabs, int rows, int columns_of_row)
      : threads(static_cast<int>(blockDim.x)),
        groups(static_cast<int>(blockDim.y)),
        group(static_cast<int>(threadIdx.y)),
        thread(static_cast<int>(threadIdx.x)),
        lane(thread % 32),
        columns(columns_of_row),
        column((thread / 32 * chunks * 32 + lane) * width),
        image(static_cast<int>(blockIdx.x) / slabs),
        image_at(int64_t{image} * rows * columns) {
    const int all = slabs * groups, mine = (static_cast<int>(blockIdx.x) - image * slabs) * groups + group;
    first = mine * columns + column;
    step = all * columns;
    count = max(rows - mine + all - 1, 0) / all;
  }
  __device__ bool inside(int chunk) const { return column + chunk * 32 * width < columns; }
  __device__ void barrier() const { asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "r"(threads) : "memory"); }
};

// What the warps of a group tell each other: sums of `count` values. Rows take turns with two places.
template <int count>
struct Exchange {
  float of_warp[2][count][most_warps];

  __device__ void clear(const GroupRows& rows) {
    float* const all = &of_warp[0][0][0];
    for (int i = rows.thread; i < 2 * count * most_warps; i += rows.threads) all[i] = 0;
    rows.barrier();
  }
  // v becomes the sums over the group.
  __device__ void sum(float (&v)[count], int turn, const GroupRows& rows) {
    constexpr int lanes = 32 / count;
    const int lane = rows.lane;
    const float mine = warp_sums(v, lane);
    if (lane % lanes == 0) of_warp[turn][lane / lanes][rows.thread / 32] = mine;
    rows.barrier();
    const float* const from = &of_warp[turn][0][0];
    float sum = 0;
    if constexpr (count == 1) {
      sum = from[lane % most_warps];
    } else if constexpr (count == 2) {
      sum = from[lane];
    } else {
      static_assert(count == 4);
      const float2 two = reinterpret_cast<const float2*>(from)[lane];
      sum = two.x + two.y;
    }
#pragma unroll
    for (int offset = (count == 1 ? most_warps : lanes) / 2; offset > 0; offset /= 2)
      sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    if constexpr (count == 1) {
      v[0] = sum;
    } else {
#pragma unroll
      for (int j = 0; j < count; ++j) v[j] = __shfl_sync(0xffffffffu, sum, j * lanes);
    }
  }
};

}  // namespace lk::cuda::norm_slabs_parts
