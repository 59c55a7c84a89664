// Rotary embedding of an RMS norm of x [B, S, H, D] over D: y = rope(x r w), r = 1 / sqrt(mean(x^2) + eps).
// Backward, with g = rope^-1(dy) w:  dx = r (g - x r^2 mean(g x)).
//
// A row is a head of a position. Its lanes hold both halves of their pairs, so that a row is read once and nothing but
// the sums goes from lane to lane; they have several heads of a position, which share angles and weight. Rows that do
// not lie so are normed and turned one after the other, in float32.
#include "cuda/await_previous.cuh"
#include "cuda/dense.h"
#include "cuda/line_places.cuh"
#include "cuda/rotation.cuh"
#include "cuda/row_norm.cuh"

namespace lk::cuda {

namespace {

constexpr int held = 2;          // packs of a lane: of a row's first half and of its second, where pairs lie so
constexpr int least_blocks = 2;  // of a multiprocessor, which bounds the registers

// Heads that a lane has at once, of so many tensors.
template <class Pack>
constexpr int heads_in_flight(int tensors) {
  return 16 / Pack::registers / tensors;
}

struct Heads {
  In x, weight;
  LinePlaces x_lines;
  const float *cos, *sin;
  int64_t positions, length, heads, width;
  int64_t groups;  // of heads
  bool per_image;  // the angles
  float eps;
  int lanes;
};

// What the lanes of a group of heads do. Threads without one take the last, and must not write.
struct Task {
  int64_t position, row;  // the first head's
  int count, lane;
  bool exists;
};

__device__ inline Task task_of(const Heads& p, int in_flight) {
  const int64_t item = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / p.lanes, items = p.positions * p.groups;
  const int64_t taken = min(item, items - 1), position = quotient(taken, p.groups);
  const int64_t head = (taken - position * p.groups) * in_flight;
  return {position, position * p.heads + head, static_cast<int>(min(p.heads - head, int64_t{in_flight})),
          static_cast<int>(threadIdx.x) % p.lanes, item < items};
}

// Calls body(k, column) for both packs, as far as the row has them.
template <class Body>
__device__ inline void each_held(const Heads& p, const Task& t, const Body& body) {
#pragma unroll
  for (int k = 0; k < held; ++k) {
    const int column = (k * p.lanes + t.lane) * vector_width;
    if (column < p.width) body(k, column);
  }
}

// Heads of a position in their places: a tensor's lines are single heads or have all heads of a position.
struct HeadPlaces {
  int64_t first, step;
  __device__ HeadPlaces(const LinePlaces& lines, const Task& t)
      : first(lines.row(t.row)), step(lines.rows_of_line == 1 ? lines.pitch : lines.width) {}
  __device__ int64_t operator()(int head, int column) const { return first + head * step + column; }
};

template <class Pack, int in_flight>
struct Held {
  Pack packs[in_flight][held];
  In from;
  __device__ Held(const Heads& p, const Task& t, const In& tensor, const HeadPlaces& at) : from(tensor) {
#pragma unroll
    for (int h = 0; h < in_flight; ++h) {
      if (h < t.count) each_held(p, t, [&](int k, int column) { packs[h][k] = Pack::fetch(tensor, at(h, column)); });
    }
  }
  // 0 beyond the row and the heads.
  __device__ void get(const Heads& p, const Task& t, int h, float (&v)[held][vector_width]) const {
#pragma unroll
    for (int k = 0; k < held; ++k) {
#pragma unroll
      for (int j = 0; j < vector_width; ++j) v[k][j] = 0;
    }
    if (h < t.count) each_held(p, t, [&](int k, int) { packs[h][k].unpack(from.dtype, v[k]); });
  }
};

// What all heads of a position share; 0 beyond the row.
template <bool interleaved>
struct Position {
  float weight[held][vector_width] = {}, cos[held][4] = {}, sin[held][4] = {};
  // sign -1 turns back.
  __device__ Position(const Heads& p, const Task& t, float sign) {
    const int64_t place = p.per_image ? t.position : t.position - quotient(t.position, p.length) * p.length;
    each_held(p, t, [&](int k, int column) {
      load_or(p.weight, column, 1.0f, weight[k]);
      const int64_t at = place * (p.width / 2) + (interleaved ? column / 2 : t.lane * vector_width + k * 4);
      load_floats(p.cos + at, cos[k]);
      load_floats(p.sin + at, sin[k], sign);
    });
  }
  __device__ void scale(float (&v)[held][vector_width]) const {
#pragma unroll
    for (int k = 0; k < held; ++k) {
#pragma unroll
      for (int j = 0; j < vector_width; ++j) v[k][j] *= weight[k][j];
    }
  }
  __device__ void turn(float (&v)[held][vector_width]) const {
#pragma unroll
    for (int i = 0; i < vector_width; ++i) {
      const float c = cos[i / 4][i % 4], s = sin[i / 4][i % 4];
      if constexpr (interleaved)
        rotate(v[i / 4][i % 4 * 2], v[i / 4][i % 4 * 2 + 1], c, s);
      else
        rotate(v[0][i], v[1][i], c, s);
    }
  }
};

__device__ inline float inverse_rms(float squares, const Heads& p) {
  return 1.0f / sqrtf(squares / static_cast<float>(p.width) + p.eps);
}

template <class Pack, bool interleaved>
__global__ void __launch_bounds__(block_threads, least_blocks)
    rms_norm_rope_kernel(Heads p, Out y, LinePlaces y_lines) {
  await_previous();
  constexpr int in_flight = heads_in_flight<Pack>(1);
  const Task t = task_of(p, in_flight);
  const Held<Pack, in_flight> x(p, t, p.x, {p.x_lines, t});
  const Position<interleaved> position(p, t, 1.0f);
  const HeadPlaces to(y_lines, t);
#pragma unroll
  for (int h = 0; h < in_flight; ++h) {
    float v[held][vector_width], squares = 0;
    x.get(p, t, h, v);
#pragma unroll
    for (int k = 0; k < held; ++k) {
#pragma unroll
      for (int j = 0; j < vector_width; ++j) squares += v[k][j] * v[k][j];
    }
    const float r = inverse_rms(lanes_sum(squares, p.lanes), p);
    position.scale(v);
    position.turn(v);
    if (!t.exists || h >= t.count) continue;
    each_held(p, t, [&](int k, int column) {
#pragma unroll
      for (int j = 0; j < vector_width; ++j) v[k][j] *= r;
      put(y, to(h, column), v[k]);
    });
  }
}

template <class Pack, bool interleaved>
__global__ void __launch_bounds__(block_threads, least_blocks)
    rms_norm_rope_dx_kernel(Heads p, In dy_rows, LinePlaces dy_lines, Out dx, LinePlaces dx_lines) {
  await_previous();
  constexpr int in_flight = heads_in_flight<Pack>(2);
  const Task t = task_of(p, in_flight);
  const Held<Pack, in_flight> x(p, t, p.x, {p.x_lines, t}), dy(p, t, dy_rows, {dy_lines, t});
  const Position<interleaved> position(p, t, -1.0f);
  const HeadPlaces to(dx_lines, t);
#pragma unroll
  for (int h = 0; h < in_flight; ++h) {
    float v[held][vector_width], g[held][vector_width], squares = 0, product = 0;
    x.get(p, t, h, v);
    dy.get(p, t, h, g);
    position.turn(g);
    position.scale(g);
#pragma unroll
    for (int k = 0; k < held; ++k) {
#pragma unroll
      for (int j = 0; j < vector_width; ++j) {
        squares += v[k][j] * v[k][j];
        product += g[k][j] * v[k][j];
      }
    }
    squares = lanes_sum(squares, p.lanes);
    product = lanes_sum(product, p.lanes);
    if (!t.exists || h >= t.count) continue;
    const float r = inverse_rms(squares, p), factor = product / static_cast<float>(p.width) * r * r;
    each_held(p, t, [&](int k, int column) {
#pragma unroll
      for (int j = 0; j < vector_width; ++j) g[k][j] = r * (g[k][j] - v[k][j] * factor);
      put(dx, to(h, column), g[k]);
    });
  }
}

lk_tensor taken(Cuda& cuda, const lk_tensor& t) { return takes_lines(t, t.dims[3]) ? t : dense_copy(cuda, t); }

lk_tensor float_scratch(Cuda& cuda, const lk_tensor& like) {
  lk_tensor t{.dtype = LK_F32, .rank = like.rank};
  std::copy_n(like.dims, like.rank, t.dims);
  t.data = cuda.scratch<float>(numel(like));
  return t;
}

// Calls launch(heads, plan, pack, interleaved) where lanes hold both halves of their pairs; false: nowhere.
template <class Params, class Launch>
bool with_pairs(const Params& p, std::initializer_list<In> fetched, const lk_tensor& result, const Launch& launch) {
  constexpr int64_t per_lane = held * vector_width, most_lanes = 32;
  const int64_t heads = p.x.dims[2], width = p.x.dims[3], positions = p.x.dims[0] * p.x.dims[1];
  const int64_t lanes = ceil_div(width, per_lane);
  if (lanes > most_lanes || (p.interleaved == 0 && width != plan_rows(1, lanes).lanes * per_lane)) return false;
  bool packed = false;
  with_pack(fetched, {in(p.weight), in(p.cos), in(p.sin), in(result)}, width, [&](auto pack) {
    using Pack = decltype(pack);
    if constexpr (Pack::width == vector_width) {
      packed = true;
      const int64_t groups = ceil_div(heads, heads_in_flight<Pack>(static_cast<int>(fetched.size())));
      const RowPlan plan = plan_rows(positions * groups, lanes);
      const Heads of_rows{in(p.x),
                          in(p.weight),
                          line_places(p.x, width),
                          static_cast<const float*>(p.cos.data),
                          static_cast<const float*>(p.sin.data),
                          positions,
                          p.x.dims[1],
                          heads,
                          width,
                          groups,
                          p.cos.rank == 3,
                          p.eps,
                          plan.lanes};
      if (p.interleaved != 0)
        launch(of_rows, plan, pack, std::true_type());
      else
        launch(of_rows, plan, pack, std::false_type());
    }
  });
  return packed;
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
  const bool paired =
      with_pairs(p, {in(p.x)}, p.y, [&](const Heads& heads, const RowPlan& plan, auto pack, auto interleaved) {
        cuda.launch(rms_norm_rope_kernel<decltype(pack), decltype(interleaved)::value>, plan.grid, plan.block, 0, heads,
                    out(p.y), line_places(p.y, p.x.dims[3]));
      });
  if (!paired) norm_then_turn(cuda, p);
  y.store(cuda);
}

void rms_norm_rope_backward(Cuda& cuda, const lk_rms_norm_rope_backward_params& given) {
  lk_rms_norm_rope_backward_params p = given;
  const DenseOutput dx(cuda, given.dx, takes_lines(given.dx, given.dx.dims[3]));
  p.x = taken(cuda, given.x), p.dy = taken(cuda, given.dy), p.dx = dx.tensor();
  const bool paired = with_pairs(
      p, {in(p.x), in(p.dy)}, p.dx, [&](const Heads& heads, const RowPlan& plan, auto pack, auto interleaved) {
        cuda.launch(rms_norm_rope_dx_kernel<decltype(pack), decltype(interleaved)::value>, plan.grid, plan.block, 0,
                    heads, in(p.dy), line_places(p.dy, p.x.dims[3]), out(p.dx), line_places(p.dx, p.x.dims[3]));
      });
  if (!paired) turn_back_then_norm(cuda, p);
  dx.store(cuda);
}

}  // namespace lk::cuda
