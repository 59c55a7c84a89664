// Rotation of pairs of x [B, S, H, D] by angles given as cos and sin [S, D/2] or [B, S, D/2]:
//   (a, b) -> (a cos - b sin, a sin + b cos); the inverse turns by the negative angle.
//
// A thread keeps to its pairs of one position and goes over some of the heads, which share the angles.
#include "cuda/await_previous.cuh"
#include "cuda/packs.cuh"
#include "cuda/rotation.cuh"

namespace lk::cuda {

namespace {

// Heads per thread.
constexpr int heads_in_flight = 4;

struct Rotation {
  In x;
  const float *cos, *sin;
  float sign;
  int64_t positions, length, heads, half;
  bool per_image;  // the angles
  Out y;
};

// What thread `item` does: `per_head` threads share a head, `groups` a position's heads.
struct Task {
  int64_t position, head, part;
  int count;  // of heads
};

__device__ inline Task task_of(const Rotation& p, int64_t item, int64_t per_head, int64_t groups) {
  const int64_t position = item / (per_head * groups), rest = item % (per_head * groups);
  const int64_t head = rest / per_head * heads_in_flight;
  return {position, head, rest % per_head, static_cast<int>(min(p.heads - head, int64_t{heads_in_flight}))};
}

__device__ inline int64_t angles_of(const Rotation& p, int64_t position) {
  return (p.per_image ? position : position % p.length) * p.half;
}

// Pairs (2i, 2i + 1): 4 pairs of each head.
template <class Pack>
__global__ void __launch_bounds__(block_threads) interleaved_kernel(Rotation p, int64_t groups) {
  await_previous();
  const int64_t per_head = p.half / 4, item = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (item >= p.positions * groups * per_head) return;
  const Task t = task_of(p, item, per_head, groups);
  const int64_t depth = 2 * p.half, base = (t.position * p.heads + t.head) * depth + t.part * 8;
  Pack held[heads_in_flight];
#pragma unroll
  for (int h = 0; h < heads_in_flight; ++h) {
    if (h < t.count) held[h] = Pack::fetch(p.x, base + h * depth);
  }
  const int64_t angle = angles_of(p, t.position) + t.part * 4;
  float cos[4], sin[4];
  load_floats(p.cos + angle, cos);
  load_floats(p.sin + angle, sin, p.sign);
#pragma unroll
  for (int h = 0; h < heads_in_flight; ++h) {
    if (h >= t.count) break;
    float v[8];
    held[h].unpack(p.x.dtype, v);
#pragma unroll
    for (int k = 0; k < 4; ++k) rotate(v[2 * k], v[2 * k + 1], cos[k], sin[k]);
    put(p.y, base + h * depth, v);
  }
}

// Pairs (i, i + D/2): 8 pairs of each head.
template <class Pack>
__global__ void __launch_bounds__(block_threads) halves_kernel(Rotation p, int64_t groups) {
  await_previous();
  const int64_t per_head = p.half / 8, item = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (item >= p.positions * groups * per_head) return;
  const Task t = task_of(p, item, per_head, groups);
  const int64_t depth = 2 * p.half, base = (t.position * p.heads + t.head) * depth + t.part * 8;
  Pack first[heads_in_flight], second[heads_in_flight];
#pragma unroll
  for (int h = 0; h < heads_in_flight; ++h) {
    if (h >= t.count) continue;
    first[h] = Pack::fetch(p.x, base + h * depth);
    second[h] = Pack::fetch(p.x, base + h * depth + p.half);
  }
  const int64_t angle = angles_of(p, t.position) + t.part * 8;
  float cos[8], sin[8];
  load_floats(p.cos + angle, cos);
  load_floats(p.sin + angle, sin, p.sign);
#pragma unroll
  for (int h = 0; h < heads_in_flight; ++h) {
    if (h >= t.count) break;
    float a[8], b[8];
    first[h].unpack(p.x.dtype, a);
    second[h].unpack(p.x.dtype, b);
#pragma unroll
    for (int k = 0; k < 8; ++k) rotate(a[k], b[k], cos[k], sin[k]);
    put(p.y, base + h * depth, a);
    put(p.y, base + h * depth + p.half, b);
  }
}

// One pair of each head, whatever the layout: elements `spread` apart, the first of pair i at i * stride.
__global__ void __launch_bounds__(block_threads)
    pairs_kernel(Rotation p, int64_t groups, int64_t stride, int64_t spread) {
  await_previous();
  const int64_t item = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (item >= p.positions * groups * p.half) return;
  const Task t = task_of(p, item, p.half, groups);
  const int64_t angle = angles_of(p, t.position) + t.part;
  const float cos = p.cos[angle], sin = p.sign * p.sin[angle];
  for (int h = 0; h < t.count; ++h) {
    const int64_t at = (t.position * p.heads + t.head + h) * 2 * p.half + t.part * stride;
    float a = load(p.x, at), b = load(p.x, at + spread);
    rotate(a, b, cos, sin);
    store(p.y, at, a);
    store(p.y, at + spread, b);
  }
}

}  // namespace

void rope(Cuda& cuda, const lk_rope_params& p) {
  const int64_t length = p.x.dims[1], heads = p.x.dims[2], half = p.x.dims[3] / 2, positions = p.x.dims[0] * length;
  const Rotation r{in(p.x),
                   static_cast<const float*>(p.cos.data),
                   static_cast<const float*>(p.sin.data),
                   p.inverse ? -1.0f : 1.0f,
                   positions,
                   length,
                   heads,
                   half,
                   p.cos.rank == 3,
                   out(p.y)};
  const int64_t groups = ceil_div(heads, heads_in_flight);
  const auto grid = [&](int64_t per_head) {
    return dim3(static_cast<unsigned>(ceil_div(positions * groups * per_head, block_threads)));
  };
  // What must be a multiple of 8 for packs not to straddle heads or halves.
  const int64_t unit = p.interleaved ? 2 * half : half;
  with_pack({in(p.x)}, {in(p.cos), in(p.sin), in(p.y)}, unit, [&](auto kind) {
    using Pack = decltype(kind);
    if constexpr (Pack::width == 1) {
      const int64_t stride = p.interleaved ? 2 : 1, spread = p.interleaved ? 1 : half;
      cuda.launch(pairs_kernel, grid(half), block_threads, 0, r, groups, stride, spread);
    } else if (p.interleaved) {
      cuda.launch(interleaved_kernel<Pack>, grid(half / 4), block_threads, 0, r, groups);
    } else {
      cuda.launch(halves_kernel<Pack>, grid(half / 8), block_threads, 0, r, groups);
    }
  });
}

}  // namespace lk::cuda
