// Rotary embedding of an RMS norm of x [B, S, H, D] over D: y = rope(x r w), r = 1 / sqrt(mean(x^2) + eps).
// Backward, with g = rope^-1(dy) w:  dx = r (g - x r^2 mean(g x)).
//
// A warp has heads of one position, which share its angles: what they and the weight make of a pair is worked out once
// and stays in registers. The lanes of a head hold both halves of their pairs, so that it is read once and nothing but
// the sums goes from lane to lane; all heads of a warp are on their way before the first is waited for. They are few:
// many threads with a load or two each come nearest to what memory can do. Heads that do not lie so are normed and
// turned one after the other, in float32.
#include "cuda/await_previous.cuh"
#include "cuda/dense.h"
#include "cuda/line_places.cuh"
#include "cuda/rotation.cuh"
#include "cuda/row_norm.cuh"

namespace lk::cuda {

namespace {

// Packs of a lane: one of a head's first half and one of its second, or one where pairs are neighbours.
template <bool interleaved>
constexpr int held = interleaved ? 1 : 2;
template <bool interleaved>
using Values = float[held<interleaved>][vector_width];
template <bool interleaved>
constexpr int task_threads = interleaved ? 256 : 128;  // at most

// Heads that a group of lanes has on its way, so that what they hold of them fits into the registers beside the
// factors.
template <class Pack, bool interleaved>
constexpr int heads_forward = Pack::registers != 4 ? 1
                              : interleaved        ? 4
                                                   : 3;
template <class Pack>
constexpr int heads_backward = Pack::registers == 4 ? 2 : 1;

// Where the heads of a position lie in a tensor: a line has some positions, or a position's heads have one pitch.
struct HeadPlaces {
  int64_t positions_of_line, pitch, position_size, step;  // step: from head to head
  __device__ int64_t first(int64_t position) const {
    if (positions_of_line == 1) return position * pitch;
    const int64_t line = quotient(position, positions_of_line);
    return line * pitch + (position - line * positions_of_line) * position_size;
  }
};

struct Heads {
  In x, weight;
  HeadPlaces x_heads;
  const float *cos, *sin;
  int64_t positions, length;
  int width, lanes;
  int heads, parts, per_part;  // a position's heads are `parts` tasks of at most per_part of them
  bool per_image;              // the angles
  float per_column, eps;       // 1 / width
};

// What a lane does: heads head, head + step, .. before `end` of one position.
struct Task {
  int64_t position;
  int head, step, end, lane;
  bool exists;
};

// A block is (32, parts of a position, positions), without a division.
__device__ inline Task task_of(const Heads& p) {
  const int in_warp = static_cast<int>(threadIdx.x), part = static_cast<int>(blockIdx.y * blockDim.y + threadIdx.y);
  Task task;
  task.position = int64_t{blockIdx.x} * blockDim.z + threadIdx.z;
  task.step = 32 / p.lanes;
  task.head = part * p.per_part + in_warp / p.lanes;
  task.end = min((part + 1) * p.per_part, p.heads);
  task.lane = in_warp % p.lanes;
  task.exists = task.position < p.positions && part < p.parts;
  return task;
}

// Calls body(k, column) for the packs of a lane; that of pairs that are neighbours may lie behind the last column.
template <bool interleaved, class Body>
__device__ inline void each_held(const Heads& p, int lane, const Body& body) {
#pragma unroll
  for (int k = 0; k < held<interleaved>; ++k) {
    const int column = (k * p.lanes + lane) * vector_width;
    if (!interleaved || column < p.width) body(k, column);
  }
}

// A lane's part of `count` heads as they lie in memory; heads behind the last are 0.
template <bool interleaved, class Pack, int count>
__device__ inline void fetch(const Heads& p, const Task& task, const In& x, const HeadPlaces& places,
                             Pack (&packs)[count][held<interleaved>]) {
  const int64_t first = places.first(task.position), step = places.step;
#pragma unroll
  for (int u = 0; u < count; ++u) {
    const int head = task.head + u * task.step;
#pragma unroll
    for (int k = 0; k < held<interleaved>; ++k) packs[u][k] = {};
    if (head < task.end)
      each_held<interleaved>(p, task.lane,
                             [&](int k, int column) { packs[u][k] = Pack::fetch(x, first + head * step + column); });
  }
}

// A value's weight times its cosine, and times the sine that it is given to the other value of its pair with.
template <bool interleaved>
struct Turn {
  Values<interleaved> cos, sin;
};

__device__ inline int64_t row_of_angles(const Heads& p, int64_t position) {
  if (!p.per_image && position >= p.length) position -= quotient(position, p.length) * p.length;
  return position;
}

// Of tables with an angle for each value, of pairs in halves. A value is given to the other one with that one's sine.
__device__ inline void load_wide_turn(const Heads& p, const Task& task, Turn<false>& turn) {
  const int64_t angles = row_of_angles(p, task.position) * p.width;
  Eight weight[held<false>];
  each_held<false>(p, task.lane, [&](int k, int column) {
    if (p.weight.data != nullptr) weight[k] = Eight::fetch(p.weight, column);
    load_floats(p.cos + angles + column, turn.cos[k]);
    load_floats(p.sin + angles + column, turn.sin[1 - k]);
  });
  if (p.weight.data == nullptr) return;
#pragma unroll
  for (int k = 0; k < held<false>; ++k) {
    float w[vector_width];
    weight[k].unpack(p.weight.dtype, w);
#pragma unroll
    for (int j = 0; j < vector_width; ++j) {
      turn.cos[k][j] *= w[j];
      turn.sin[k][j] *= w[j];
    }
  }
}

// All that is read is on its way before the first of it is waited for.
template <bool interleaved>
__device__ inline void load_turn(const Heads& p, const Task& task, Turn<interleaved>& turn) {
  constexpr int pairs = interleaved ? vector_width / 2 : vector_width;  // of a lane
  const int64_t angles = row_of_angles(p, task.position) * int64_t{p.width / 2};
  float cos[pairs], sin[pairs];
  Eight weight[held<interleaved>];
  each_held<interleaved>(p, task.lane, [&](int k, int column) {
    if (p.weight.data != nullptr) weight[k] = Eight::fetch(p.weight, column);
    if (k > 0) return;
    const int64_t first = angles + (interleaved ? column / 2 : column);
    load_floats(p.cos + first, cos);
    load_floats(p.sin + first, sin);
  });
  each_held<interleaved>(p, task.lane, [&](int k, int) {
    float w[vector_width] = {1, 1, 1, 1, 1, 1, 1, 1};
    if (p.weight.data != nullptr) weight[k].unpack(p.weight.dtype, w);
#pragma unroll
    for (int j = 0; j < vector_width; ++j) {
      turn.cos[k][j] = w[j] * cos[interleaved ? j / 2 : j];
      turn.sin[k][j] = w[j] * sin[interleaved ? j / 2 : j];
    }
  });
}

// Calls body(a, b, cos of a, cos of b, sin of a, sin of b) for every pair of a lane.
template <bool interleaved, class Body>
__device__ inline void each_pair(Values<interleaved>& v, const Turn<interleaved>& turn, const Body& body) {
#pragma unroll
  for (int i = 0; i < held<interleaved> * vector_width / 2; ++i) {
    constexpr int l = held<interleaved> - 1;
    const int j = interleaved ? 2 * i : i, m = interleaved ? j + 1 : j;
    body(v[0][j], v[l][m], turn.cos[0][j], turn.cos[l][m], turn.sin[0][j], turn.sin[l][m]);
  }
}

template <class Pack, int count>
__device__ inline void unpack(const Pack (&packs)[count], lk_dtype dtype, float (&v)[count][vector_width]) {
#pragma unroll
  for (int k = 0; k < count; ++k) packs[k].unpack(dtype, v[k]);
}

// The lanes of a head are a power of two.
__device__ inline float sum_of_head(float v, int lanes) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    if (offset < lanes) v += __shfl_xor_sync(0xffffffffu, v, offset);
  }
  return v;
}

__device__ inline float inverse_rms(float squares, const Heads& p) {
  return rsqrtf(sum_of_head(squares, p.lanes) * p.per_column + p.eps);
}

// `Width` is that of a head, known when this is compiled, or 0.
template <bool interleaved, int Width>
__device__ inline void know_width(Heads& p) {
  if constexpr (Width > 0) {
    p.width = Width, p.lanes = Width / (held<interleaved> * vector_width);
    p.per_column = 1.0f / static_cast<float>(Width);
  }
}

// `Type` is that of x and y, known when this is compiled, or LK_F32: any.
template <class Pack, bool interleaved, bool wide, lk_dtype Type, int Width>
__global__ void __launch_bounds__(task_threads<interleaved>, interleaved ? 4 : 5)
    rms_norm_rope_kernel(Heads p, Out y, HeadPlaces y_heads) {
  await_previous();
  know_width<interleaved, Width>(p);
  if constexpr (Type != LK_F32) p.x.dtype = y.dtype = Type;
  constexpr int count = heads_forward<Pack, interleaved>;
  const Task task = task_of(p);
  if (!task.exists) return;  // a whole warp
  Pack x[count][held<interleaved>];
  fetch<interleaved>(p, task, p.x, p.x_heads, x);
  Turn<interleaved> turn = {};
  if constexpr (wide) {
    load_wide_turn(p, task, turn);
  } else {
    load_turn<interleaved>(p, task, turn);
  }
  const int64_t first = y_heads.first(task.position), step = y_heads.step;
#pragma unroll
  for (int u = 0; u < count; ++u) {
    Values<interleaved> v;
    unpack(x[u], p.x.dtype, v);
    float squares = 0;
#pragma unroll
    for (int k = 0; k < held<interleaved>; ++k) {
#pragma unroll
      for (int j = 0; j < vector_width; ++j) squares += v[k][j] * v[k][j];
    }
    const float r = inverse_rms(squares, p);
    each_pair<interleaved>(v, turn, [r](float& a, float& b, float cos_a, float cos_b, float sin_a, float sin_b) {
      const float turned = r * (a * cos_a - b * sin_b);
      b = r * (a * sin_a + b * cos_b);
      a = turned;
    });
    const int head = task.head + u * task.step;
    if (head < task.end)
      each_held<interleaved>(p, task.lane, [&](int k, int column) { put(y, first + head * step + column, v[k]); });
  }
}

template <class Pack, bool interleaved, bool wide, lk_dtype Type, int Width>
__global__ void __launch_bounds__(task_threads<interleaved>, interleaved ? 3 : 4)
    rms_norm_rope_dx_kernel(Heads p, In dy_rows, HeadPlaces dy_heads, Out dx, HeadPlaces dx_heads) {
  await_previous();
  know_width<interleaved, Width>(p);
  if constexpr (Type != LK_F32) p.x.dtype = dy_rows.dtype = dx.dtype = Type;
  constexpr int count = heads_backward<Pack>;
  const Task task = task_of(p);
  if (!task.exists) return;
  Pack x[count][held<interleaved>], dy[count][held<interleaved>];
  fetch<interleaved>(p, task, p.x, p.x_heads, x);
  fetch<interleaved>(p, task, dy_rows, dy_heads, dy);
  Turn<interleaved> turn = {};
  if constexpr (wide) {
    load_wide_turn(p, task, turn);
  } else {
    load_turn<interleaved>(p, task, turn);
  }
  const int64_t first = dx_heads.first(task.position), step = dx_heads.step;
#pragma unroll
  for (int u = 0; u < count; ++u) {
    Values<interleaved> v, g;
    unpack(dy[u], dy_rows.dtype, g);
    each_pair<interleaved>(g, turn, [](float& a, float& b, float cos_a, float cos_b, float sin_a, float sin_b) {
      const float back = a * cos_a + b * sin_a;
      b = b * cos_b - a * sin_b;
      a = back;
    });
    unpack(x[u], p.x.dtype, v);
    float squares = 0, product = 0;
#pragma unroll
    for (int k = 0; k < held<interleaved>; ++k) {
#pragma unroll
      for (int j = 0; j < vector_width; ++j) {
        squares += v[k][j] * v[k][j];
        product += g[k][j] * v[k][j];
      }
    }
    const float r = inverse_rms(squares, p);
    const float factor = sum_of_head(product, p.lanes) * p.per_column * r * r;
    const int head = task.head + u * task.step;
    if (head >= task.end) continue;
    each_held<interleaved>(p, task.lane, [&](int k, int column) {
#pragma unroll
      for (int j = 0; j < vector_width; ++j) g[k][j] = r * (g[k][j] - v[k][j] * factor);
      put(dx, first + head * step + column, g[k]);
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

// What a pair's angles are like, known when this is compiled.
template <bool is_interleaved, bool is_wide>
struct Layout {
  static constexpr bool interleaved = is_interleaved, wide = is_wide;
};

// Calls launch(lanes, pack, layout, type, width) where lanes hold both halves of their pairs; false: nowhere.
template <class Params, class Body>
bool with_pairs(const Params& p, std::initializer_list<In> fetched, const lk_tensor& result, const Body& launch) {
  constexpr int64_t most_lanes = 32;
  const int64_t width = p.x.dims[3], per_lane = vector_width * (p.interleaved != 0 ? held<true> : held<false>);
  const int lanes = plan_rows(1, ceil_div(width, per_lane)).lanes;
  if (lanes > most_lanes || (p.interleaved == 0 && width != lanes * per_lane)) return false;
  bool same = true, packed = false;
  for (const In& x : fetched) same = same && x.dtype == result.dtype;
  const auto of_width = [&](auto pack, auto layout, auto type) {
    if constexpr (type() != LK_F32) {
      if (width == 64) return launch(lanes, pack, layout, type, std::integral_constant<int, 64>());
      if (width == 128) return launch(lanes, pack, layout, type, std::integral_constant<int, 128>());
    }
    launch(lanes, pack, layout, type, std::integral_constant<int, 0>());
  };
  const auto of_type = [&](auto pack, auto type) {
    packed = true;
    if (p.interleaved != 0) {
      of_width(pack, Layout<true, false>(), type);
    } else if (p.cos.dims[p.cos.rank - 1] == width) {
      of_width(pack, Layout<false, true>(), type);
    } else {
      of_width(pack, Layout<false, false>(), type);
    }
  };
  with_pack(fetched, {in(p.weight), in(p.cos), in(p.sin), in(result)}, width, [&](auto pack) {
    constexpr std::integral_constant<lk_dtype, LK_F32> any;
    if constexpr (std::is_same_v<decltype(pack), Eight16>) {
      if (same && result.dtype == LK_BF16) {
        of_type(pack, std::integral_constant<lk_dtype, LK_BF16>());
      } else if (same) {
        of_type(pack, std::integral_constant<lk_dtype, LK_F16>());
      } else {
        of_type(pack, any);
      }
    } else if constexpr (decltype(pack)::width == vector_width) {
      of_type(pack, any);
    }
  });
  return packed;
}

// Lines are products of last axes: a head, a position's heads, or several positions.
HeadPlaces head_places(const lk_tensor& t) {
  const int64_t heads = t.dims[2], width = t.dims[3];
  const LinePlaces lines = line_places(t, width);
  if (lines.rows_of_line == 1) return {1, heads * lines.pitch, heads * lines.pitch, lines.pitch};
  return {lines.rows_of_line / heads, lines.pitch, heads * width, width};
}

// `at_once`: heads that a group of lanes has on its way. A position's heads are shared out evenly to as few warps.
template <class Params>
Heads heads_of(const Params& p, int lanes, int at_once) {
  const int64_t heads = p.x.dims[2], parts = ceil_div(heads, at_once * (32 / lanes));
  return {in(p.x),
          in(p.weight),
          head_places(p.x),
          static_cast<const float*>(p.cos.data),
          static_cast<const float*>(p.sin.data),
          p.x.dims[0] * p.x.dims[1],
          p.x.dims[1],
          static_cast<int>(p.x.dims[3]),
          lanes,
          static_cast<int>(heads),
          static_cast<int>(parts),
          static_cast<int>(ceil_div(heads, parts)),
          p.cos.rank == 3,
          1.0f / static_cast<float>(p.x.dims[3]),
          p.eps};
}

struct Launch {
  dim3 grid, block;
};

template <bool interleaved>
Launch launch_of(const Heads& p) {
  constexpr int64_t warps = task_threads<interleaved> / 32;
  const int64_t across = ceil_div(p.parts, warps), parts = ceil_div(p.parts, across), positions = warps / parts;
  return {dim3(static_cast<unsigned>(ceil_div(p.positions, positions)), static_cast<unsigned>(across)),
          dim3(32, static_cast<unsigned>(parts), static_cast<unsigned>(positions))};
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
  const bool paired = with_pairs(p, {in(p.x)}, p.y, [&](int lanes, auto pack, auto layout, auto type, auto of_head) {
    using Pack = decltype(pack);
    using Of = decltype(layout);
    const Heads heads = heads_of(p, lanes, heads_forward<Pack, Of::interleaved>);
    const Launch how = launch_of<Of::interleaved>(heads);
    cuda.launch(rms_norm_rope_kernel<Pack, Of::interleaved, Of::wide, type(), of_head()>, how.grid, how.block, 0, heads,
                out(p.y), head_places(p.y));
  });
  if (!paired) norm_then_turn(cuda, p);
  y.store(cuda);
}

void rms_norm_rope_backward(Cuda& cuda, const lk_rms_norm_rope_backward_params& given) {
  lk_rms_norm_rope_backward_params p = given;
  const DenseOutput dx(cuda, given.dx, takes_lines(given.dx, given.dx.dims[3]));
  p.x = taken(cuda, given.x), p.dy = taken(cuda, given.dy), p.dx = dx.tensor();
  const bool paired =
      with_pairs(p, {in(p.x), in(p.dy)}, p.dx, [&](int lanes, auto pack, auto layout, auto type, auto of_head) {
        using Pack = decltype(pack);
        using Of = decltype(layout);
        const Heads heads = heads_of(p, lanes, heads_backward<Pack>);
        const Launch how = launch_of<Of::interleaved>(heads);
        cuda.launch(rms_norm_rope_dx_kernel<Pack, Of::interleaved, Of::wide, type(), of_head()>, how.grid, how.block, 0,
                    heads, in(p.dy), head_places(p.dy), out(p.dx), head_places(p.dx));
      });
  if (!paired) turn_back_then_norm(cuda, p);
  dx.store(cuda);
}

}  // namespace lk::cuda
