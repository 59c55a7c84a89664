// Passes over x [images, rows, width] in which a thread keeps to a few columns of one image and walks down the rows:
// sums over the rows, and elementwise work whose other operand is one row per image.
//
// The rows are cut into slabs so that the blocks fill the device. A sum has three fixed levels: a thread adds every
// blockDim.y-th row of its slab, the block adds its threads of equal column, add_slabs() the slabs.
#pragma once

#include <algorithm>

#include "cuda/await_previous.cuh"
#include "cuda/packs.cuh"

namespace lk::cuda {

struct Columns {
  int64_t images, rows, width;
};

constexpr int most_sums = 2;

// [images, width] each; absent ones are not written.
struct Sums {
  Out y[most_sums];
};

// What a pass does is a type Terms<Pack> with
//   sums                                   how many sums it makes, 0 for none
//   Held                                   what it fetches at a place: an array of packs, one of each tensor
//   State start(image, column)             what stays the same down the rows
//   void fetch(i, held)                    element i of the tensors; apart from
//   void add(state, held, row, i, total)   so that fetches of several rows are in flight; row counts through all images
struct NoState {};

// Rows whose fetches a thread has in flight: as many as 32 registers hold.
template <class Pack, class Held>
constexpr int rows_in_flight = 32 / (Pack::registers * static_cast<int>(std::extent_v<Held>));

struct Slabs {
  int64_t count, rows;
};

template <class Pack, class Terms>
__global__ void __launch_bounds__(block_threads, 2)
    columns_kernel(Terms terms, Columns shape, Slabs slabs, Sums results, float scale) {
  await_previous();
  extern __shared__ float shared[];
  constexpr int width = Pack::width, sums = Terms::sums, slots = sums > 0 ? sums : 1;
  constexpr int batch = rows_in_flight<Pack, typename Terms::Held>;
  const int64_t packs = shape.width / width, items = shape.images * packs;
  const int64_t tiles = (items + blockDim.x - 1) / blockDim.x;
  for (int64_t task = blockIdx.x; task < tiles * slabs.count; task += gridDim.x) {
    const int64_t slab = task / tiles, first = task % tiles * blockDim.x, item = first + threadIdx.x;
    float total[slots][width] = {};
    if (item < items) {
      const int64_t image = item / packs, column = item % packs * width;
      const auto state = terms.start(image, column);
      const int64_t end = min((slab + 1) * slabs.rows, shape.rows), step = blockDim.y;
      for (int64_t row = slab * slabs.rows + threadIdx.y; row < end; row += batch * step) {
        const int64_t place = image * shape.rows + row;
        typename Terms::Held held[batch];
#pragma unroll
        for (int u = 0; u < batch; ++u) {
          if (row + u * step < end) terms.fetch((place + u * step) * shape.width + column, held[u]);
        }
#pragma unroll
        for (int u = 0; u < batch; ++u) {
          if (row + u * step >= end) break;
          const int64_t r = place + u * step;
          terms.add(state, held[u], r, r * shape.width + column, total);
        }
      }
    }
    if constexpr (sums > 0) {
      const int64_t offset = slab * items * width;
      if (blockDim.y == 1) {
#pragma unroll
        for (int s = 0; s < sums; ++s) {
          if (item >= items || results.y[s].data == nullptr) continue;
#pragma unroll
          for (int j = 0; j < width; ++j) total[s][j] *= scale;
          put(results.y[s], offset + item * width, total[s]);
        }
        continue;
      }
      // Of thread (x, y): value j of sum s at ((y * sums + s) * width + j) * stride + x. The stride is not blockDim.x
      // itself, which is often 32: the reads, where j is fastest, would all meet in one bank.
      const int stride = static_cast<int>(blockDim.x) + 1, per_thread = sums * width;
#pragma unroll
      for (int s = 0; s < sums; ++s) {
#pragma unroll
        for (int j = 0; j < width; ++j) {
          shared[(static_cast<int>(threadIdx.y) * per_thread + s * width + j) * stride + threadIdx.x] = total[s][j];
        }
      }
      __syncthreads();
      const int threads = static_cast<int>(blockDim.x * blockDim.y), columns = static_cast<int>(blockDim.x) * width;
#pragma unroll
      for (int s = 0; s < sums; ++s) {
        const Out y = results.y[s];
        if (y.data == nullptr) continue;
        for (int e = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x); e < columns; e += threads) {
          const int64_t at = first * width + e;
          if (at >= items * width) break;
          const float* const mine = shared + (s * width + e % width) * stride + e / width;
          float sum = 0;
          for (int r = 0; r < static_cast<int>(blockDim.y); ++r) sum += mine[r * per_thread * stride];
          store(y, offset + at, scale * sum);
        }
      }
      __syncthreads();
    }
  }
}

constexpr int64_t most_resident = 4;  // blocks per multiprocessor

// The most slabs that plan_columns makes of the shape, whatever the addresses: while a workspace is measured these say
// nothing, so it is this number that scratch memory is taken for.
inline int64_t most_slabs(const Cuda& cuda, const Columns& shape) {
  const int64_t tiles = ceil_div(shape.images * shape.width, 32 * vector_width);
  return std::clamp<int64_t>(cuda.device().multiProcessorCount * most_resident / tiles, 1, shape.rows);
}

struct ColumnsPlan {
  dim3 grid, block;
  size_t shared;
  Slabs slabs;
};

// `kernel` walks columns with `width` of them per thread and `batch` rows in flight, and where a block has several rows
// of threads, each leaves `values` floats per column in shared memory. As many slabs as run at once, but a whole batch
// for every thread.
inline ColumnsPlan plan_columns(const Cuda& cuda, const void* kernel, const Columns& shape, int width, int batch,
                                int values) {
  const int64_t items = shape.images * (shape.width / width), processors = cuda.device().multiProcessorCount;
  const bool many = items >= processors * most_resident * block_threads;  // columns alone fill the device
  const int64_t tiles = ceil_div(items, many ? block_threads : 32);
  const int64_t across = ceil_div(items, tiles);
  const int64_t down = many ? 1 : std::clamp<int64_t>(block_threads / across, 1, shape.rows);
  ColumnsPlan plan;
  plan.block = dim3(static_cast<unsigned>(across), static_cast<unsigned>(down));
  plan.shared = down > 1 ? static_cast<size_t>(down * values * width * (across + 1)) * sizeof(float) : 0;
  int resident = 1;
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, static_cast<int>(across * down), plan.shared),
        "occupancy");
  const int64_t blocks = processors * std::min<int64_t>(resident, most_resident);
  const int64_t count = std::clamp<int64_t>(blocks / tiles, 1, ceil_div(shape.rows, down * batch));
  plan.slabs.rows = ceil_div(shape.rows, count);
  plan.slabs.count = ceil_div(shape.rows, plan.slabs.rows);
  plan.grid = dim3(static_cast<unsigned>(std::min<int64_t>(tiles * plan.slabs.count, 1 << 30)));
  return plan;
}

// y[s] = scale * sum over slabs of partial [sums, slabs, count] (reduce_sum.cu).
void add_slabs(Cuda& cuda, const float* partial, int sums, int64_t slabs, int64_t count, const Sums& y, float scale);

// Runs the pass; its sums, times scale, go to y.
template <class Pack, class Terms>
void walk_columns(Cuda& cuda, const Terms& terms, const Columns& shape, const Sums& y = {}, float scale = 1.0f) {
  const auto kernel = columns_kernel<Pack, Terms>;
  const ColumnsPlan plan = plan_columns(cuda, reinterpret_cast<const void*>(kernel), shape, Pack::width,
                                        rows_in_flight<Pack, typename Terms::Held>, Terms::sums);
  const int64_t count = shape.images * shape.width, most = Terms::sums > 0 ? most_slabs(cuda, shape) : 1;
  float* const partial = most > 1 ? cuda.scratch<float>(Terms::sums * most * count) : nullptr;
  if (Terms::sums == 0 || plan.slabs.count == 1) {
    cuda.launch(kernel, plan.grid, plan.block, plan.shared, terms, shape, plan.slabs, y, scale);
    return;
  }
  Sums results{};
  for (int s = 0; s < Terms::sums; ++s) {
    if (y.y[s].data != nullptr) results.y[s] = {partial + s * plan.slabs.count * count, LK_F32};
  }
  cuda.launch(kernel, plan.grid, plan.block, plan.shared, terms, shape, plan.slabs, results, 1.0f);
  add_slabs(cuda, partial, Terms::sums, plan.slabs.count, count, y, scale);
}

// y [images, width] = scale * sum of x over its rows (reduce_sum.cu).
void sum_columns(Cuda& cuda, const In& x, const Columns& shape, const Out& y, float scale);

}  // namespace lk::cuda
