// The backward pass of attention_fragments.cuh. p = e^(scores - lse) is made again, twice: by blocks that own keys and
// pass over the queries for dk and dv, and by blocks that own queries and pass over the keys for dq. So every sum has
// one owner and a fixed order.
//   delta = sum_d(do o),  dp = do v^T,  ds = p (dp - delta),  dv = p^T do,  dk = scale ds^T q,  dq = scale ds k
// A cap on the scores multiplies ds by its slope. A block that owns keys takes the query heads of its group in turn.
//
// Both are one kernel: of what is owned and of what passes there are two matrices, k and v or q and do. The products of
// the first ones are the scores, those of the second ones dp, and the results are ds times the first that passes and,
// of keys, p times the second.
#include "cuda/attention_fragments.cuh"
#include "cuda/await_previous.cuh"

namespace lk::cuda {

namespace {

using namespace by_fragments;

struct Backward {
  Problem problem;
  const uint16_t* d_o;
  const float *lse, *delta;  // [batch, heads, queries]
  uint16_t *dq, *dk, *dv;
};

// Wide heads' results are divided among two warps, which both make the scores.
template <int width>
struct Division {
  static constexpr int sides = width > 160 ? 2 : 1, own = 64 / sides, columns = width / sides;
  static constexpr int passing = width <= 64 ? 64 : width <= 160 ? 32 : 16;
};

template <int width>
struct Shared {
  using D = Division<width>;
  alignas(16) uint16_t own[2][D::own * pitch<width>], passing[2][D::passing * pitch<width>];
  float lse[D::passing], delta[D::passing];  // of queries that pass
};

// lse / ln 2: infinity, which makes every p 0, where there is no query, and where one sees no key.
__device__ inline float log_sum_of(const Backward& b, int64_t statistics, int query) {
  const float lse = query < b.problem.scores.queries ? b.lse[statistics + query] : -INFINITY;
  return lse == -INFINITY ? INFINITY : lse * log2_e;
}
__device__ inline float delta_of(const Backward& b, int64_t statistics, int query) {
  return query < b.problem.scores.queries ? b.delta[statistics + query] : 0.0f;
}

// Products become p and ds, of 16 rows from `row` on and 8 * pieces columns from `column` on; lse and delta give those
// of the lane's element i of piece j.
template <bool keys_own, int pieces, class LogSum, class Delta>
__device__ inline void differentiate(float (&p)[pieces][4], float (&ds)[pieces][4], const Scores& scores,
                                     const Place& at, int row, int column, const LogSum& log_sum, const Delta& delta) {
  const int lane = lane_now();
  const bool all =
      keys_own ? all_seen(scores, at, column, pieces * 8, row, 16) : all_seen(scores, at, row, 16, column, pieces * 8);
  const bool plain = is_plain(scores);
  const float factor = scores.scale * log2_e;
#pragma unroll
  for (int j = 0; j < pieces; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int own = row + lane / 4 + i / 2 * 8, other = column + j * 8 + lane % 4 * 2 + i % 2;
      const int query = keys_own ? other : own, key = keys_own ? own : other;
      if (!all && !visible(scores, at.batch, at.length, query, key)) {
        p[j][i] = ds[j][i] = 0.0f;
        continue;
      }
      float slope = 1.0f, s = p[j][i] * factor;
      if (!plain) {
        const Score scored = score(scores, at.batch, at.head, query, key, p[j][i]);
        s = scored.value * log2_e;
        slope = scored.slope;
      }
      p[j][i] = exp2_fast(s - log_sum(j, i));
      ds[j][i] = p[j][i] * (ds[j][i] - delta(j, i)) * slope;
    }
  }
}

template <bool Bf16, int width, bool keys_own>
__global__ void __launch_bounds__(threads) attention_fragments_backward_kernel(const __grid_constant__ Backward b) {
  await_previous();
  extern __shared__ __align__(16) unsigned char memory[];
  using D = Division<width>;
  auto& shared = *reinterpret_cast<Shared<width>*>(memory);
  const Problem& p = b.problem;
  const int queries = static_cast<int>(p.scores.queries), keys = static_cast<int>(p.scores.keys);
  const int rows = keys_own ? keys : queries, tiles = (rows + D::own - 1) / D::own, group = p.heads / p.key_heads;
  const int index = static_cast<int>(blockIdx.x) / tiles, first = static_cast<int>(blockIdx.x) % tiles * D::own;
  Place at{};
  at.batch = index / (keys_own ? p.key_heads : p.heads);
  at.head = keys_own ? index % p.key_heads * group : index % p.heads;
  at.key_head = at.head / group;
  at.length = static_cast<int>(length_of(p.scores, at.batch));
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = lane_now();
  const int own = warp % (D::own / 16) * 16, column = warp / (D::own / 16) * D::columns;

  load_rows<width, D::own>(shared.own[0], keys_own ? keys_of(p, at, p.k) : queries_of(p, at, p.q), first, p.width);
  load_rows<width, D::own>(shared.own[1], keys_own ? keys_of(p, at, p.v) : queries_of(p, at, b.d_o), first, p.width);
  int begin = 0, end = p.scores.causal ? min(at.length, first + D::own) : at.length;
  if constexpr (keys_own) {
    begin = p.scores.causal ? first / D::passing * D::passing : 0;
    end = first < at.length ? queries : 0;
  }
  float log_sums[2], deltas[2];  // of queries that are owned
#pragma unroll
  for (int half = 0; half < 2 && !keys_own; ++half) {
    const int query = first + own + lane / 4 + half * 8;
    log_sums[half] = log_sum_of(b, int64_t{index} * queries, query);
    deltas[half] = delta_of(b, int64_t{index} * queries, query);
  }
  const auto square = [&](int which) {
    return [&shared, which, own](int step, uint32_t(&words)[4]) {
      load_square<width>(words, shared.own[which] + own * pitch<width>, step * 16);
    };
  };

  float sums[D::columns / 8][4] = {};  // dk or dq
  float dv[keys_own ? D::columns / 8 : 1][4] = {};
  for (int member = 0; member < (keys_own ? group : 1); ++member, ++at.head) {
    const int64_t statistics = (int64_t{at.batch} * p.heads + at.head) * queries;
    for (int tile = begin; tile < end; tile += D::passing) {
      __syncthreads();  // the tile before has been read
      load_rows<width, D::passing>(shared.passing[0], keys_own ? queries_of(p, at, p.q) : keys_of(p, at, p.k), tile,
                                   p.width);
      commit_copies();
      load_rows<width, D::passing>(shared.passing[1], keys_own ? queries_of(p, at, b.d_o) : keys_of(p, at, p.v), tile,
                                   p.width);
      commit_copies();
      if (keys_own && threadIdx.x < D::passing) {
        const int query = tile + static_cast<int>(threadIdx.x);
        shared.lse[threadIdx.x] = log_sum_of(b, statistics, query);
        shared.delta[threadIdx.x] = delta_of(b, statistics, query);
      }
      float weights[D::passing / 8][4], ds[D::passing / 8][4];
      wait_copies<1>();
      __syncthreads();
      multiply_rows<Bf16, width>(weights, square(0), shared.passing[0]);
      wait_copies<0>();
      __syncthreads();
      multiply_rows<Bf16, width>(ds, square(1), shared.passing[1]);
      differentiate<keys_own>(
          weights, ds, p.scores, at, first + own, tile,
          [&](int j, int i) { return keys_own ? shared.lse[j * 8 + lane % 4 * 2 + i % 2] : log_sums[i / 2]; },
          [&](int j, int i) { return keys_own ? shared.delta[j * 8 + lane % 4 * 2 + i % 2] : deltas[i / 2]; });
      if constexpr (keys_own) add_weighted<Bf16, width>(dv, weights, shared.passing[1] + column);
      add_weighted<Bf16, width>(sums, ds, shared.passing[0] + column);
    }
  }
  wait_copies<0>();  // what is owned, where nothing passed
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first + own + lane / 4 + half * 8;
    if (row >= rows) continue;
    const int64_t offset = keys_own ? keys_at(p, at) + int64_t{row} * p.key_heads * p.width
                                    : queries_at(p, {at.batch, index % p.heads}) + int64_t{row} * p.heads * p.width;
    store_row<Bf16>(sums, half, p.scores.scale, (keys_own ? b.dk : b.dq) + offset, column, p.width);
    if constexpr (keys_own) store_row<Bf16>(dv, half, 1.0f, b.dv + offset, column, p.width);
  }
}

template <bool Bf16, int width, bool keys_own>
void run(Cuda& cuda, const Backward& b, int64_t rows, int64_t heads) {
  const auto blocks = static_cast<unsigned>(ceil_div(rows, Division<width>::own) * heads);
  cuda.launch(attention_fragments_backward_kernel<Bf16, width, keys_own>, blocks, threads, sizeof(Shared<width>), b);
}

}  // namespace

bool attention_backward_by_fragments(Cuda& cuda, const lk_attention_backward_params& p) {
  if (const char* const why = unsuitable(cuda, p, {&p.q, &p.k, &p.v, &p.d_o, &p.dq, &p.dk, &p.dv}); why != nullptr)
    return cuda.passes_over("own kernels with matrix instructions", why);
  const Backward b{.problem = problem_of(p),
                   .d_o = static_cast<const uint16_t*>(p.d_o.data),
                   .lse = static_cast<const float*>(p.lse.data),
                   .delta = attention_delta(cuda, p),
                   .dq = static_cast<uint16_t*>(p.dq.data),
                   .dk = static_cast<uint16_t*>(p.dk.data),
                   .dv = static_cast<uint16_t*>(p.dv.data)};
  by_width(p.q.dtype == LK_BF16, p.q.dims[3], [&]<bool Bf16, int width>() {
    run<Bf16, width, true>(cuda, b, p.k.dims[1], p.q.dims[0] * p.k.dims[2]);
    run<Bf16, width, false>(cuda, b, p.q.dims[1], p.q.dims[0] * p.q.dims[2]);
  });
  return true;
}

}  // namespace lk::cuda
