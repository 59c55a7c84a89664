// y = added + x r w f, r = 1 / sqrt(mean(x^2) + eps), f = unit + factor.
// Backward, with g = dy w f:  dx = r (g - x r^2 mean(g x)),  dfactor = w sum dy x r.
#include "cuda/column_sums.cuh"
#include "cuda/rms_rows.cuh"
#include "cuda/row_norm.cuh"

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
__global__ void __launch_bounds__(row_threads) rms_rows_dx_kernel(Rows p, In dy_rows, Out dx, float* inverse) {
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
    put(dx, span.row * p.width + column, g);
  });
}

// dx and dfactor in one pass: a block goes over a slab of rows under one factor and keeps the sums of its columns, and
// their w f, in registers while the next row is on its way. For rows of 16-bit values that want a whole block.
using SlabPack = Eight16;
constexpr int slab_packs = 2;

__global__ void __launch_bounds__(row_threads)
    rms_rows_slab_kernel(Rows p, In dy_rows, Out dx, Slabs slabs, Out partial) {
  using SlabRow = Row<SlabPack, slab_packs>;
  constexpr int width = SlabPack::width;
  __shared__ float shared[2][2 * 32];  // rows take turns, so that one barrier each is enough
  const int64_t image = blockIdx.x / slabs.count, slab = blockIdx.x % slabs.count;
  const int64_t begin = image * p.rows_per_factor + slab * slabs.rows;
  const int64_t end = min(begin + slabs.rows, (image + 1) * p.rows_per_factor);
  RowSpan span{begin, p.width, static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x), true};
  SlabRow x(p.x, span), dy(dy_rows, span);
  float factors[slab_packs][width], total[slab_packs][width] = {};
  each_pack<SlabPack, slab_packs>(span,
                                  [&](int k, int64_t column) { combined(p, image * p.width, column, factors[k]); });
  for (int64_t row = begin; row < end; ++row) {
    RowSpan next = span;
    next.row = min(row + 1, end - 1);
    const SlabRow next_x(p.x, next), next_dy(dy_rows, next);
    float sums[2] = {};  // of squares, of g x
    each_pack<SlabPack, slab_packs>(span, [&](int k, int64_t column) {
      float v[width], g[width];
      x.get(k, column, v);
      dy.get(k, column, g);
#pragma unroll
      for (int j = 0; j < width; ++j) {
        sums[0] += v[j] * v[j];
        sums[1] += g[j] * factors[k][j] * v[j];
      }
    });
    sums[0] = warp_sum(sums[0]);
    sums[1] = warp_sum(sums[1]);
    exchange_warps(sums, shared[row % 2]);
    const Inverse m = inverse_rms(warp_sum(sums[0]), warp_sum(sums[1]), p);
    each_pack<SlabPack, slab_packs>(span, [&](int k, int64_t column) {
      float v[width], g[width];
      x.get(k, column, v);
      dy.get(k, column, g);
#pragma unroll
      for (int j = 0; j < width; ++j) total[k][j] += g[j] * (v[j] * m.r);
      if (dx.data == nullptr) return;
#pragma unroll
      for (int j = 0; j < width; ++j) g[j] = m.r * (g[j] * factors[k][j] - v[j] * m.back);
      put(dx, row * p.width + column, g);
    });
    x = next_x;
    dy = next_dy;
    span = next;
  }
  const int64_t images = p.rows / p.rows_per_factor, place = (slab * images + image) * p.width;
  each_pack<SlabPack, slab_packs>(span, [&](int k, int64_t column) {
    float w[width];
    load_or(p.weight, column, 1.0f, w);
#pragma unroll
    for (int j = 0; j < width; ++j) total[k][j] *= w[j];
    put(partial, place + column, total[k]);
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

// Whether rms_rows_slab_kernel can do it. While measuring, addresses say nothing and it may.
bool fits_slabs(const Cuda& cuda, const RmsRows& norm, const lk_tensor& dy, const lk_tensor& dx) {
  const int64_t width = norm.x.dims[norm.x.rank - 1], per_lane = SlabPack::width * slab_packs;
  if (width % vector_width != 0 || width <= 32 * per_lane || width > row_threads * per_lane) return false;
  if (norm.x.dtype == LK_F32 || dy.dtype == LK_F32) return false;
  const bool packed = aligned(norm.x, width) && aligned(dy, width) && aligned(norm.weight, width) &&
                      aligned(norm.factor, width) && aligned(dx, width);
  return packed || cuda.measuring();
}

void slabs_backward(Cuda& cuda, const RmsRows& norm, const lk_tensor& dy, const lk_tensor& dx, const Columns& columns,
                    const Sums& results) {
  const int lanes = static_cast<int>(ceil_div(columns.width, 32 * SlabPack::width * slab_packs) * 32);
  int resident = 1;
  const void* const kernel = reinterpret_cast<const void*>(rms_rows_slab_kernel);
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, lanes, 0), "occupancy");
  const int64_t wanted = int64_t{cuda.device().multiProcessorCount} * resident / columns.images;
  Slabs slabs;
  slabs.rows = ceil_div(columns.rows, std::clamp<int64_t>(wanted, 1, columns.rows));
  slabs.count = ceil_div(columns.rows, slabs.rows);
  const int64_t count = columns.images * columns.width;
  float* const partial = cuda.scratch<float>(slabs.count * count);
  cuda.launch(rms_rows_slab_kernel, dim3(static_cast<unsigned>(columns.images * slabs.count)), lanes, 0,
              rows_of(norm, lanes), in(dy), out(dx), slabs, Out{partial, LK_F32});
  add_slabs(cuda, partial, 1, slabs.count, count, results, 1.0f);
}

}  // namespace

void rms_rows(Cuda& cuda, const RmsRows& norm, const lk_tensor& added, bool by_row, const lk_tensor& y) {
  const int64_t width = norm.x.dims[norm.x.rank - 1], rows = numel(norm.x) / width;
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

void rms_rows_backward(Cuda& cuda, const RmsRows& norm, const lk_tensor& dy, const lk_tensor& dx,
                       const lk_tensor& dfactor) {
  const int64_t width = norm.x.dims[norm.x.rank - 1], rows = numel(norm.x) / width;
  const Columns columns{rows / norm.rows_per_factor, norm.rows_per_factor, width};
  const bool sums = present(dfactor);
  if (!sums && !present(dx)) return;
  if (sums && fits_slabs(cuda, norm, dy, dx)) {
    slabs_backward(cuda, norm, dy, dx, columns, {{out(dfactor)}});
    if (!cuda.measuring()) return;  // the other way's memory counts as well
  }
  float* const inverse = sums ? cuda.scratch<float>(rows) : nullptr;
  with_rows({in(norm.x), in(dy)}, {in(norm.weight), in(norm.factor), in(dx)}, rows, width,
            [&](const RowPlan& plan, auto pack) {
              cuda.launch(rms_rows_dx_kernel<decltype(pack)>, plan.grid, plan.block, 0, rows_of(norm, plan.lanes),
                          in(dy), out(dx), inverse);
            });
  if (!sums) return;
  with_pack({in(dy), in(norm.x)}, {in(norm.weight), in(dfactor)}, width, [&](auto kind) {
    using Pack = decltype(kind);
    walk_columns<Pack>(cuda, FactorSum<Pack>{in(dy), in(norm.x), in(norm.weight), inverse}, columns, {{out(dfactor)}});
  });
}

}  // namespace lk::cuda
