// y = scale * sum of x over the axes where y has 1.
//
// Neighbouring axes that are all kept or all summed are joined; each summed group is then one pass
// [outer, reduced, inner] -> [outer, inner], from the last group to the first, with float32 between passes: down the
// columns (column_sums.cuh), or along the rows where inner is 1. Sums are trees of short runs: a thread's error grows
// with the few values it adds and not with their number in all.
#include <vector>

#include "cuda/await_previous.cuh"
#include "cuda/axes.cuh"
#include "cuda/column_sums.cuh"
#include "cuda/elements.cuh"
#include "cuda/reduce.cuh"

namespace lk::cuda {

namespace {

template <class Pack>
struct PlainSum {
  static constexpr int sums = 1;
  using Held = Pack[1];
  In x;
  __device__ NoState start(int64_t, int64_t) const { return {}; }
  __device__ void fetch(int64_t i, Held& held) const { held[0] = Pack::fetch(x, i); }
  __device__ void add(NoState, const Held& held, int64_t, int64_t, float (&total)[1][Pack::width]) const {
    float v[Pack::width];
    held[0].unpack(x.dtype, v);
#pragma unroll
    for (int j = 0; j < Pack::width; ++j) total[0][j] += v[j];
  }
};

constexpr int slab_lanes = 32;

__global__ void add_slabs_kernel(const float* partial, int64_t slabs, int64_t count, Sums results, float scale) {
  await_previous();
  __shared__ float shared[slab_lanes][32];
  const Out y = results.y[blockIdx.y];
  if (y.data == nullptr) return;
  const int64_t column = int64_t{blockIdx.x} * 32 + threadIdx.x;
  const float* const mine = partial + blockIdx.y * slabs * count + column;
  float sum = 0;
  if (column < count) {
#pragma unroll 4
    for (int64_t slab = threadIdx.y; slab < slabs; slab += slab_lanes) sum += mine[slab * count];
  }
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= count) return;
  for (int k = 1; k < slab_lanes; ++k) sum += shared[k][threadIdx.x];
  store(y, column, scale * sum);
}

// x [rows, width] -> y [rows, runs]: run r of a row is its elements from r * run on. `lanes` threads share one run: a
// power of two up to 32, or the block.
template <class Pack>
__global__ void __launch_bounds__(block_threads)
    rows_kernel(In x, int64_t rows, int64_t width, int64_t run, int64_t runs, int lanes, Out y, float scale) {
  await_previous();
  __shared__ float shared[32];
  constexpr int in_flight = 4, pack = Pack::width;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const int64_t task = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / lanes;
  float total[in_flight] = {};
  if (task < rows * runs) {
    const int64_t begin = task % runs * run, end = min(begin + run, width), base = task / runs * width;
    const int64_t step = int64_t{lanes} * pack;
    for (int64_t i = begin + lane * pack; i < end; i += in_flight * step) {
      Pack held[in_flight];
#pragma unroll
      for (int u = 0; u < in_flight; ++u) {
        if (i + u * step < end) held[u] = Pack::fetch(x, base + i + u * step);
      }
#pragma unroll
      for (int u = 0; u < in_flight; ++u) {
        if (i + u * step >= end) break;
        float v[pack];
        held[u].unpack(x.dtype, v);
        total[u] += pairwise_sum(v);
      }
    }
  }
  float sum = (total[0] + total[1]) + (total[2] + total[3]);
  if (lanes > 32) {
    sum = block_sum(sum, shared);
  } else {
    for (int offset = lanes / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  }
  if (lane == 0 && task < rows * runs) store(y, task, scale * sum);
}

void launch_rows(Cuda& cuda, const In& x, int64_t rows, int64_t width, int64_t run, const Out& y, float scale) {
  with_pack({x}, {}, width, [&](auto kind) {
    using Pack = decltype(kind);
    const int64_t runs = ceil_div(width, run), packs = ceil_div(run, Pack::width);
    int lanes = 1;
    while (lanes < 32 && lanes < packs) lanes *= 2;
    if (packs > 8 * 32) lanes = block_threads;
    const dim3 grid(static_cast<unsigned>(ceil_div(rows * runs, block_threads / lanes)));
    cuda.launch(rows_kernel<Pack>, grid, block_threads, 0, x, rows, width, run, runs, lanes, y, scale);
  });
}

// x [rows, width] -> y [rows]. Rows too few to fill the device are cut into runs, whose sums are then rows themselves.
void sum_rows(Cuda& cuda, const In& x, int64_t rows, int64_t width, const Out& y, float scale) {
  constexpr int64_t shortest = 4096;
  const int64_t wanted = int64_t{cuda.device().multiProcessorCount} * 8;
  if (rows >= wanted || width <= 2 * shortest) {
    launch_rows(cuda, x, rows, width, width, y, scale);
    return;
  }
  const int64_t count = std::min(ceil_div(wanted, rows), ceil_div(width, shortest));
  const int64_t run = ceil_div(ceil_div(width, count), vector_width) * vector_width, runs = ceil_div(width, run);
  float* const partial = cuda.scratch<float>(rows * runs);
  launch_rows(cuda, x, rows, width, run, {partial, LK_F32}, 1.0f);
  launch_rows(cuda, {partial, LK_F32}, rows, runs, runs, y, scale);
}

struct Group {
  int64_t size;
  bool summed;
};

std::vector<Group> joined_groups(const lk_reduce_sum_params& p) {
  std::vector<Group> groups;
  for (int32_t i = 0; i < p.x.rank; ++i) {
    if (p.x.dims[i] == 1) continue;
    const bool summed = p.y.dims[i] == 1;
    if (!groups.empty() && groups.back().summed == summed) {
      groups.back().size *= p.x.dims[i];
    } else {
      groups.push_back({p.x.dims[i], summed});
    }
  }
  return groups;
}

// Exact modulo 2^32, so that the order in which threads add is of no consequence.
__global__ void sum_integers_kernel(const int32_t* x, Axes<1> axes, int32_t* y, int64_t count) {
  await_previous();
  for (int64_t i = thread_index(); i < count; i += thread_count()) {
    int64_t at[1];
    axes.locate(i, axes.rank, at);
    atomicAdd(y + at[0], x[i]);
  }
}

void sum_integers(Cuda& cuda, const lk_reduce_sum_params& p) {
  const int64_t count = numel(p.x);
  cuda.fill_zero(p.y.data, bytes_of(p.y));
  cuda.launch(sum_integers_kernel, grid_for(cuda, count), block_threads, 0, static_cast<const int32_t*>(p.x.data),
              broadcast_axes<1>(p.x, {&p.y}), static_cast<int32_t*>(p.y.data), count);
}

}  // namespace

void add_slabs(Cuda& cuda, const float* partial, int sums, int64_t slabs, int64_t count, const Sums& y, float scale) {
  const dim3 grid(static_cast<unsigned>(ceil_div(count, 32)), static_cast<unsigned>(sums));
  cuda.launch(add_slabs_kernel, grid, dim3(32, slab_lanes), 0, partial, slabs, count, y, scale);
}

void sum_columns(Cuda& cuda, const In& x, const Columns& shape, const Out& y, float scale) {
  with_pack({x}, {{y.data, y.dtype}}, shape.width, [&](auto kind) {
    using Pack = decltype(kind);
    walk_columns<Pack>(cuda, PlainSum<Pack>{x}, shape, {{y}}, scale);
  });
}

void reduce_sum(Cuda& cuda, const lk_reduce_sum_params& p) {
  if (p.x.dtype == LK_I32) return sum_integers(cuda, p);
  const std::vector<Group> groups = joined_groups(p);
  size_t left = 0;
  for (const Group& group : groups) left += group.summed ? 1 : 0;
  if (left == 0) {  // y = scale * x: columns of one row
    sum_columns(cuda, in(p.x), {1, 1, numel(p.x)}, out(p.y), p.scale);
    return;
  }
  In x = in(p.x);
  int64_t outer = numel(p.x), inner = 1;
  for (auto group = groups.rbegin(); left > 0; ++group) {
    outer /= group->size;
    if (!group->summed) {
      inner *= group->size;
      continue;
    }
    const bool last = --left == 0;
    const Out y = last ? out(p.y) : Out{cuda.scratch<float>(outer * inner), LK_F32};
    const float scale = last ? p.scale : 1.0f;
    if (inner == 1) {
      sum_rows(cuda, x, outer, group->size, y, scale);
    } else {
      sum_columns(cuda, x, {outer, group->size, inner}, y, scale);
    }
    x = {y.data, y.dtype};
  }
}

}  // namespace lk::cuda
