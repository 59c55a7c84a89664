// Norms of rows [rows, columns] that are wide enough for several warps each, and their gradients, in one pass:
//   y = xh weight (unit + factor) + shift, xh = (x - mean) / sqrt(variance + eps), or x / sqrt(mean(x^2) + eps)
// where factor and shift have a row for every `rows_per_factor` rows.
//
// A block goes over a slab of rows under one factor. Its threads are groups, each of which takes every so many'th row
// and waits at a barrier of its own. A thread keeps to eight columns: what stays the same down the rows stays in
// registers. Rows come by cp.async to places of the thread's own, several ahead. The next row's mean is summed with
// what is summed of this one, so that the variance is around the mean itself and a row costs one barrier. It is the
// number of instructions that bounds this, some 15 to 25 for each element, and how many warps take turns: sums of
// 16-bit values are left to the matrix instruction, and a single local variable that leaves its register costs a third.
#pragma once

#include "cuda/column_sums.cuh"
#include "cuda/fragments.cuh"

namespace lk::cuda {

struct NormSlabs {
  lk_tensor x;
  lk_tensor weight, factor;  // optional: [width] and [rows / rows_per_factor, width]
  float unit;                // 1 where the factor is absent
  int64_t rows_per_factor;
  float eps;
  bool centered;  // the mean is taken off
};

// Whether it can be done so: x and `rows`, which are read or written beside it, of one 16-bit type, capability 8.0,
// neither few nor too many columns, `others` aligned. While measuring, addresses say nothing and it may.
bool norm_slabs_fit(const Cuda& cuda, const NormSlabs& norm, std::initializer_list<const lk_tensor*> rows,
                    std::initializer_list<const lk_tensor*> others = {});

// `added` is the shift, or, `by_row`, is like x; it may be absent.
void norm_slabs_forward(Cuda& cuda, const NormSlabs& norm, const lk_tensor& added, bool by_row, const lk_tensor& y);

// dx is optional, and so is what it is added to, which may be dx itself; sums[0] = weight sum dy xh and sums[1] = sum
// dy, or none of them. Without `centered` there is no sums[1].
void norm_slabs_backward(Cuda& cuda, const NormSlabs& norm, const lk_tensor& dy, const lk_tensor& added,
                         const lk_tensor& dx, const Sums& sums);

namespace norm_slabs {

constexpr int width = vector_width;  // columns of a thread
constexpr int ahead = 4;             // rows that have a place
constexpr int most_threads = 512, most_warps = most_threads / 32, most_groups = 8;

inline int64_t threads_for(int64_t columns) { return ceil_div(columns, 32 * width) * 32; }

// Bytes of shared memory that a kernel may ask for beside its own.
inline int64_t shared_room(const Cuda& cuda) {
  return static_cast<int64_t>(cuda.device().sharedMemPerBlockOptin) - (8 << 10);
}

struct Plan {
  dim3 grid, block;
  size_t shared;
  int64_t slabs;  // of an image
};

// Groups of as many threads as a row wants, up to `threads` in a block, and as many blocks as run at once. `places`:
// of 16 bytes, of each thread.
inline Plan plan(const Cuda& cuda, const void* kernel, int64_t threads, int places, int64_t images, int64_t rows,
                 int64_t columns) {
  Plan plan;
  const int64_t group = threads_for(columns), bytes = static_cast<int64_t>(sizeof(uint4)) * places * group;
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

// Four times a lane's share of the sum of what the lanes of a warp have of a row, each eight values of 16 bits: the
// matrix instruction adds up those of four lanes, which all get them (fragments.cuh).
template <bool Bf16>
__device__ inline float sum_of_four_lanes(const uint4& packed) {
  constexpr uint32_t ones = Bf16 ? 0x3f803f80u : 0x3c003c00u;
  float sums[4] = {};
  multiply_add<Bf16>(sums, {packed.x, packed.y, packed.z, packed.w}, {ones, ones});
  return sums[0] + sums[2];
}

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

// A thread's part of the rows of its group. Places in a tensor count from the block's first row.
struct GroupRows {
  int threads, groups, group, thread, lane;
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

}  // namespace norm_slabs

}  // namespace lk::cuda
