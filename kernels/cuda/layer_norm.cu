// Layer norm over the last axis: y = xh w + b, xh = (x - mean) rstd, rstd = 1 / sqrt(var + eps).
// Backward, with g = dy w:  dx = rstd (g - mean(g) - xh mean(g xh)),  dw = sum dy xh,  db = sum dy.
//
// A warp sums its part of a row around its own mean; the parts are then joined by Chan's formula, so the variance is as
// accurate as in two passes while a block waits for one barrier only.
#include "cuda/await_previous.cuh"
#include "cuda/column_sums.cuh"
#include "cuda/layer_norm.cuh"
#include "cuda/row_norm.cuh"
#include "cuda/wide_norm.cuh"

namespace lk::cuda {

namespace {

struct Rows {
  In x, weight;
  float unit;
  int64_t rows, width, rows_per_weight;
  float eps;
  int lanes;
};

// The factor of each column: 1 without a weight.
template <int width>
__device__ inline void factors(const Rows& p, const RowSpan& span, int64_t column, float (&w)[width]) {
  const int64_t place = span.row / p.rows_per_weight * p.width + column;
  load_or(p.weight, place, 1.0f - p.unit, w);
#pragma unroll
  for (int j = 0; j < width; ++j) w[j] += p.unit;
}

// g becomes dy w.
template <int width>
__device__ inline void weigh(const Rows& p, const RowSpan& span, int64_t column, float (&g)[width]) {
  if (p.weight.data == nullptr) return;
  float w[width];
  factors(p, span, column, w);
#pragma unroll
  for (int j = 0; j < width; ++j) g[j] *= w[j];
}

struct Moments {
  float mean, rstd;
};

// In place of the gradient where there is none.
struct NoGradient {
  template <int width>
  __device__ void operator()(int, int64_t, float (&)[width]) const {}
};

// Of one row, and with gradient(k, column, g) also sums[0] = sum g and sums[1] = sum g xh.
template <class Pack, int held, class Gradient>
__device__ inline Moments row_moments(const Row<Pack, held>& x, const RowSpan& span, float eps, float* shared,
                                      const Gradient& gradient, float (&sums)[2]) {
  constexpr bool with_gradient = !std::is_same_v<Gradient, NoGradient>;
  float count = 0, sum = 0;
  each_pack<Pack, held>(span, [&](int k, int64_t column) {
    float v[Pack::width];
    x.get(k, column, v);
    sum += pairwise_sum(v);
    count += Pack::width;
  });
  count = lanes_sum(count, span.lanes);
  float mean = count > 0 ? lanes_sum(sum, span.lanes) / count : 0.0f;
  float squares = 0, sum_g = 0, sum_gd = 0;  // d = x - mean
  each_pack<Pack, held>(span, [&](int k, int64_t column) {
    float v[Pack::width], g[Pack::width];
    x.get(k, column, v);
    gradient(k, column, g);
#pragma unroll
    for (int j = 0; j < Pack::width; ++j) {
      const float d = v[j] - mean;
      squares += d * d;
      if constexpr (with_gradient) {
        sum_g += g[j];
        sum_gd += g[j] * d;
      }
    }
  });
  squares = lanes_sum(squares, span.lanes);
  if constexpr (with_gradient) {
    sum_g = lanes_sum(sum_g, span.lanes);
    sum_gd = lanes_sum(sum_gd, span.lanes);
  }
  const float width = static_cast<float>(span.width);
  if (span.lanes > 32) {
    if constexpr (with_gradient) {
      float parts[5] = {count, mean, squares, sum_g, sum_gd};
      exchange_warps(parts, shared);
      mean = warp_sum(parts[0] * parts[1]) / width;
      const float shift = parts[1] - mean;
      squares = warp_sum(parts[2] + parts[0] * shift * shift);
      sum_g = warp_sum(parts[3]);
      sum_gd = warp_sum(parts[4] + parts[3] * shift);
    } else {
      float parts[3] = {count, mean, squares};
      exchange_warps(parts, shared);
      mean = warp_sum(parts[0] * parts[1]) / width;
      const float shift = parts[1] - mean;
      squares = warp_sum(parts[2] + parts[0] * shift * shift);
    }
  }
  const float rstd = 1.0f / sqrtf(squares / width + eps);
  sums[0] = sum_g;
  sums[1] = sum_gd * rstd;
  return {mean, rstd};
}

template <class Pack>
__global__ void __launch_bounds__(row_threads) layer_norm_kernel(Rows p, In bias, Out y) {
  await_previous();
  __shared__ float shared[3 * 32];
  const RowSpan span = row_span(p.rows, p.width, p.lanes);
  const Row<Pack> x(p.x, span);
  float unused[2];
  const Moments m = row_moments(x, span, p.eps, shared, NoGradient{}, unused);
  if (!span.exists) return;
  each_pack<Pack>(span, [&](int k, int64_t column) {
    float v[Pack::width], w[Pack::width], b[Pack::width];
    x.get(k, column, v);
    factors(p, span, column, w);
    load_or(bias, span.row / p.rows_per_weight * p.width + column, 0.0f, b);
#pragma unroll
    for (int j = 0; j < Pack::width; ++j) v[j] = (v[j] - m.mean) * m.rstd * w[j] + b[j];
    put(y, span.row * p.width + column, v);
  });
}

// g becomes dx; sums as of row_moments.
template <int width>
__device__ inline void input_gradient(const float (&x)[width], const Moments& m, const float (&sums)[2], float count,
                                      float (&g)[width]) {
  const float mean_g = sums[0] / count, mean_gxh = sums[1] / count;
#pragma unroll
  for (int j = 0; j < width; ++j) g[j] = m.rstd * (g[j] - mean_g - (x[j] - m.mean) * m.rstd * mean_gxh);
}

// dx may be absent; moments [rows] is NULL unless a later pass wants them.
template <class Pack>
__global__ void __launch_bounds__(row_threads)
    layer_norm_dx_kernel(Rows p, In dy_rows, In added, Out dx, Moments* moments) {
  await_previous();
  __shared__ float shared[5 * 32];
  const RowSpan span = row_span(p.rows, p.width, p.lanes);
  const Row<Pack> x(p.x, span), dy(dy_rows, span);
  const auto gradient = [&](int k, int64_t column, float(&g)[Pack::width]) {
    dy.get(k, column, g);
    weigh(p, span, column, g);
  };
  float sums[2];
  const Moments m = row_moments(x, span, p.eps, shared, gradient, sums);
  if (!span.exists) return;
  if (moments != nullptr && span.lane == 0) moments[span.row] = m;
  if (dx.data == nullptr) return;
  each_pack<Pack>(span, [&](int k, int64_t column) {
    float v[Pack::width], g[Pack::width];
    x.get(k, column, v);
    gradient(k, column, g);
    input_gradient(v, m, sums, static_cast<float>(p.width), g);
    load_or(added, span.row * p.width + column, 0.0f, v);
#pragma unroll
    for (int j = 0; j < Pack::width; ++j) g[j] += v[j];
    put(dx, span.row * p.width + column, g);
  });
}

// sum dy xh, sum dy
template <class Pack>
struct WeightSums {
  static constexpr int sums = 2;
  using Held = Pack[2];
  In dy, x;
  const Moments* moments;
  __device__ NoState start(int64_t, int64_t) const { return {}; }
  __device__ void fetch(int64_t i, Held& held) const {
    held[0] = Pack::fetch(dy, i);
    held[1] = Pack::fetch(x, i);
  }
  __device__ void add(NoState, const Held& held, int64_t row, int64_t, float (&total)[2][Pack::width]) const {
    float g[Pack::width], v[Pack::width];
    held[0].unpack(dy.dtype, g);
    held[1].unpack(x.dtype, v);
    const Moments m = moments[row];
#pragma unroll
    for (int j = 0; j < Pack::width; ++j) {
      total[0][j] += g[j] * ((v[j] - m.mean) * m.rstd);
      total[1][j] += g[j];
    }
  }
};

Rows rows_of(const LayerNorm& norm, int lanes) {
  const int64_t width = norm.x.dims[norm.x.rank - 1];
  return {in(norm.x), in(norm.weight), norm.unit, numel(norm.x) / width, width, norm.rows_per_weight, norm.eps, lanes};
}

WideNorm wide_of(const LayerNorm& norm) {
  return {norm.x, {}, norm.weight, present(norm.weight) ? norm.unit : 1.0f, norm.rows_per_weight, norm.eps, true};
}

}  // namespace

void layer_norm_rows(Cuda& cuda, const LayerNorm& norm, const lk_tensor& y) {
  const int64_t width = norm.x.dims[norm.x.rank - 1], rows = numel(norm.x) / width;
  if (const WideNorm wide = wide_of(norm); wide_norm_fits(cuda, wide, {&y}, {&norm.bias})) {
    norm_rows(cuda, wide, norm.bias, false, y);
    return;
  }
  with_rows({in(norm.x)}, {in(norm.weight), in(norm.bias), in(y)}, rows, width, [&](const RowPlan& plan, auto pack) {
    cuda.launch(layer_norm_kernel<decltype(pack)>, plan.grid, plan.block, 0, rows_of(norm, plan.lanes), in(norm.bias),
                out(y));
  });
}

void layer_norm_rows_backward(Cuda& cuda, const LayerNorm& norm, const lk_tensor& dy, const lk_tensor& added,
                              const lk_tensor& dx, const lk_tensor& dweight, const lk_tensor& dbias) {
  const int64_t width = norm.x.dims[norm.x.rank - 1], rows = numel(norm.x) / width;
  const Columns columns{rows / norm.rows_per_weight, norm.rows_per_weight, width};
  const Sums results{{out(dweight), out(dbias)}};
  const WideNorm wide = wide_of(norm);
  if ((present(dx) || present(dweight)) && wide_norm_fits(cuda, wide, {&dy, &added, &dx})) {
    wide_norm_backward(cuda, wide, dy, added, dx, results);
    if (!cuda.measuring()) return;  // the other way's memory counts as well
  }
  Moments* const moments = present(dweight) ? cuda.scratch<Moments>(rows) : nullptr;
  if (present(dx) || present(dweight)) {
    with_rows({in(norm.x), in(dy)}, {in(norm.weight), in(added), in(dx)}, rows, width,
              [&](const RowPlan& plan, auto pack) {
                cuda.launch(layer_norm_dx_kernel<decltype(pack)>, plan.grid, plan.block, 0, rows_of(norm, plan.lanes),
                            in(dy), in(added), out(dx), moments);
              });
  }
  if (!present(dweight)) {
    if (present(dbias)) sum_columns(cuda, in(dy), columns, out(dbias), 1.0f);
    return;
  }
  with_pack({in(dy), in(norm.x)}, {in(dweight), in(dbias)}, width, [&](auto kind) {
    using Pack = decltype(kind);
    walk_columns<Pack>(cuda, WeightSums<Pack>{in(dy), in(norm.x), moments}, columns, results);
  });
}

void layer_norm(Cuda& cuda, const lk_layer_norm_params& p) {
  const int64_t rows = numel(p.x) / p.x.dims[p.x.rank - 1];
  layer_norm_rows(cuda, {p.x, p.weight, p.bias, 0.0f, rows, p.eps}, p.y);
}

void layer_norm_backward(Cuda& cuda, const lk_layer_norm_backward_params& p) {
  const int64_t rows = numel(p.x) / p.x.dims[p.x.rank - 1];
  layer_norm_rows_backward(cuda, {p.x, p.weight, {}, 0.0f, rows, p.eps}, p.dy, p.added, p.dx, p.dweight, p.dbias);
}

}  // namespace lk::cuda
