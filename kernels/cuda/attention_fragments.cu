// The forward pass of attention_fragments.cuh. A block owns 64 queries and passes over the keys; a warp keeps, for each
// of its rows, the largest score so far, and the sum of exponentials and the output relative to it (online softmax).
// The sum that o is divided by is of the weights before they are rounded.
#include "cuda/attention_fragments.cuh"
#include "cuda/await_previous.cuh"

namespace lk::cuda {

namespace {

using namespace by_fragments;

constexpr int tile = 64;  // queries of a block

struct Forward {
  Problem problem;
  uint16_t* o;
  float* lse;  // [batch, heads, queries], or nullptr
};

// Keys that are in shared memory at a time; the queries pass through the same place first.
template <int width>
constexpr int keys_at_once = width <= 128 ? 64 : 32;

// Of the warp's 16 queries from `query` on, the lane's two.
template <int columns>
struct Sums {
  float o[columns][4] = {};
  float largest[2] = {-INFINITY, -INFINITY}, total[2] = {};
};

// Products become scores, -infinity where a query does not see.
template <int pieces>
__device__ inline void take_scores(float (&s)[pieces][4], const Scores& scores, const Place& at, int query, int key) {
  const int lane = lane_now();
  const bool all = all_seen(scores, at, query, 16, key, pieces * 8), plain = is_plain(scores);
  const float factor = scores.scale * log2_e;
#pragma unroll
  for (int j = 0; j < pieces; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = query + lane / 4 + i / 2 * 8, column = key + j * 8 + lane % 4 * 2 + i % 2;
      if (!all && !visible(scores, at.batch, at.length, row, column))
        s[j][i] = -INFINITY;
      else
        s[j][i] = plain ? s[j][i] * factor : score(scores, at.batch, at.head, row, column, s[j][i]).value * log2_e;
    }
  }
}

// Scores become weights relative to the largest score so far, to which what is summed up is brought.
template <int pieces, int columns>
__device__ inline void take_weights(float (&s)[pieces][4], Sums<columns>& sums) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float top = sums.largest[half];
#pragma unroll
    for (int j = 0; j < pieces; ++j) top = fmaxf(top, fmaxf(s[j][half * 2], s[j][half * 2 + 1]));
    top = quad_max(top);
    const float shift = top == -INFINITY ? 0.0f : top;  // so that 2^(-inf - shift) is 0
    const float kept = exp2_fast(sums.largest[half] - shift);
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < pieces; ++j) {
#pragma unroll
      for (int i = half * 2; i < half * 2 + 2; ++i) sum += s[j][i] = exp2_fast(s[j][i] - shift);
    }
    sums.total[half] = sums.total[half] * kept + quad_sum(sum);
    sums.largest[half] = top;
#pragma unroll
    for (int c = 0; c < columns; ++c) sums.o[c][half * 2] *= kept, sums.o[c][half * 2 + 1] *= kept;
  }
}

template <bool Bf16, int width>
__global__ void __launch_bounds__(threads) attention_fragments_kernel(const __grid_constant__ Forward f) {
  await_previous();
  extern __shared__ __align__(16) uint16_t memory[];
  constexpr int keys = keys_at_once<width>;
  static_assert(tile <= 2 * keys);
  uint16_t *const k = memory, *const v = memory + keys * pitch<width>;
  const Problem& p = f.problem;
  const int queries = static_cast<int>(p.scores.queries), tiles = (queries + tile - 1) / tile;
  const int index = static_cast<int>(blockIdx.x) / tiles, first = static_cast<int>(blockIdx.x) % tiles * tile;
  Place at{.batch = index / p.heads, .head = index % p.heads};
  at.key_head = at.head / (p.heads / p.key_heads);
  at.length = static_cast<int>(length_of(p.scores, at.batch));
  const int seen = p.scores.causal ? min(at.length, first + tile) : at.length;
  const int own = static_cast<int>(threadIdx.x) / 32 * 16;
  uint32_t q[width / 16][4];
  load_rows<width, tile>(memory, queries_of(p, at, p.q), first, p.width);
  commit_copies();
  wait_copies<0>();
  __syncthreads();
#pragma unroll
  for (int step = 0; step < width / 16; ++step) load_square<width>(q[step], memory + own * pitch<width>, step * 16);
  __syncthreads();
  const auto square = [&](int step, uint32_t(&words)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = q[step][i];
  };
  const auto load = [&](uint16_t* to, const uint16_t* x, int key) {
    if (key < seen) load_rows<width, keys>(to, keys_of(p, at, x), key, p.width);
    commit_copies();
  };
  Sums<width / 8> sums;
  load(k, p.k, 0);
  load(v, p.v, 0);
  for (int key = 0; key < seen; key += keys) {
    float s[keys / 8][4];
    wait_copies<1>();
    __syncthreads();
    multiply_rows<Bf16, width>(s, square, k);
    __syncthreads();
    load(k, p.k, key + keys);
    take_scores(s, p.scores, at, first + own, key);
    take_weights(s, sums);
    wait_copies<1>();
    __syncthreads();
    add_weighted<Bf16, width>(sums.o, s, v);
    __syncthreads();
    load(v, p.v, key + keys);
  }
  const int lane = lane_now();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int query = first + own + lane / 4 + half * 8;
    if (query >= queries) continue;
    const float total = sums.total[half];
    store_row<Bf16>(sums.o, half, total == 0.0f ? 0.0f : 1.0f / total,
                    f.o + queries_at(p, at) + int64_t{query} * p.heads * p.width, 0, p.width);
    if (f.lse != nullptr && lane % 4 == 0)
      f.lse[int64_t{index} * queries + query] =
          total == 0.0f ? -INFINITY : sums.largest[half] * (1.0f / log2_e) + logf(total);
  }
}

}  // namespace

bool attention_by_fragments(Cuda& cuda, const lk_attention_params& p) {
  if (const char* const why = unsuitable(cuda, p, {&p.q, &p.k, &p.v, &p.o}); why != nullptr)
    return cuda.passes_over("own kernels with matrix instructions", why);
  const Forward f{problem_of(p), static_cast<uint16_t*>(p.o.data), static_cast<float*>(p.lse.data)};
  const auto blocks = static_cast<unsigned>(ceil_div(p.q.dims[1], tile) * p.q.dims[0] * p.q.dims[2]);
  by_width(p.q.dtype == LK_BF16, p.q.dims[3], [&]<bool Bf16, int width>() {
    cuda.launch(attention_fragments_kernel<Bf16, width>, blocks, threads,
                2 * keys_at_once<width> * pitch<width> * sizeof(uint16_t), f);
  });
  return true;
}

}  // namespace lk::cuda
