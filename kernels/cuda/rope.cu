// Rotation of pairs of x [B, S, H, D] by angles given as cos and sin [S, D/2] or [B, S, D/2]:
//   (a, b) -> (a cos - b sin, a sin + b cos); the inverse turns by the negative angle.
// Tables as wide as D have an angle for each number: (a cos_a - b sin_a, a sin_b + b cos_b); the inverse is the
// transpose, which has each number's sine beside the other number.
//
// A thread keeps to its pairs of one position and goes over a few of the heads, which share the angles.
#include "cuda/await_previous.cuh"
#include "cuda/line_places.cuh"
#include "cuda/packs.cuh"
#include "cuda/rotation.cuh"

namespace lk::cuda {

namespace {

constexpr int heads_in_flight = 2;  // of a thread

struct Rotation {
  In x;
  const float *cos, *sin;
  float sign;
  int64_t positions, length;
  int heads, half, groups;  // groups of threads with every groups'th head
  bool per_image;           // the angles
  int width;                // of the tables
  Out y;
};

// What a thread does: heads head and head + groups, as far as there are so many, of one position.
struct Task {
  int64_t position;
  int head, part;  // part: of a head
  bool exists;
};

// A block is (threads of a head, groups, positions), without a division.
__device__ inline Task task_of(const Rotation& p, int per_head) {
  Task t;
  t.position = int64_t{blockIdx.x} * blockDim.z + threadIdx.z;
  t.head = static_cast<int>(blockIdx.y * blockDim.y + threadIdx.y);
  t.part = static_cast<int>(blockIdx.z * blockDim.x + threadIdx.x);
  t.exists = t.position < p.positions && t.head < p.groups && t.part < per_head;
  return t;
}

__device__ inline int64_t angles_of(const Rotation& p, int64_t position) {
  if (!p.per_image && position >= p.length) position -= quotient(position, p.length) * p.length;
  return position * p.width;
}

// Where in a position's angles those of the second numbers of pairs are, and the sines of either.
struct Places {
  int cos_b, sin_a, sin_b;
};
template <bool wide>
__device__ inline Places places_of(const Rotation& p) {
  if constexpr (wide) {
    return p.sign < 0 ? Places{p.half, p.half, 0} : Places{p.half, 0, p.half};
  } else {
    return {0, 0, 0};
  }
}

// Pairs (2i, 2i + 1): 4 pairs of each head.
template <class Pack>
__global__ void __launch_bounds__(block_threads) interleaved_kernel(Rotation p) {
  await_previous();
  const Task t = task_of(p, p.half / 4);
  if (!t.exists) return;
  const int step = p.groups * 2 * p.half;
  const int64_t base = (t.position * p.heads + t.head) * 2 * p.half + t.part * 8;
  Pack held[heads_in_flight];
#pragma unroll
  for (int h = 0; h < heads_in_flight; ++h) {
    if (t.head + h * p.groups < p.heads) held[h] = Pack::fetch(p.x, base + h * step);
  }
  const int64_t angle = angles_of(p, t.position) + t.part * 4;
  float cos[4], sin[4];
  load_floats(p.cos + angle, cos);
  load_floats(p.sin + angle, sin, p.sign);
#pragma unroll
  for (int h = 0; h < heads_in_flight; ++h) {
    if (t.head + h * p.groups >= p.heads) break;
    float v[8];
    held[h].unpack(p.x.dtype, v);
#pragma unroll
    for (int k = 0; k < 4; ++k) rotate(v[2 * k], v[2 * k + 1], cos[k], sin[k]);
    put(p.y, base + h * step, v);
  }
}

// Pairs (i, i + D/2): 8 pairs of each head.
template <class Pack, bool wide>
__global__ void __launch_bounds__(block_threads) halves_kernel(Rotation p) {
  await_previous();
  const Task t = task_of(p, p.half / 8);
  if (!t.exists) return;
  const int step = p.groups * 2 * p.half;
  const int64_t base = (t.position * p.heads + t.head) * 2 * p.half + t.part * 8;
  Pack first[heads_in_flight], second[heads_in_flight];
#pragma unroll
  for (int h = 0; h < heads_in_flight; ++h) {
    if (t.head + h * p.groups >= p.heads) continue;
    first[h] = Pack::fetch(p.x, base + h * step);
    second[h] = Pack::fetch(p.x, base + h * step + p.half);
  }
  const int64_t angle = angles_of(p, t.position) + t.part * 8;
  float cos[8], sin[8], cos_b[8], sin_b[8];
  const Places places = places_of<wide>(p);
  load_floats(p.cos + angle, cos);
  load_floats(p.sin + angle + places.sin_a, sin, p.sign);
  if constexpr (wide) {
    load_floats(p.cos + angle + places.cos_b, cos_b);
    load_floats(p.sin + angle + places.sin_b, sin_b, p.sign);
  }
#pragma unroll
  for (int h = 0; h < heads_in_flight; ++h) {
    if (t.head + h * p.groups >= p.heads) break;
    float a[8], b[8];
    first[h].unpack(p.x.dtype, a);
    second[h].unpack(p.x.dtype, b);
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      if constexpr (wide) {
        rotate(a[k], b[k], cos[k], sin[k], cos_b[k], sin_b[k]);
      } else {
        rotate(a[k], b[k], cos[k], sin[k]);
      }
    }
    put(p.y, base + h * step, a);
    put(p.y, base + h * step + p.half, b);
  }
}

// One pair of each head, whatever the layout: elements `spread` apart, the first of pair i at i * stride.
template <bool wide>
__global__ void __launch_bounds__(block_threads) pairs_kernel(Rotation p, int stride, int spread) {
  await_previous();
  const Task t = task_of(p, p.half);
  if (!t.exists) return;
  const int64_t angle = angles_of(p, t.position) + t.part;
  const Places places = places_of<wide>(p);
  const float cos = p.cos[angle], sin = p.sign * p.sin[angle + places.sin_a];
  const float cos_b = p.cos[angle + places.cos_b], sin_b = p.sign * p.sin[angle + places.sin_b];
  for (int head = t.head; head < p.heads; head += p.groups) {
    const int64_t at = (t.position * p.heads + head) * 2 * p.half + t.part * stride;
    float a = load(p.x, at), b = load(p.x, at + spread);
    rotate(a, b, cos, sin, cos_b, sin_b);
    store(p.y, at, a);
    store(p.y, at + spread, b);
  }
}

}  // namespace

void rope(Cuda& cuda, const lk_rope_params& p) {
  const int64_t length = p.x.dims[1], heads = p.x.dims[2], half = p.x.dims[3] / 2, positions = p.x.dims[0] * length;
  const int64_t groups = ceil_div(heads, heads_in_flight);
  const Rotation r{in(p.x),
                   static_cast<const float*>(p.cos.data),
                   static_cast<const float*>(p.sin.data),
                   p.inverse ? -1.0f : 1.0f,
                   positions,
                   length,
                   static_cast<int>(heads),
                   static_cast<int>(half),
                   static_cast<int>(groups),
                   p.cos.rank == 3,
                   static_cast<int>(p.cos.dims[p.cos.rank - 1]),
                   out(p.y)};
  const bool wide = r.width != r.half;
  // `per_head` threads of a head.
  const auto launch = [&](auto kernel, int64_t per_head, auto... more) {
    const int64_t x = std::min<int64_t>(per_head, block_threads), across = ceil_div(groups, block_threads / x);
    constexpr int64_t most_deep = 64;  // of a block
    const int64_t y = ceil_div(groups, across), z = std::min(block_threads / (x * y), most_deep);
    cuda.launch(kernel,
                dim3(static_cast<unsigned>(ceil_div(positions, z)), static_cast<unsigned>(ceil_div(groups, y)),
                     static_cast<unsigned>(ceil_div(per_head, x))),
                dim3(static_cast<unsigned>(x), static_cast<unsigned>(y), static_cast<unsigned>(z)), 0, r, more...);
  };
  // What must be a multiple of 8 for packs not to straddle heads or halves.
  const int64_t unit = p.interleaved ? 2 * half : half;
  with_pack({in(p.x)}, {in(p.cos), in(p.sin), in(p.y)}, unit, [&](auto kind) {
    using Pack = decltype(kind);
    if constexpr (Pack::width == 1) {
      launch(wide ? pairs_kernel<true> : pairs_kernel<false>, half, p.interleaved ? 2 : 1,
             static_cast<int>(p.interleaved ? 1 : half));
    } else if (p.interleaved) {
      launch(interleaved_kernel<Pack>, half / 4);
    } else {
      launch(wide ? halves_kernel<Pack, true> : halves_kernel<Pack, false>, half / 8);
    }
  });
}

}  // namespace lk::cuda
