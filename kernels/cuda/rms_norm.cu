// RMS norm over the last axis C of x [M, C]: y = x r w, r = 1 / sqrt(mean(x^2) + eps).
// Backward, with g = dy w:  dx = r (g - x r^2 mean(g x)),  dw = sum dy x r.
//
// Narrow rows, which are heads, have kernels of their own: a lane has eight values, so that the loads of a warp are of
// whole lines, and many threads with a load or two each come nearest to what memory can do. Wide rows of 16 bits, as of
// all heads of q, are normed as those that are modulated (wide_norm.cuh), unless they lie in lines or w has a gradient.
#include "cuda/await_previous.cuh"
#include "cuda/column_sums.cuh"
#include "cuda/dense.h"
#include "cuda/line_places.cuh"
#include "cuda/row_norm.cuh"
#include "cuda/wide_norm.cuh"

namespace lk::cuda {

namespace {

struct Rows {
  In x, weight;
  LinePlaces x_lines;
  int64_t rows, width;
  float eps, per_column;  // 1 / width
  int lanes;
};

__device__ inline float inverse_rms(float squares, const Rows& p) {
  return 1.0f / sqrtf(squares / static_cast<float>(p.width) + p.eps);
}

template <class Pack>
__global__ void __launch_bounds__(row_threads) rms_norm_kernel(Rows p, Out y, LinePlaces y_lines) {
  await_previous();
  __shared__ float shared[32];
  const RowSpan span = row_span(p.rows, p.width, p.lanes);
  const Row<Pack> x(p.x, span, p.x_lines.row(span.row));
  float squares = 0;
  each_pack<Pack>(span, [&](int k, int64_t column) {
    float v[Pack::width];
    x.get(k, column, v);
#pragma unroll
    for (int j = 0; j < Pack::width; ++j) squares += v[j] * v[j];
  });
  squares = row_sum(squares, span.lanes, shared);
  if (!span.exists) return;
  const float r = inverse_rms(squares, p);
  const int64_t to = y_lines.row(span.row);
  each_pack<Pack>(span, [&](int k, int64_t column) {
    float v[Pack::width], w[Pack::width];
    x.get(k, column, v);
    load_or(p.weight, column, 1.0f, w);
#pragma unroll
    for (int j = 0; j < Pack::width; ++j) v[j] = v[j] * r * w[j];
    put(y, to + column, v);
  });
}

constexpr int widest_head = 32 * vector_width;

// A lane's part of a narrow row.
template <int Lanes>
struct HeadPart {
  int64_t row;
  int column;
  bool inside;
  __device__ explicit HeadPart(const Rows& p)
      : row(int64_t{blockIdx.x} * (block_threads / Lanes) + threadIdx.x / Lanes),
        column(static_cast<int>(threadIdx.x) % Lanes * vector_width),
        inside(row < p.rows && column < p.width) {}
  // 0 where there is nothing.
  __device__ Eight16 fetch(const In& x, int64_t row_at) const {
    return inside ? Eight16::fetch(x, row_at + column) : Eight16{};
  }
  __device__ void weigh(const In& weight, float (&v)[vector_width]) const {
    if (weight.data == nullptr || !inside) return;
    float w[vector_width];
    load8(weight, column, w);
#pragma unroll
    for (int j = 0; j < vector_width; ++j) v[j] *= w[j];
  }
};

template <lk_dtype Type, int Lanes>
__global__ void __launch_bounds__(block_threads) rms_heads_kernel(Rows p, Out y, LinePlaces y_lines) {
  await_previous();
  const HeadPart<Lanes> part(p);
  const Eight16 x = part.fetch(p.x, p.x_lines.row(part.row));
  float v[vector_width], squares = 0;
  x.unpack(Type, v);
#pragma unroll
  for (int j = 0; j < vector_width; ++j) squares += v[j] * v[j];
  const float r = rsqrtf(lanes_sum<Lanes>(squares) * p.per_column + p.eps);
#pragma unroll
  for (int j = 0; j < vector_width; ++j) v[j] *= r;
  part.weigh(p.weight, v);
  if (part.inside) put({y.data, Type}, y_lines.row(part.row) + part.column, v);
}

template <lk_dtype Type, int Lanes>
__global__ void __launch_bounds__(block_threads) rms_heads_dx_kernel(Rows p, In dy_rows, LinePlaces dy_lines, In added,
                                                                     Out dx, LinePlaces dx_lines, float* inverse) {
  await_previous();
  const HeadPart<Lanes> part(p);
  const Eight16 x = part.fetch(p.x, p.x_lines.row(part.row)), dy = part.fetch(dy_rows, dy_lines.row(part.row));
  float v[vector_width], g[vector_width], squares = 0, product = 0;
  x.unpack(Type, v);
  dy.unpack(Type, g);
  part.weigh(p.weight, g);
#pragma unroll
  for (int j = 0; j < vector_width; ++j) {
    squares += v[j] * v[j];
    product += g[j] * v[j];
  }
  const float r = rsqrtf(lanes_sum<Lanes>(squares) * p.per_column + p.eps);
  const float factor = lanes_sum<Lanes>(product) * p.per_column * r * r;
  if (!part.inside) return;
  if (inverse != nullptr && part.column == 0) inverse[part.row] = r;
  if (dx.data == nullptr) return;
#pragma unroll
  for (int j = 0; j < vector_width; ++j) g[j] = r * (g[j] - v[j] * factor);
  if (added.data != nullptr) {
    Eight16::fetch(added, part.row * p.width + part.column).unpack(Type, v);
#pragma unroll
    for (int j = 0; j < vector_width; ++j) g[j] += v[j];
  }
  put({dx.data, Type}, dx_lines.row(part.row) + part.column, g);
}

// Calls launch(type, lanes, grid) of constants for narrow rows that are all of one 16-bit type, or returns false.
template <class Launch>
bool with_heads(std::initializer_list<const lk_tensor*> rows, const lk_tensor& weight, int64_t width,
                const Launch& launch) {
  const lk_tensor& first = **rows.begin();
  bool fits = first.dtype != LK_F32 && width <= widest_head && aligned(weight, width);
  for (const lk_tensor* const t : rows) fits = fits && aligned(*t, width) && (!present(*t) || t->dtype == first.dtype);
  if (!fits) return false;
  const auto of_lanes = [&](auto type, auto lanes) {
    launch(type, lanes, dim3(static_cast<unsigned>(ceil_div(numel(first) / width, block_threads / lanes()))));
  };
  const auto of_type = [&](auto type) {
    if (width <= 8 * vector_width) return of_lanes(type, std::integral_constant<int, 8>());
    if (width <= 16 * vector_width) return of_lanes(type, std::integral_constant<int, 16>());
    of_lanes(type, std::integral_constant<int, 32>());
  };
  if (first.dtype == LK_BF16) {
    of_type(std::integral_constant<lk_dtype, LK_BF16>());
  } else {
    of_type(std::integral_constant<lk_dtype, LK_F16>());
  }
  return true;
}

// dx may be absent; inverse [rows] keeps r, or is NULL.
template <class Pack>
__global__ void __launch_bounds__(row_threads)
    rms_norm_dx_kernel(Rows p, In dy_rows, LinePlaces dy_lines, In added, Out dx, LinePlaces dx_lines, float* inverse) {
  await_previous();
  __shared__ float shared[2 * 32];
  const RowSpan span = row_span(p.rows, p.width, p.lanes);
  const Row<Pack> x(p.x, span, p.x_lines.row(span.row)), dy(dy_rows, span, dy_lines.row(span.row));
  const auto gradient = [&](int k, int64_t column, float(&g)[Pack::width]) {
    float w[Pack::width];
    dy.get(k, column, g);
    load_or(p.weight, column, 1.0f, w);
#pragma unroll
    for (int j = 0; j < Pack::width; ++j) g[j] *= w[j];
  };
  float squares = 0, product = 0;
  each_pack<Pack>(span, [&](int k, int64_t column) {
    float v[Pack::width], g[Pack::width];
    x.get(k, column, v);
    gradient(k, column, g);
#pragma unroll
    for (int j = 0; j < Pack::width; ++j) {
      squares += v[j] * v[j];
      product += g[j] * v[j];
    }
  });
  squares = row_sum(squares, span.lanes, shared);
  product = row_sum(product, span.lanes, shared + 32);
  if (!span.exists) return;
  const float r = inverse_rms(squares, p), factor = product / static_cast<float>(p.width) * r * r;
  if (inverse != nullptr && span.lane == 0) inverse[span.row] = r;
  if (dx.data == nullptr) return;
  const int64_t to = dx_lines.row(span.row);
  each_pack<Pack>(span, [&](int k, int64_t column) {
    float v[Pack::width], g[Pack::width];
    x.get(k, column, v);
    gradient(k, column, g);
#pragma unroll
    for (int j = 0; j < Pack::width; ++j) g[j] = r * (g[j] - v[j] * factor);
    load_or(added, span.row * p.width + column, 0.0f, v);
#pragma unroll
    for (int j = 0; j < Pack::width; ++j) g[j] += v[j];
    put(dx, to + column, g);
  });
}

// sum dy x r
template <class Pack>
struct WeightSum {
  static constexpr int sums = 1;
  using Held = Pack[2];
  In dy, x;
  const float* inverse;
  __device__ NoState start(int64_t, int64_t) const { return {}; }
  __device__ void fetch(int64_t i, Held& held) const {
    held[0] = Pack::fetch(dy, i);
    held[1] = Pack::fetch(x, i);
  }
  __device__ void add(NoState, const Held& held, int64_t row, int64_t, float (&total)[1][Pack::width]) const {
    float g[Pack::width], v[Pack::width];
    held[0].unpack(dy.dtype, g);
    held[1].unpack(x.dtype, v);
    const float r = inverse[row];
#pragma unroll
    for (int j = 0; j < Pack::width; ++j) total[0][j] += g[j] * (v[j] * r);
  }
};

template <class Params>
WideNorm wide_of(const Params& p, int64_t rows) {
  return {p.x, p.weight, {}, 1, rows, p.eps, false};
}

}  // namespace

void rms_norm(Cuda& cuda, const lk_rms_norm_params& p) {
  const int64_t width = p.x.dims[p.x.rank - 1], rows = numel(p.x) / width;
  const WideNorm wide = wide_of(p, rows);
  if (is_dense(p.x) && is_dense(p.y) && wide_norm_fits(cuda, wide, {&p.y}))
    return norm_rows(cuda, wide, {}, false, p.y);
  const lk_tensor x = takes_lines(p.x, width) ? p.x : dense_copy(cuda, p.x);
  const DenseOutput y(cuda, p.y, takes_lines(p.y, width));
  Rows problem{in(x), in(p.weight), line_places(x, width), rows, width, p.eps, 1.0f / static_cast<float>(width), 0};
  const bool heads = with_heads({&x, &y.tensor()}, p.weight, width, [&](auto type, auto lanes, dim3 grid) {
    cuda.launch(rms_heads_kernel<type(), lanes()>, grid, block_threads, 0, problem, out(y.tensor()),
                line_places(y.tensor(), width));
  });
  if (!heads) {
    with_rows({in(x)}, {in(p.weight), in(y.tensor())}, rows, width, [&](const RowPlan& plan, auto pack) {
      problem.lanes = plan.lanes;
      cuda.launch(rms_norm_kernel<decltype(pack)>, plan.grid, plan.block, 0, problem, out(y.tensor()),
                  line_places(y.tensor(), width));
    });
  }
  y.store(cuda);
}

void rms_norm_backward(Cuda& cuda, const lk_rms_norm_backward_params& p) {
  const int64_t width = p.x.dims[p.x.rank - 1], rows = numel(p.x) / width;
  if (!present(p.dx) && !present(p.dweight)) return;
  const bool sums = present(p.dweight);
  const WideNorm wide = wide_of(p, rows);
  if (!sums && is_dense(p.x) && is_dense(p.dy) && is_dense(p.dx) &&
      wide_norm_fits(cuda, wide, {&p.dy, &p.added, &p.dx}))
    return norm_rows_dx(cuda, wide, p.dy, p.added, p.dx);
  const auto taken = [&](const lk_tensor& t) {
    return is_dense(t) || (!sums && takes_lines(t, width)) ? t : dense_copy(cuda, t);
  };
  const lk_tensor x = taken(p.x), dy = taken(p.dy);
  const DenseOutput dx(cuda, p.dx, takes_lines(p.dx, width));
  float* const inverse = sums ? cuda.scratch<float>(rows) : nullptr;
  Rows problem{in(x), in(p.weight), line_places(x, width), rows, width, p.eps, 1.0f / static_cast<float>(width), 0};
  const auto launch = [&](auto kernel, dim3 grid, dim3 block) {
    cuda.launch(kernel, grid, block, 0, problem, in(dy), line_places(dy, width), in(p.added), out(dx.tensor()),
                line_places(dx.tensor(), width), inverse);
  };
  const bool heads = with_heads(
      {&x, &dy, &p.added, &dx.tensor()}, p.weight, width,
      [&](auto type, auto lanes, dim3 grid) { launch(rms_heads_dx_kernel<type(), lanes()>, grid, block_threads); });
  if (!heads) {
    with_rows({in(x), in(dy)}, {in(p.weight), in(p.added), in(dx.tensor())}, rows, width,
              [&](const RowPlan& plan, auto pack) {
                problem.lanes = plan.lanes;
                launch(rms_norm_dx_kernel<decltype(pack)>, plan.grid, plan.block);
              });
  }
  dx.store(cuda);
  if (!sums) return;
  with_pack({in(dy), in(x)}, {in(p.dweight)}, width, [&](auto kind) {
    using Pack = decltype(kind);
    walk_columns<Pack>(cuda, WeightSum<Pack>{in(dy), in(x), inverse}, {1, rows, width}, {{out(p.dweight)}});
  });
}

}  // namespace lk::cuda
