// Group norm of x [N, P, C] (P: all axes between): statistics over P and the channels of a group.
//   y = xh w + b, xh = (x - mean) rstd
// Backward, with g = dy w:  dx = rstd (g - mean(g) - xh mean(g xh)),  dw = sum dy xh,  db = sum dy.
//
// Channels are the fastest axis, so every pass goes down columns (column_sums.cuh): Welford's recurrence gives each
// column of each slab its mean and its sum of squares about that mean; these are joined per group by Chan's formula,
// the counts being known, in two passes over the partial results.
#include "cuda/await_previous.cuh"
#include "cuda/column_sums.cuh"
#include "cuda/reduce.cuh"

namespace lk::cuda {

namespace {

// mean and sum of squares about it, each [slabs, images, width].
struct Partial {
  float *mean, *squares;
};

// Values that thread y of `step` has of a slab with `rows` rows.
__device__ inline float share(int64_t rows, int64_t y, int64_t step) {
  return static_cast<float>(rows > y ? (rows - y + step - 1) / step : 0);
}

template <class Pack>
__global__ void __launch_bounds__(block_threads) moments_kernel(In x, Columns shape, Slabs slabs, Partial partial) {
  await_previous();
  extern __shared__ float shared[];
  constexpr int width = Pack::width, batch = rows_in_flight<Pack, Pack[1]>;
  const int64_t packs = shape.width / width, items = shape.images * packs;
  const int64_t tiles = (items + blockDim.x - 1) / blockDim.x, step = blockDim.y;
  for (int64_t task = blockIdx.x; task < tiles * slabs.count; task += gridDim.x) {
    const int64_t slab = task / tiles, first = task % tiles * blockDim.x, item = first + threadIdx.x;
    const int64_t begin = slab * slabs.rows, end = min(begin + slabs.rows, shape.rows);
    float mean[width] = {}, squares[width] = {};
    if (item < items) {
      const int64_t base = item / packs * shape.rows * shape.width + item % packs * width;
      float count = 0;
      for (int64_t row = begin + threadIdx.y; row < end; row += batch * step) {
        Pack held[batch];
#pragma unroll
        for (int u = 0; u < batch; ++u) {
          if (row + u * step < end) held[u] = Pack::fetch(x, base + (row + u * step) * shape.width);
        }
#pragma unroll
        for (int u = 0; u < batch; ++u) {
          if (row + u * step >= end) break;
          float v[width];
          held[u].unpack(x.dtype, v);
          const float share_of_mean = 1.0f / ++count;
#pragma unroll
          for (int j = 0; j < width; ++j) {
            const float d = v[j] - mean[j];
            mean[j] += d * share_of_mean;
            squares[j] += d * (v[j] - mean[j]);
          }
        }
      }
    }
    const int64_t offset = slab * items * width;
    if (blockDim.y == 1) {
      if (item >= items) continue;
      put({partial.mean, LK_F32}, offset + item * width, mean);
      put({partial.squares, LK_F32}, offset + item * width, squares);
      continue;
    }
    // Of thread (x, y): value j of its means and, after all of those, of its squares at (y * width + j) * stride + x.
    const int stride = static_cast<int>(blockDim.x) + 1;
    float* const shared_squares = shared + static_cast<int>(blockDim.y) * width * stride;
#pragma unroll
    for (int j = 0; j < width; ++j) {
      const int at = (static_cast<int>(threadIdx.y) * width + j) * stride + static_cast<int>(threadIdx.x);
      shared[at] = mean[j];
      shared_squares[at] = squares[j];
    }
    __syncthreads();
    const int threads = static_cast<int>(blockDim.x * blockDim.y), columns = static_cast<int>(blockDim.x) * width;
    for (int e = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x); e < columns; e += threads) {
      if (first * width + e >= items * width) break;
      const int mine = e % width * stride + e / width, next = width * stride;
      float joined = 0, about = 0;
      for (int y = 0; y < static_cast<int>(step); ++y) joined += share(end - begin, y, step) * shared[mine + y * next];
      joined /= static_cast<float>(end - begin);
      for (int y = 0; y < static_cast<int>(step); ++y) {
        const float d = shared[mine + y * next] - joined;
        about += shared_squares[mine + y * next] + share(end - begin, y, step) * d * d;
      }
      const int64_t at = offset + first * width + e;
      partial.mean[at] = joined;
      partial.squares[at] = about;
    }
    __syncthreads();
  }
}

struct Moments {
  float mean, rstd;
};

// A block per group of an image: moments [images, groups].
__global__ void __launch_bounds__(block_threads)
    join_kernel(Partial partial, Columns shape, Slabs slabs, int64_t group_width, float eps, Moments* moments) {
  await_previous();
  __shared__ float shared[32];
  const int64_t first = int64_t{blockIdx.x} * group_width, stride = shape.images * shape.width;
  const float total = static_cast<float>(shape.rows) * static_cast<float>(group_width);
  const auto each_part = [&](const auto& body) {
    for (int64_t i = threadIdx.x; i < slabs.count * group_width; i += blockDim.x) {
      const int64_t slab = i / group_width;
      const int64_t rows = min(slabs.rows, shape.rows - slab * slabs.rows);
      body(slab * stride + first + i % group_width, static_cast<float>(rows));
    }
  };
  float mean = 0, squares = 0;
  each_part([&](int64_t at, float rows) { mean += partial.mean[at] * (rows / total); });
  mean = block_sum(mean, shared);
  each_part([&](int64_t at, float rows) {
    const float d = partial.mean[at] - mean;
    squares += partial.squares[at] + rows * d * d;
  });
  squares = block_sum(squares, shared);
  if (threadIdx.x == 0) moments[blockIdx.x] = {mean, 1.0f / sqrtf(squares / total + eps)};
}

// Where the moments, and later the means of the gradient, of a column are.
struct Groups {
  int64_t count, width;
  __device__ int64_t of(int64_t image, int64_t column) const { return image * count + column / width; }
};

template <class Pack>
struct Apply {
  static constexpr int sums = 0;
  using Held = Pack[1];
  struct State {
    float mean[Pack::width], factor[Pack::width], shift[Pack::width];
  };
  In x, weight, bias;
  const Moments* moments;
  Groups groups;
  Out y;
  __device__ State start(int64_t image, int64_t column) const {
    State s;
    load_or(weight, column, 1.0f, s.factor);
    load_or(bias, column, 0.0f, s.shift);
#pragma unroll
    for (int j = 0; j < Pack::width; ++j) {
      const Moments m = moments[groups.of(image, column + j)];
      s.mean[j] = m.mean;
      s.factor[j] *= m.rstd;
    }
    return s;
  }
  __device__ void fetch(int64_t i, Held& held) const { held[0] = Pack::fetch(x, i); }
  __device__ void add(const State& s, const Held& held, int64_t, int64_t i, float (&)[1][Pack::width]) const {
    float v[Pack::width];
    held[0].unpack(x.dtype, v);
#pragma unroll
    for (int j = 0; j < Pack::width; ++j) v[j] = (v[j] - s.mean[j]) * s.factor[j] + s.shift[j];
    put(y, i, v);
  }
};

// sum dy xh, sum dy of every image
template <class Pack>
struct GradientSums {
  static constexpr int sums = 2;
  using Held = Pack[2];
  struct State {
    float mean[Pack::width], rstd[Pack::width];
  };
  In dy, x;
  const Moments* moments;
  Groups groups;
  __device__ State start(int64_t image, int64_t column) const {
    State s;
#pragma unroll
    for (int j = 0; j < Pack::width; ++j) {
      const Moments m = moments[groups.of(image, column + j)];
      s.mean[j] = m.mean;
      s.rstd[j] = m.rstd;
    }
    return s;
  }
  __device__ void fetch(int64_t i, Held& held) const {
    held[0] = Pack::fetch(dy, i);
    held[1] = Pack::fetch(x, i);
  }
  __device__ void add(const State& s, const Held& held, int64_t, int64_t, float (&total)[2][Pack::width]) const {
    float g[Pack::width], v[Pack::width];
    held[0].unpack(dy.dtype, g);
    held[1].unpack(x.dtype, v);
#pragma unroll
    for (int j = 0; j < Pack::width; ++j) {
      total[0][j] += g[j] * ((v[j] - s.mean[j]) * s.rstd[j]);
      total[1][j] += g[j];
    }
  }
};

// mean(g xh) and mean(g) of a group, from sums [2][images, width] of dy xh and dy. A warp per group.
__global__ void gradient_means_kernel(const float* sums, In weight, int64_t all, int64_t image_width, Groups groups,
                                      float rows, float2* means) {
  await_previous();
  const int64_t group = blockIdx.x, first = group * groups.width;
  float product = 0, sum = 0;
  for (int64_t i = threadIdx.x; i < groups.width; i += 32) {
    const int64_t at = first + i;
    const float w = weight.data != nullptr ? load(weight, at % image_width) : 1.0f;
    product += w * sums[at];
    sum += w * sums[all + at];
  }
  product = warp_sum(product);
  sum = warp_sum(sum);
  const float total = rows * static_cast<float>(groups.width);
  if (threadIdx.x == 0) means[group] = make_float2(product / total, sum / total);
}

// dx = rstd (g - mean(g) - xh mean(g xh)), regrouped to  dy a - (x - mean) b - c  with a = rstd w,
// b = rstd^2 mean(g xh), c = rstd mean(g).
template <class Pack>
struct InputGradient {
  static constexpr int sums = 0;
  using Held = Pack[2];
  struct State {
    float mean[Pack::width], a[Pack::width], b[Pack::width], c[Pack::width];
  };
  In dy, x, weight;
  const Moments* moments;
  const float2* means;
  Groups groups;
  Out dx;
  __device__ State start(int64_t image, int64_t column) const {
    State s;
    load_or(weight, column, 1.0f, s.a);
#pragma unroll
    for (int j = 0; j < Pack::width; ++j) {
      const int64_t group = groups.of(image, column + j);
      const Moments m = moments[group];
      const float2 mean_g = means[group];
      s.mean[j] = m.mean;
      s.a[j] *= m.rstd;
      s.b[j] = m.rstd * m.rstd * mean_g.x;
      s.c[j] = m.rstd * mean_g.y;
    }
    return s;
  }
  __device__ void fetch(int64_t i, Held& held) const {
    held[0] = Pack::fetch(dy, i);
    held[1] = Pack::fetch(x, i);
  }
  __device__ void add(const State& s, const Held& held, int64_t, int64_t i, float (&)[1][Pack::width]) const {
    float g[Pack::width], v[Pack::width];
    held[0].unpack(dy.dtype, g);
    held[1].unpack(x.dtype, v);
#pragma unroll
    for (int j = 0; j < Pack::width; ++j) g[j] = g[j] * s.a[j] - (v[j] - s.mean[j]) * s.b[j] - s.c[j];
    put(dx, i, g);
  }
};

Columns columns_of(const lk_tensor& x) {
  const int64_t images = x.dims[0], width = x.dims[x.rank - 1];
  return {images, numel(x) / (images * width), width};
}

template <class Pack>
const Moments* group_moments(Cuda& cuda, const lk_tensor& x, int64_t groups, float eps) {
  const Columns shape = columns_of(x);
  const auto kernel = moments_kernel<Pack>;
  const ColumnsPlan plan =
      plan_columns(cuda, reinterpret_cast<const void*>(kernel), shape, Pack::width, rows_in_flight<Pack, Pack[1]>, 2);
  const int64_t count = most_slabs(cuda, shape) * shape.images * shape.width;
  const Partial partial{cuda.scratch<float>(count), cuda.scratch<float>(count)};
  Moments* const moments = cuda.scratch<Moments>(shape.images * groups);
  cuda.launch(kernel, plan.grid, plan.block, plan.shared, in(x), shape, plan.slabs, partial);
  cuda.launch(join_kernel, dim3(static_cast<unsigned>(shape.images * groups)), block_threads, 0, partial, shape,
              plan.slabs, shape.width / groups, eps, moments);
  return moments;
}

}  // namespace

void group_norm(Cuda& cuda, const lk_group_norm_params& p) {
  const Columns shape = columns_of(p.x);
  const Groups groups{p.groups, shape.width / p.groups};
  with_pack({in(p.x)}, {in(p.weight), in(p.bias), in(p.y)}, shape.width, [&](auto kind) {
    using Pack = decltype(kind);
    const Moments* const moments = group_moments<Pack>(cuda, p.x, p.groups, p.eps);
    walk_columns<Pack>(cuda, Apply<Pack>{in(p.x), in(p.weight), in(p.bias), moments, groups, out(p.y)}, shape);
  });
}

void group_norm_backward(Cuda& cuda, const lk_group_norm_backward_params& p) {
  if (!present(p.dx) && !present(p.dweight) && !present(p.dbias)) return;
  const Columns shape = columns_of(p.x);
  const Groups groups{p.groups, shape.width / p.groups};
  const int64_t all = shape.images * shape.width;
  float* const sums = cuda.scratch<float>(2 * all);
  with_pack({in(p.dy), in(p.x)}, {in(p.weight), in(p.dx)}, shape.width, [&](auto kind) {
    using Pack = decltype(kind);
    const Moments* const moments = group_moments<Pack>(cuda, p.x, p.groups, p.eps);
    walk_columns<Pack>(cuda, GradientSums<Pack>{in(p.dy), in(p.x), moments, groups}, shape,
                       {{{sums, LK_F32}, {sums + all, LK_F32}}});
    if (!present(p.dx)) return;
    float2* const means = cuda.scratch<float2>(shape.images * p.groups);
    cuda.launch(gradient_means_kernel, dim3(static_cast<unsigned>(shape.images * p.groups)), 32, 0, sums, in(p.weight),
                all, shape.width, groups, static_cast<float>(shape.rows), means);
    walk_columns<Pack>(cuda, InputGradient<Pack>{in(p.dy), in(p.x), in(p.weight), moments, means, groups, out(p.dx)},
                       shape);
  });
  const Columns by_image{1, shape.images, shape.width};
  if (present(p.dweight)) sum_columns(cuda, {sums, LK_F32}, by_image, out(p.dweight), 1.0f);
  if (present(p.dbias)) sum_columns(cuda, {sums + all, LK_F32}, by_image, out(p.dbias), 1.0f);
}

}  // namespace lk::cuda
