// y = added + x r w f, r = 1 / sqrt(mean(x^2) + eps), f = unit + factor.
// Backward, with g = dy w f:  dx = r (g - x r^2 mean(g x)),  dfactor = w sum dy x r.
#include "cuda/await_previous.cuh"
#include "cuda/column_sums.cuh"
#include "cuda/rms_rows.cuh"
#include "cuda/row_norm.cuh"
#include "cuda/wide_norm.cuh"

namespace lk::cuda {

namespace {

struct Rows {
  In x, weight, factor;
  float unit;
  int64_t rows, width, rows_per_factor;
  float eps;
  int lanes;
};

// r from the sum of squares, and the factor of x in dx from the sum of g x.
struct Inverse {
  float r, back;
};
__device__ inline Inverse inverse_rms(float squares, float product, const Rows& p) {
  const float width = static_cast<float>(p.width), r = 1.0f / sqrtf(squares / width + p.eps);
  return {r, product / width * r * r};
}

// w f of some columns; row: where the factor's row begins.
template <int width>
__device__ inline void combined(const Rows& p, int64_t row, int64_t column, float (&f)[width]) {
  float w[width];
  load_or(p.factor, row + column, 0.0f, f);
  load_or(p.weight, column, 1.0f, w);
#pragma unroll
  for (int j = 0; j < width; ++j) f[j] = (p.unit + f[j]) * w[j];
}

// What is added, as each_pack wants it: rows of their own are on their way with those of x.
template <class Pack, bool by_row>
class AddedRow {
 public:
  __device__ AddedRow(const In& added, const RowSpan& span, int64_t) : row_(added, span) {}
  __device__ void get(int k, int64_t column, float (&v)[Pack::width]) const { row_.get(k, column, v); }

 private:
  Row<Pack> row_;
};
template <class Pack>
class AddedRow<Pack, false> {
 public:
  __device__ AddedRow(const In& added, const RowSpan&, int64_t base) : added_(added), base_(base) {}
  __device__ void get(int, int64_t column, float (&v)[Pack::width]) const { load_or(added_, base_ + column, 0.0f, v); }

 private:
  In added_;
  int64_t base_;
};

template <class Pack, bool by_row>
__global__ void __launch_bounds__(row_threads) rms_rows_kernel(Rows p, In added_rows, Out y) {
  await_previous();
  __shared__ float shared[32];
  const RowSpan span = row_span(p.rows, p.width, p.lanes);
  const int64_t of_image = span.row / p.rows_per_factor * p.width;
  const Row<Pack> x(p.x, span);
  const AddedRow<Pack, by_row> added(added_rows, span, of_image);
  float squares = 0;
  each_pack<Pack>(span, [&](int k, int64_t column) {
    float v[Pack::width];
    x.get(k, column, v);
#pragma unroll
    for (int j = 0; j < Pack::width; ++j) squares += v[j] * v[j];
  });
  squares = row_sum(squares, span.lanes, shared);
  if (!span.exists) return;
  const float r = inverse_rms(squares, 0.0f, p).r;
  each_pack<Pack>(span, [&](int k, int64_t column) {
    float v[Pack::width], f[Pack::width], a[Pack::width];
    x.get(k, column, v);
    combined(p, of_image, column, f);
    added.get(k, column, a);
#pragma unroll
    for (int j = 0; j < Pack::width; ++j) v[j] = v[j] * r * f[j] + a[j];
    put(y, span.row * p.width + column, v);
  });
}

// dx may be absent; inverse [rows] keeps r, or is NULL.
template <class Pack>
__global__ void __launch_bounds__(row_threads)
    rms_rows_dx_kernel(Rows p, In dy_rows, In added, Out dx, float* inverse) {
  await_previous();
  __shared__ float shared[2 * 32];
  const RowSpan span = row_span(p.rows, p.width, p.lanes);
  const int64_t of_image = span.row / p.rows_per_factor * p.width;
  const Row<Pack> x(p.x, span), dy(dy_rows, span);
  const auto gradient = [&](int k, int64_t column, float(&g)[Pack::width]) {
    float f[Pack::width];
    dy.get(k, column, g);
    combined(p, of_image, column, f);
#pragma unroll
    for (int j = 0; j < Pack::width; ++j) g[j] *= f[j];
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
  const Inverse m = inverse_rms(squares, product, p);
  if (inverse != nullptr && span.lane == 0) inverse[span.row] = m.r;
  if (dx.data == nullptr) return;
  each_pack<Pack>(span, [&](int k, int64_t column) {
    float v[Pack::width], g[Pack::width];
    x.get(k, column, v);
    gradient(k, column, g);
#pragma unroll
    for (int j = 0; j < Pack::width; ++j) g[j] = m.r * (g[j] - v[j] * m.back);
    load_or(added, span.row * p.width + column, 0.0f, v);
#pragma unroll
    for (int j = 0; j < Pack::width; ++j) g[j] += v[j];
    put(dx, span.row * p.width + column, g);
  });
}

// w sum dy x r
template <class Pack>
struct FactorSum {
  static constexpr int sums = 1;
  using Held = Pack[2];
  struct Weights {
    float weight[Pack::width];
  };
  In dy, x, weight;
  const float* inverse;
  __device__ Weights start(int64_t, int64_t column) const {
    Weights w;
    load_or(weight, column, 1.0f, w.weight);
    return w;
  }
  __device__ void fetch(int64_t i, Held& held) const {
    held[0] = Pack::fetch(dy, i);
    held[1] = Pack::fetch(x, i);
  }
  __device__ void add(const Weights& w, const Held& held, int64_t row, int64_t, float (&total)[1][Pack::width]) const {
    float g[Pack::width], v[Pack::width];
    held[0].unpack(dy.dtype, g);
    held[1].unpack(x.dtype, v);
    const float r = inverse[row];
#pragma unroll
    for (int j = 0; j < Pack::width; ++j) total[0][j] += g[j] * (v[j] * r * w.weight[j]);
  }
};

Rows rows_of(const RmsRows& norm, int lanes) {
  const int64_t width = norm.x.dims[norm.x.rank - 1];
  return {in(norm.x), in(norm.weight),      in(norm.factor), norm.unit, numel(norm.x) / width,
          width,      norm.rows_per_factor, norm.eps,        lanes};
}

WideNorm wide_of(const RmsRows& norm) {
  return {norm.x, norm.weight, norm.factor, norm.unit, norm.rows_per_factor, norm.eps, false};
}

}  // namespace

void rms_rows(Cuda& cuda, const RmsRows& norm, const lk_tensor& added, bool by_row, const lk_tensor& y) {
  const int64_t width = norm.x.dims[norm.x.rank - 1], rows = numel(norm.x) / width;
  const lk_tensor beside = by_row ? added : lk_tensor{};
  if (const WideNorm wide = wide_of(norm); wide_norm_fits(cuda, wide, {&beside, &y}, {&added})) {
    norm_rows(cuda, wide, added, by_row, y);
    return;
  }
  const auto run = [&](const RowPlan& plan, auto pack) {
    using Pack = decltype(pack);
    cuda.launch(by_row ? rms_rows_kernel<Pack, true> : rms_rows_kernel<Pack, false>, plan.grid, plan.block, 0,
                rows_of(norm, plan.lanes), in(added), out(y));
  };
  if (by_row) {
    with_rows({in(norm.x), in(added)}, {in(norm.weight), in(norm.factor), in(y)}, rows, width, run);
  } else {
    with_rows({in(norm.x)}, {in(norm.weight), in(norm.factor), in(added), in(y)}, rows, width, run);
  }
}

void rms_rows_backward(Cuda& cuda, const RmsRows& norm, const lk_tensor& dy, const lk_tensor& added,
                       const lk_tensor& dx, const lk_tensor& dfactor) {
  const int64_t width = norm.x.dims[norm.x.rank - 1], rows = numel(norm.x) / width;
  const Columns columns{rows / norm.rows_per_factor, norm.rows_per_factor, width};
  const bool sums = present(dfactor);
  if (!sums && !present(dx)) return;
  const WideNorm wide = wide_of(norm);
  if (wide_norm_fits(cuda, wide, {&dy, &added, &dx})) {
    wide_norm_backward(cuda, wide, dy, added, dx, {{out(dfactor)}});
    if (!cuda.measuring()) return;  // the other way's memory counts as well
  }
  float* const inverse = sums ? cuda.scratch<float>(rows) : nullptr;
  with_rows({in(norm.x), in(dy)}, {in(norm.weight), in(norm.factor), in(added), in(dx)}, rows, width,
            [&](const RowPlan& plan, auto pack) {
              cuda.launch(rms_rows_dx_kernel<decltype(pack)>, plan.grid, plan.block, 0, rows_of(norm, plan.lanes),
                          in(dy), in(added), out(dx), inverse);
            });
  if (!sums) return;
  with_pack({in(dy), in(norm.x)}, {in(norm.weight), in(dfactor)}, width, [&](auto kind) {
    using Pack = decltype(kind);
    walk_columns<Pack>(cuda, FactorSum<Pack>{in(dy), in(norm.x), in(norm.weight), inverse}, columns, {{out(dfactor)}});
  });
}

}  // namespace lk::cuda
