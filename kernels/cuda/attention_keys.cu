// What surrounds cuDNN's attention: lengths as it wants them, results that nobody sees, and copies of keys and values
// with the seen ones first and every head repeated for its group.
#include <algorithm>

#include "cuda/attention.h"
#include "cuda/await_previous.cuh"
#include "cuda/types.cuh"

namespace lk::cuda {

namespace {

__global__ void write_lengths_kernel(const int32_t* lengths, int64_t batch, int32_t queries, int32_t keys,
                                     int64_t spacing, int32_t* query_lengths, int32_t* key_lengths) {
  await_previous();
  for (int64_t b = threadIdx.x; b < batch; b += blockDim.x) {
    query_lengths[b * spacing] = queries;
    key_lengths[b * spacing] = lengths != nullptr ? min(max(lengths[b], 1), keys) : keys;
  }
}

__global__ void blank_rows_kernel(const int32_t* lengths, int64_t batch, int64_t rows, int64_t width,
                                  bool rows_are_keys, float value, Out y) {
  await_previous();
  const int64_t parts = gridDim.x / batch, item = blockIdx.x / parts, part = blockIdx.x % parts;
  const int64_t length = lengths[item];
  const int64_t kept = rows_are_keys ? min(max(length, int64_t{0}), rows) : length > 0 ? rows : 0;
  for (int64_t i = kept * width + part * blockDim.x + threadIdx.x; i < rows * width; i += parts * blockDim.x) {
    store(y, item * rows * width + i, value);
  }
}

// A block for each item. Seen keys get the places 0, 1, ... in their order, the others those that follow.
__global__ void place_keys_kernel(const int32_t* mask, const int32_t* lengths, int64_t keys, int32_t* places,
                                  int32_t* counts) {
  await_previous();
  __shared__ int32_t warp_counts[block_threads / 32];
  const int64_t item = blockIdx.x;
  const int64_t length = lengths != nullptr ? min(max(static_cast<int64_t>(lengths[item]), int64_t{0}), keys) : keys;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const auto seen = [&](int64_t key) { return key < length && mask[item * keys + key] != 0; };
  int32_t count = 0;
  for (int64_t first = 0; first < keys; first += block_threads) count += __syncthreads_count(seen(first + threadIdx.x));
  if (threadIdx.x == 0) counts[item] = count;
  int32_t seen_before = 0;  // keys of earlier rounds
  for (int64_t first = 0; first < keys; first += block_threads) {
    const int64_t key = first + threadIdx.x;
    const bool here = seen(key);
    const unsigned in_warp = __ballot_sync(0xffffffffu, here);
    if (lane == 0) warp_counts[warp] = __popc(in_warp);
    __syncthreads();
    int32_t before = seen_before + __popc(in_warp & ((1u << lane) - 1u));
    for (int w = 0; w < warp; ++w) before += warp_counts[w];
    if (key < keys) places[item * keys + key] = here ? before : count + static_cast<int32_t>(key) - before;
    seen_before += __syncthreads_count(here);  // and the counts have been read
  }
}

struct Copies {
  const int32_t *places, *counts;           // nullptr: every key is seen and stays where it is
  int64_t batch, keys, heads, group, runs;  // runs of 8 elements in a head
};

// Where key number `row` of all items has its copy, and whether it is seen.
__device__ int64_t copied_row(const Copies& c, int64_t row, bool& seen) {
  seen = true;
  if (c.places == nullptr) return row;
  const int64_t item = row / c.keys, place = c.places[row];
  seen = place < c.counts[item];
  return item * c.keys + place;
}

// x [B, Sk, heads, D] -> y [B, Sk, heads * group, D], in 16 bit.
__global__ void copy_keys_kernel(Copies c, const uint4* x, uint4* y) {
  await_previous();
  const int64_t heads = c.heads * c.group, count = c.batch * c.keys * heads * c.runs;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    const int64_t run = i % c.runs, head = i / c.runs % heads, row = i / (c.runs * heads);
    bool seen;
    const int64_t to = copied_row(c, row, seen);
    y[(to * heads + head) * c.runs + run] =
        seen ? x[(row * c.heads + head / c.group) * c.runs + run] : make_uint4(0, 0, 0, 0);
  }
}

// dy [B, Sk, heads * group, D] -> dx [B, Sk, heads, D]: sums over the group, 0 for keys that are not seen.
__global__ void collect_key_gradient_kernel(Copies c, In dy, Out dx) {
  await_previous();
  const int64_t count = c.batch * c.keys * c.heads * c.runs;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    const int64_t run = i % c.runs, head = i / c.runs % c.heads, row = i / (c.runs * c.heads);
    bool seen;
    const int64_t from = (copied_row(c, row, seen) * c.heads + head) * c.group;
    float sum[vector_width] = {};
    for (int64_t g = 0; seen && g < c.group; ++g) {
      float v[vector_width];
      load8(dy, ((from + g) * c.runs + run) * vector_width, v);
#pragma unroll
      for (int k = 0; k < vector_width; ++k) sum[k] += v[k];
    }
    store8(dx, i * vector_width, sum);
  }
}

Copies copies(const lk_tensor& x, int64_t group, const KeyPlaces& places) {  // x: with a head for each group
  return {places.places, places.counts, x.dims[0], x.dims[1], x.dims[2], group, x.dims[3] / vector_width};
}

}  // namespace

void write_lengths(Cuda& cuda, const int32_t* lengths, int64_t batch, int64_t queries, int64_t keys, int64_t spacing,
                   int32_t* query_lengths, int32_t* key_lengths) {
  cuda.launch(write_lengths_kernel, 1, block_threads, 0, lengths, batch, static_cast<int32_t>(queries),
              static_cast<int32_t>(keys), spacing, query_lengths, key_lengths);
}

void blank_rows(Cuda& cuda, const int32_t* lengths, int64_t batch, int64_t rows, int64_t width, bool rows_are_keys,
                float value, void* y, lk_dtype dtype) {
  const int64_t parts = std::min<int64_t>(ceil_div(rows * width, block_threads), 256);
  cuda.launch(blank_rows_kernel, dim3(static_cast<unsigned>(batch * parts)), block_threads, 0, lengths, batch, rows,
              width, rows_are_keys, value, Out{y, dtype});
}

KeyPlaces place_keys(Cuda& cuda, const lk_tensor& mask, const lk_tensor& lengths) {
  const int64_t batch = mask.dims[0], keys = mask.dims[1];
  const KeyPlaces y{cuda.scratch<int32_t>(batch * keys), cuda.scratch<int32_t>(batch)};
  cuda.launch(place_keys_kernel, dim3(static_cast<unsigned>(batch)), block_threads, 0,
              static_cast<const int32_t*>(mask.data), static_cast<const int32_t*>(lengths.data), keys, y.places,
              y.counts);
  return y;
}

lk_tensor copy_keys(Cuda& cuda, const lk_tensor& x, int64_t group, const KeyPlaces& places) {
  lk_tensor y = x;
  y.dims[2] *= group;
  y.data = cuda.scratch<uint16_t>(numel(y));
  cuda.launch(copy_keys_kernel, grid_for(cuda, numel(y) / vector_width), block_threads, 0, copies(x, group, places),
              static_cast<const uint4*>(x.data), static_cast<uint4*>(y.data));
  return y;
}

void collect_key_gradient(Cuda& cuda, const lk_tensor& dy, int64_t group, const KeyPlaces& places,
                          const lk_tensor& dx) {
  cuda.launch(collect_key_gradient_kernel, grid_for(cuda, numel(dx) / vector_width), block_threads, 0,
              copies(dx, group, places), in(dy), out(dx));
}

}  // namespace lk::cuda
