// Rotary embedding of an RMS norm of x [B, S, H, D] over D: y = rope(x r w), r = 1 / sqrt(mean(x^2) + eps).
// Backward, with g = rope^-1(dy) w:  dx = r (g - x r^2 mean(g x)).
//
// A row is a head of a position. Its lanes hold both halves of their pairs, so that a row is read once and nothing but
// the sums goes from lane to lane. Rows that do not lie so are normed and turned one after the other, in float32.
#include "cuda/await_previous.cuh"
#include "cuda/dense.h"
#include "cuda/line_places.cuh"
#include "cuda/rotation.cuh"
#include "cuda/row_norm.cuh"

namespace lk::cuda {

namespace {

constexpr int held = 2;          // packs of a lane: of a row's first half and of its second, where pairs lie so
constexpr int least_blocks = 4;  // of a multiprocessor, which bounds the registers
using Values = float[held][vector_width];

struct Heads {
  In x, weight;
  LinePlaces x_lines;
  const float *cos, *sin;
  int64_t rows, length, heads, width;
  bool per_image;  // the angles
  float eps;
  int lanes;
};

__device__ inline float inverse_rms(float squares, const Heads& p) {
  return 1.0f / sqrtf(squares / static_cast<float>(p.width) + p.eps);
}

template <class Pack>
__device__ inline void unpack(const Row<Pack, held>& row, const RowSpan& span, Values& v) {
  each_pack<Pack, held>(span, [&](int k, int64_t column) { row.get(k, column, v[k]); });
}

// v times the weight.
template <class Pack>
__device__ inline void scale(const Heads& p, const RowSpan& span, Values& v) {
  if (p.weight.data == nullptr) return;
  each_pack<Pack, held>(span, [&](int k, int64_t column) {
    float w[vector_width];
    load8(p.weight, column, w);
#pragma unroll
    for (int j = 0; j < vector_width; ++j) v[k][j] *= w[j];
  });
}

// Where the angles of a row are.
__device__ inline int64_t angles_of(const Heads& p, int64_t row) {
  const int64_t position = quotient(row, p.heads);
  return (p.per_image ? position : position - quotient(position, p.length) * p.length) * (p.width / 2);
}

// sign -1 turns back.
template <class Pack, bool interleaved>
__device__ inline void turn(const Heads& p, const RowSpan& span, int64_t angles, float sign, Values& v) {
  float cos[4], sin[4];
  const auto load_four = [&](int64_t first) {
    load_floats(p.cos + angles + first, cos);
    load_floats(p.sin + angles + first, sin, sign);
  };
  if constexpr (interleaved) {
    each_pack<Pack, held>(span, [&](int k, int64_t column) {
      load_four(column / 2);
#pragma unroll
      for (int j = 0; j < 4; ++j) rotate(v[k][2 * j], v[k][2 * j + 1], cos[j], sin[j]);
    });
  } else {
#pragma unroll
    for (int i = 0; i < vector_width; i += 4) {
      load_four(span.lane * vector_width + i);
#pragma unroll
      for (int j = 0; j < 4; ++j) rotate(v[0][i + j], v[1][i + j], cos[j], sin[j]);
    }
  }
}

template <class Pack, bool interleaved>
__global__ void __launch_bounds__(block_threads, least_blocks)
    rms_norm_rope_kernel(Heads p, Out y, LinePlaces y_lines) {
  await_previous();
  const RowSpan span = row_span(p.rows, p.width, p.lanes);
  const int64_t angles = angles_of(p, span.row);
  const Row<Pack, held> x(p.x, span, p.x_lines.row(span.row));
  Values v;
  unpack<Pack>(x, span, v);
  float squares = 0;
  each_pack<Pack, held>(span, [&](int k, int64_t) {
#pragma unroll
    for (int j = 0; j < vector_width; ++j) squares += v[k][j] * v[k][j];
  });
  // r multiplies both of a pair, so it may come last: angles are not waited for behind the sum.
  scale<Pack>(p, span, v);
  turn<Pack, interleaved>(p, span, angles, 1.0f, v);
  squares = lanes_sum(squares, span.lanes);
  if (!span.exists) return;
  const float r = inverse_rms(squares, p);
  const int64_t to = y_lines.row(span.row);
  each_pack<Pack, held>(span, [&](int k, int64_t column) {
#pragma unroll
    for (int j = 0; j < vector_width; ++j) v[k][j] *= r;
    put(y, to + column, v[k]);
  });
}

template <class Pack, bool interleaved>
__global__ void __launch_bounds__(block_threads, least_blocks)
    rms_norm_rope_dx_kernel(Heads p, In dy_rows, LinePlaces dy_lines, Out dx, LinePlaces dx_lines) {
  await_previous();
  const RowSpan span = row_span(p.rows, p.width, p.lanes);
  const int64_t angles = angles_of(p, span.row);
  const Row<Pack, held> x(p.x, span, p.x_lines.row(span.row)), dy(dy_rows, span, dy_lines.row(span.row));
  Values v, g;
  unpack<Pack>(dy, span, g);
  turn<Pack, interleaved>(p, span, angles, -1.0f, g);
  scale<Pack>(p, span, g);
  unpack<Pack>(x, span, v);
  float squares = 0, product = 0;
  each_pack<Pack, held>(span, [&](int k, int64_t) {
#pragma unroll
    for (int j = 0; j < vector_width; ++j) {
      squares += v[k][j] * v[k][j];
      product += g[k][j] * v[k][j];
    }
  });
  squares = lanes_sum(squares, span.lanes);
  product = lanes_sum(product, span.lanes);
  if (!span.exists) return;
  const float r = inverse_rms(squares, p), factor = product / static_cast<float>(p.width) * r * r;
  const int64_t to = dx_lines.row(span.row);
  each_pack<Pack, held>(span, [&](int k, int64_t column) {
#pragma unroll
    for (int j = 0; j < vector_width; ++j) g[k][j] = r * (g[k][j] - v[k][j] * factor);
    put(dx, to + column, g[k]);
  });
}

lk_tensor taken(Cuda& cuda, const lk_tensor& t) { return takes_lines(t, t.dims[3]) ? t : dense_copy(cuda, t); }

lk_tensor float_scratch(Cuda& cuda, const lk_tensor& like) {
  lk_tensor t{.dtype = LK_F32, .rank = like.rank};
  std::copy_n(like.dims, like.rank, t.dims);
  t.data = cuda.scratch<float>(numel(like));
  return t;
}

// Calls launch(plan, pack, interleaved) where lanes hold both halves of their pairs; false: nowhere.
template <class Params, class Launch>
bool with_pairs(const Params& p, std::initializer_list<In> fetched, const lk_tensor& result, const Launch& launch) {
  constexpr int64_t per_lane = held * vector_width, most_lanes = 32;
  const int64_t width = p.x.dims[3];
  const RowPlan plan = plan_rows(numel(p.x) / width, ceil_div(width, per_lane));
  if (plan.lanes > most_lanes || (p.interleaved == 0 && width != plan.lanes * per_lane)) return false;
  bool packed = false;
  with_pack(fetched, {in(p.weight), in(p.cos), in(p.sin), in(result)}, width, [&](auto pack) {
    if constexpr (decltype(pack)::width == vector_width) {
      packed = true;
      if (p.interleaved != 0) {
        launch(plan, pack, std::true_type());
      } else {
        launch(plan, pack, std::false_type());
      }
    }
  });
  return packed;
}

template <class Params>
Heads heads_of(const Params& p, int lanes) {
  const int64_t width = p.x.dims[3];
  return {in(p.x),
          in(p.weight),
          line_places(p.x, width),
          static_cast<const float*>(p.cos.data),
          static_cast<const float*>(p.sin.data),
          numel(p.x) / width,
          p.x.dims[1],
          p.x.dims[2],
          width,
          p.cos.rank == 3,
          p.eps,
          lanes};
}

void norm_then_turn(Cuda& cuda, const lk_rms_norm_rope_params& p) {
  const lk_tensor normed = float_scratch(cuda, p.x);
  const DenseOutput y(cuda, p.y);
  rms_norm(cuda, {.x = p.x, .weight = p.weight, .y = normed, .eps = p.eps});
  rope(cuda, {.x = normed, .cos = p.cos, .sin = p.sin, .y = y.tensor(), .interleaved = p.interleaved, .inverse = 0});
  y.store(cuda);
}

void turn_back_then_norm(Cuda& cuda, const lk_rms_norm_rope_backward_params& p) {
  const lk_tensor turned = float_scratch(cuda, p.x);
  rope(cuda, {.x = dense_copy(cuda, p.dy),
              .cos = p.cos,
              .sin = p.sin,
              .y = turned,
              .interleaved = p.interleaved,
              .inverse = 1});
  rms_norm_backward(cuda,
                    {.dy = turned, .x = p.x, .weight = p.weight, .eps = p.eps, .dx = p.dx, .dweight = {}, .added = {}});
}

}  // namespace

void rms_norm_rope(Cuda& cuda, const lk_rms_norm_rope_params& given) {
  lk_rms_norm_rope_params p = given;
  const DenseOutput y(cuda, given.y, takes_lines(given.y, given.y.dims[3]));
  p.x = taken(cuda, given.x), p.y = y.tensor();
  const bool paired = with_pairs(p, {in(p.x)}, p.y, [&](const RowPlan& plan, auto pack, auto interleaved) {
    cuda.launch(rms_norm_rope_kernel<decltype(pack), decltype(interleaved)::value>, plan.grid, plan.block, 0,
                heads_of(p, plan.lanes), out(p.y), line_places(p.y, p.x.dims[3]));
  });
  if (!paired) norm_then_turn(cuda, p);
  y.store(cuda);
}

void rms_norm_rope_backward(Cuda& cuda, const lk_rms_norm_rope_backward_params& given) {
  lk_rms_norm_rope_backward_params p = given;
  const DenseOutput dx(cuda, given.dx, takes_lines(given.dx, given.dx.dims[3]));
  p.x = taken(cuda, given.x), p.dy = taken(cuda, given.dy), p.dx = dx.tensor();
  const bool paired = with_pairs(p, {in(p.x), in(p.dy)}, p.dx, [&](const RowPlan& plan, auto pack, auto interleaved) {
    cuda.launch(rms_norm_rope_dx_kernel<decltype(pack), decltype(interleaved)::value>, plan.grid, plan.block, 0,
                heads_of(p, plan.lanes), in(p.dy), line_places(p.dy, p.x.dims[3]), out(p.dx),
                line_places(p.dx, p.x.dims[3]));
  });
  if (!paired) turn_back_then_norm(cuda, p);
  dx.store(cuda);
}

}  // namespace lk::cuda
