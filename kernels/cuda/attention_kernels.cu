// Attention in float32 without ever storing the scores: for what neither cuDNN nor the kernels with matrix instructions
// (attention_fragments.cuh) do.
//
// Forward. A block owns 64 queries of a head. It passes over the keys in tiles of 64 and keeps, for each of its rows,
// the largest score so far, the sum of exponentials relative to it, and the output relative to it (online softmax).
//
// Backward. p = e^(scores - lse) is made again, twice: one kernel owns 64 keys and passes over the queries for dk and
// dv, one owns 64 queries and passes over the keys for dq. So every sum has one owner and a fixed order.
//   delta = sum_d(do o),  dp = do v^T,  ds = p (dp - delta),  dv = p^T do,  dk = scale ds^T q,  dq = scale ds k
// A cap on the scores multiplies ds by its slope 1 - tanh^2. The keys' block takes the query heads of its group in
// turn.
//
// A block holds up to `Columns` columns of its results in registers; wider heads take several blocks, which repeat
// the scores. A query that sees no key has o = 0, lse = -inf and takes no part in gradients.
#include <algorithm>

#include "cuda/attention.h"
#include "cuda/attention_scores.cuh"
#include "cuda/await_previous.cuh"
#include "cuda/tile.cuh"
#include "cuda/types.cuh"

namespace lk::cuda {

namespace {

constexpr int depth_step = 32;  // of a product over the head's width, staged at once
using Stage = TileRow[2 * depth_step];
constexpr int stage_floats = tile * tile;  // of a product over rows: stage_floats / Columns rows at once
static_assert(stage_floats <= 2 * depth_step * tile_pitch);

// A tensor [batch, rows, heads, width] that is read by heads.
struct Heads {
  In in;
  bool wide_loads;
};

// One head's matrix; rows at and after `rows` and columns at and after `width` read as zero.
struct Matrix {
  In in;
  int64_t offset, stride, rows, width;
  bool wide_loads;
};

struct Problem {
  Heads q, k, v;
  Scores scores;
  int64_t batch, queries, keys, heads, key_heads, width;
};

// Which head a block works on, which of its tiles and which of its columns. The head is one of q, and key_head the one
// that it reads.
struct Place {
  int64_t batch, head, key_head, first, column;
  int64_t length;  // keys that this batch item has
};

// Of a block that owns `rows` of each of `heads`: those of q or of k. A block that owns keys begins with the first
// query head of its group.
__device__ Place place(const Problem& a, int64_t rows, int64_t heads, int columns) {
  const int64_t tiles = (rows + tile - 1) / tile, index = blockIdx.x, group = a.heads / a.key_heads;
  const int64_t head = index / tiles % (a.batch * heads);
  Place at;
  at.batch = head / heads;
  at.head = head % heads * (a.heads / heads);
  at.key_head = at.head / group;
  at.first = index % tiles * tile;
  at.column = index / (tiles * a.batch * heads) * columns;
  at.length = length_of(a.scores, at.batch);
  return at;
}

__device__ Matrix query_matrix(const Problem& a, const Place& at, const Heads& x) {
  return {x.in,        (at.batch * a.queries * a.heads + at.head) * a.width, a.heads * a.width, a.queries, a.width,
          x.wide_loads};
}

__device__ Matrix key_matrix(const Problem& a, const Place& at, const Heads& x, int64_t limit) {
  return {x.in,        (at.batch * a.keys * a.key_heads + at.key_head) * a.width, a.key_heads * a.width, limit, a.width,
          x.wide_loads};
}

// Columns column .. + 7 of a row; column is a multiple of 8.
__device__ void load_run(const Matrix& x, int64_t row, int64_t column, float (&v)[8]) {
  const int64_t at = x.offset + row * x.stride + column;
  if (row < x.rows && x.wide_loads && column < x.width) {
    load8(x.in, at, v);
    return;
  }
#pragma unroll
  for (int k = 0; k < 8; ++k) v[k] = row < x.rows && column + k < x.width ? load(x.in, at + k) : 0.0f;
}

// s = a b^T for the 64 rows of a from a0 and of b from b0.
__device__ void multiply_rows(Stage& stage, const Matrix& a, int64_t a0, const Matrix& b, int64_t b0,
                              float (&s)[4][4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) s[i][j] = 0.0f;
  }
  const int row = static_cast<int>(threadIdx.x) % tile, part = static_cast<int>(threadIdx.x) / tile * 8;
  for (int64_t d = 0; d < a.width; d += depth_step) {
    float x[8], y[8];
    load_run(a, a0 + row, d + part, x);
    load_run(b, b0 + row, d + part, y);
    __syncthreads();  // the stage has been read
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      stage[part + k][row] = x[k];
      stage[depth_step + part + k][row] = y[k];
    }
    __syncthreads();
    multiply_tile(stage, stage + depth_step, depth_step, s);
  }
}

// Keeps a thread's elements of a tile at weights[column][row].
__device__ void keep_transposed(TileRow* weights, const float (&s)[4][4]) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    *reinterpret_cast<float4*>(&weights[tile_column() + j][tile_row()]) =
        make_float4(s[0][j], s[1][j], s[2][j], s[3][j]);
  }
}

// sum += weights^T x over the 64 rows of x from row0. Thread t has rows 4 (t / 16) .. + 3 of the result and, of every
// 64 columns from column0, columns 4 (t % 16) .. + 3. The first barrier in here also makes `weights` visible.
template <int Columns>
__device__ void add_weighted_rows(Stage& stage, const TileRow* weights, const Matrix& x, int64_t row0, int64_t column0,
                                  float (&sum)[4][Columns / 16]) {
  constexpr int rows = stage_floats / Columns, runs = Columns / 8;
  static_assert(rows * runs == 2 * tile_threads);
  float* const staged = &stage[0][0];
  for (int first = 0; first < tile && row0 + first < x.rows; first += rows) {
    float v[2][8];
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const int run = static_cast<int>(threadIdx.x) + n * tile_threads;
      load_run(x, row0 + first + run / runs, column0 + run % runs * 8, v[n]);
    }
    __syncthreads();  // the stage has been read
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      float4* const to = reinterpret_cast<float4*>(staged + (threadIdx.x + n * tile_threads) * 8);
      to[0] = make_float4(v[n][0], v[n][1], v[n][2], v[n][3]);
      to[1] = make_float4(v[n][4], v[n][5], v[n][6], v[n][7]);
    }
    __syncthreads();
#pragma unroll 4
    for (int r = 0; r < rows; ++r) {
#pragma unroll
      for (int c = 0; c < Columns / tile; ++c) {
        add_products(&weights[first + r][tile_row()], staged + r * Columns + c * tile + tile_column(), sum, c * 4);
      }
    }
  }
}

template <int Values>
__device__ void set_zero(float (&sum)[4][Values]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < Values; ++j) sum[i][j] = 0.0f;
  }
}

// Writes factor[i] * sum[i] to the rows of head number `head` of `heads`.
template <int Columns>
__device__ void write_rows(const Problem& a, const Place& at, int64_t rows, int64_t head, int64_t heads, const Out& y,
                           const float (&sum)[4][Columns / 16], const float (&factor)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int64_t row = at.first + tile_row() + i;
    if (row >= rows) continue;
    const int64_t offset = ((at.batch * rows + row) * heads + head) * a.width;
#pragma unroll
    for (int j = 0; j < Columns / 16; ++j) {
      const int64_t column = at.column + j / 4 * tile + tile_column() + j % 4;
      if (column < a.width) store(y, offset + column, factor[i] * sum[i][j]);
    }
  }
}

// Over the 16 threads that share the rows of a tile.
__device__ float row_max(float v) {
#pragma unroll
  for (int offset = 8; offset > 0; offset /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, offset));
  return v;
}

__device__ float row_sum(float v) {
#pragma unroll
  for (int offset = 8; offset > 0; offset /= 2) v += __shfl_xor_sync(0xffffffffu, v, offset);
  return v;
}

template <int Columns>
__global__ void __launch_bounds__(tile_threads) attention_kernel(Problem a, Out o, float* lse) {
  await_previous();
  __shared__ __align__(16) Stage stage;
  __shared__ __align__(16) TileRow weights[tile];
  const Place at = place(a, a.queries, a.heads, Columns);
  const int64_t seen = a.scores.causal ? min(at.length, at.first + tile) : at.length;
  const Matrix q = query_matrix(a, at, a.q);
  const Matrix k = key_matrix(a, at, a.k, seen), v = key_matrix(a, at, a.v, seen);
  float sum[4][Columns / 16], largest[4], total[4];
  set_zero(sum);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    largest[i] = -INFINITY;
    total[i] = 0.0f;
  }
  for (int64_t first = 0; first < seen; first += tile) {
    float s[4][4];
    multiply_rows(stage, q, at.first, k, first, s);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int64_t query = at.first + tile_row() + i;
      float top = largest[i];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int64_t key = first + tile_column() + j;
        s[i][j] = visible(a.scores, at.batch, at.length, query, key)
                      ? score(a.scores, at.batch, at.head, query, key, s[i][j]).value
                      : -INFINITY;
        top = fmaxf(top, s[i][j]);
      }
      top = row_max(top);
      const float shift = top == -INFINITY ? 0.0f : top;  // so that e^(-inf - shift) is 0
      float part = 0.0f;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        s[i][j] = expf(s[i][j] - shift);
        part += s[i][j];
      }
      const float factor = expf(largest[i] - shift);
      total[i] = total[i] * factor + row_sum(part);
      largest[i] = top;
#pragma unroll
      for (int j = 0; j < Columns / 16; ++j) sum[i][j] *= factor;
    }
    keep_transposed(weights, s);
    add_weighted_rows<Columns>(stage, weights, v, first, at.column, sum);
  }
  float inverse[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int64_t query = at.first + tile_row() + i;
    inverse[i] = total[i] == 0.0f ? 0.0f : 1.0f / total[i];
    if (lse != nullptr && at.column == 0 && tile_column() == 0 && query < a.queries) {
      const float shift = largest[i] == -INFINITY ? 0.0f : largest[i];
      lse[(at.batch * a.heads + at.head) * a.queries + query] = total[i] == 0.0f ? -INFINITY : shift + logf(total[i]);
    }
  }
  write_rows<Columns>(a, at, a.queries, at.head, a.heads, o, sum, inverse);
}

struct Gradients {
  Heads d_o;
  const float *lse, *delta;
};

// s becomes p and dp becomes ds, for one query and one key.
__device__ void differentiate(const Problem& a, const Place& at, int64_t query, int64_t key, float log_sum, float delta,
                              float& s, float& dp) {
  if (log_sum == -INFINITY || !visible(a.scores, at.batch, at.length, query, key)) {
    s = dp = 0.0f;
    return;
  }
  const Score scored = score(a.scores, at.batch, at.head, query, key, s);
  s = expf(scored.value - log_sum);
  dp = s * (dp - delta) * scored.slope;
}

// Two blocks on a multiprocessor where the results are small enough: worth a few registers in local memory.
template <int Columns>
__global__ void __launch_bounds__(tile_threads, Columns == 64 ? 2 : 1)
    attention_key_gradient_kernel(Problem a, Gradients g, Out dk, Out dv) {
  await_previous();
  __shared__ __align__(16) Stage stage;
  __shared__ __align__(16) TileRow weights[tile];
  Place at = place(a, a.keys, a.key_heads, Columns);
  const Matrix k = key_matrix(a, at, a.k, at.length), v = key_matrix(a, at, a.v, at.length);
  const int64_t last = at.first < at.length ? a.queries : 0, last_head = at.head + a.heads / a.key_heads;
  float dk_sum[4][Columns / 16], dv_sum[4][Columns / 16];
  set_zero(dk_sum);
  set_zero(dv_sum);
  for (; at.head < last_head; ++at.head) {
    const Matrix q = query_matrix(a, at, a.q), d_o = query_matrix(a, at, g.d_o);
    const int64_t statistics = (at.batch * a.heads + at.head) * a.queries;
    for (int64_t first = a.scores.causal ? at.first : 0; first < last; first += tile) {
      float s[4][4], dp[4][4];
      multiply_rows(stage, k, at.first, q, first, s);
      multiply_rows(stage, v, at.first, d_o, first, dp);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int64_t query = first + tile_column() + j;
        const float log_sum = query < a.queries ? g.lse[statistics + query] : -INFINITY;
        const float delta = query < a.queries ? g.delta[statistics + query] : 0.0f;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          differentiate(a, at, query, at.first + tile_row() + i, log_sum, delta, s[i][j], dp[i][j]);
        }
      }
      keep_transposed(weights, s);
      add_weighted_rows<Columns>(stage, weights, d_o, first, at.column, dv_sum);
      __syncthreads();  // the weights have been read
      keep_transposed(weights, dp);
      add_weighted_rows<Columns>(stage, weights, q, first, at.column, dk_sum);
    }
  }
  const float one[4] = {1.0f, 1.0f, 1.0f, 1.0f},
              scale[4] = {a.scores.scale, a.scores.scale, a.scores.scale, a.scores.scale};
  write_rows<Columns>(a, at, a.keys, at.key_head, a.key_heads, dv, dv_sum, one);
  write_rows<Columns>(a, at, a.keys, at.key_head, a.key_heads, dk, dk_sum, scale);
}

template <int Columns>
__global__ void __launch_bounds__(tile_threads) attention_query_gradient_kernel(Problem a, Gradients g, Out dq) {
  await_previous();
  __shared__ __align__(16) Stage stage;
  __shared__ __align__(16) TileRow weights[tile];
  const Place at = place(a, a.queries, a.heads, Columns);
  const int64_t seen = a.scores.causal ? min(at.length, at.first + tile) : at.length;
  const Matrix q = query_matrix(a, at, a.q), d_o = query_matrix(a, at, g.d_o);
  const Matrix k = key_matrix(a, at, a.k, seen), v = key_matrix(a, at, a.v, seen);
  const int64_t statistics = (at.batch * a.heads + at.head) * a.queries;
  float sum[4][Columns / 16], log_sum[4], delta[4];
  set_zero(sum);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int64_t query = at.first + tile_row() + i;
    log_sum[i] = query < a.queries ? g.lse[statistics + query] : -INFINITY;
    delta[i] = query < a.queries ? g.delta[statistics + query] : 0.0f;
  }
  for (int64_t first = 0; first < seen; first += tile) {
    float s[4][4], dp[4][4];
    multiply_rows(stage, q, at.first, k, first, s);
    multiply_rows(stage, d_o, at.first, v, first, dp);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        differentiate(a, at, at.first + tile_row() + i, first + tile_column() + j, log_sum[i], delta[i], s[i][j],
                      dp[i][j]);
      }
    }
    keep_transposed(weights, dp);
    add_weighted_rows<Columns>(stage, weights, k, first, at.column, sum);
  }
  const float scale[4] = {a.scores.scale, a.scores.scale, a.scores.scale, a.scores.scale};
  write_rows<Columns>(a, at, a.queries, at.head, a.heads, dq, sum, scale);
}

Heads heads(const lk_tensor& t) { return {in(t), aligned(t, t.dims[3])}; }

template <class Params>
Problem problem(const Params& p) {
  return {.q = heads(p.q),
          .k = heads(p.k),
          .v = heads(p.v),
          .scores = scores_of(p),
          .batch = p.q.dims[0],
          .queries = p.q.dims[1],
          .keys = p.k.dims[1],
          .heads = p.q.dims[2],
          .key_heads = p.k.dims[2],
          .width = p.q.dims[3]};
}

dim3 blocks(const Problem& a, int64_t rows, int64_t heads, int columns) {
  return dim3(static_cast<unsigned>(ceil_div(rows, tile) * a.batch * heads * ceil_div(a.width, columns)));
}

}  // namespace

void attention_by_kernels(Cuda& cuda, const lk_attention_params& p) {
  const Problem a = problem(p);
  const int columns = a.width <= 64 ? 64 : a.width <= 128 ? 128 : 256;
  const auto kernel = columns == 64    ? attention_kernel<64>
                      : columns == 128 ? attention_kernel<128>
                                       : attention_kernel<256>;
  cuda.launch(kernel, blocks(a, a.queries, a.heads, columns), tile_threads, 0, a, out(p.o),
              static_cast<float*>(p.lse.data));
}

void attention_backward_by_kernels(Cuda& cuda, const lk_attention_backward_params& p) {
  const Problem a = problem(p);
  const Gradients g{heads(p.d_o), static_cast<const float*>(p.lse.data), attention_delta(cuda, p)};
  const int columns = a.width <= 64 ? 64 : 128;
  cuda.launch(columns == 64 ? attention_key_gradient_kernel<64> : attention_key_gradient_kernel<128>,
              blocks(a, a.keys, a.key_heads, columns), tile_threads, 0, a, g, out(p.dk), out(p.dv));
  cuda.launch(columns == 64 ? attention_query_gradient_kernel<64> : attention_query_gradient_kernel<128>,
              blocks(a, a.queries, a.heads, columns), tile_threads, 0, a, g, out(p.dq));
}

}  // namespace lk::cuda
