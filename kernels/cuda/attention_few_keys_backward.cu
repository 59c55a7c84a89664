// The backward pass of attention to few keys. A block has all keys of a head and a run of its queries, in tiles of 64:
//   s = q k^T,  p = exp(scale s - lse),  dp = do v^T,  delta = sum over keys(p dp),  ds = p (dp - delta)
//   dq = scale ds k;  dv += p^T do,  dk += scale ds^T q
// Every key is there, so delta needs no o. A warp makes p and ds of 16 queries or more and of half of the keys, in
// registers; they go through shared memory, rounded to 16 bits, and then each warp has columns of dq, and columns of dv
// or of dk of all keys, which stay in its registers from tile to tile.
//
// The blocks of a head leave float32 parts of dk and dv in memory, which a second kernel adds in their order.
#include <algorithm>

#include "cuda/attention_few_keys.cuh"
#include "cuda/attention_few_keys.h"
#include "cuda/await_previous.cuh"

namespace lk::cuda {

namespace {

using namespace few_keys;

constexpr int tile = 64;  // queries

struct Backward {
  Problem problem;
  Heads d_o, dq, dk, dv;
  const float* lse;  // [batch, heads, queries]
  float* parts;      // [batch, heads, splits, dv and dk, keys, 64]
  int splits;        // blocks of a head
};

// How the work on `keys` keys is divided among warps, which have `tall` times 16 queries each.
template <int keys, int tall>
struct Division {
  static constexpr int warps = tile / 16 / tall * 2, threads = warps * 32;
  static constexpr int pieces = keys / 16;             // of 8 keys, in half of the keys
  static constexpr int columns = width / (warps / 2);  // of dv or dk, that a warp has
  static constexpr int pitch = keys + 8;               // of p and ds: eight rows are in all banks
  static constexpr int together = keys > 80 ? 1 : 2;   // blocks on a processor
  static constexpr int squares = keys / 16;
};

template <int keys, int tall>
struct Shared {
  unsigned char k[keys * row_bytes], v[keys * row_bytes];
  unsigned char q[2][tile * row_bytes], d_o[2][tile * row_bytes];
  alignas(16) uint16_t p[tile * Division<keys, tall>::pitch], ds[tile * Division<keys, tall>::pitch];
  float delta[2][tile];  // of both halves of the keys
};

// lse / ln 2 of the lane's rows; infinity, which makes every p 0, where there is no query, and where one sees no key.
template <int tall>
__device__ inline void load_log_sums(float (&sums)[tall][2], const Backward& b, int head, int first) {
  const Problem& p = b.problem;
#pragma unroll
  for (int m = 0; m < tall; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = first + m * 16 + half * 8 + static_cast<int>(threadIdx.x) % 32 / 4;
      const float lse = query < p.queries ? b.lse[int64_t{head} * p.queries + query] : -INFINITY;
      sums[m][half] = lse == -INFINITY ? INFINITY : lse * log2_e;
    }
  }
}

template <int threads>
__device__ inline void load_tile(unsigned char* q, unsigned char* d_o, const Backward& b, int head, int first) {
  load_queries<tile, threads>(q, b.problem, b.problem.q, head, first);
  load_queries<tile, threads>(d_o, b.problem, b.d_o, head, first);
  commit_copies();
}

// Sums [16 tall, 8 pieces] in 16 bits, to the rows and columns from `to` on.
template <bool Bf16, int pitch, int tall, int pieces>
__device__ inline void keep(const float (&sums)[tall][pieces][4], uint16_t* to) {
  const int lane = lane_now();
  uint16_t* const own = to + lane / 4 * pitch + lane % 4 * 2;
#pragma unroll
  for (int m = 0; m < tall; ++m) {
#pragma unroll
    for (int j = 0; j < pieces; ++j) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        *reinterpret_cast<uint32_t*>(own + (m * 16 + half * 8) * pitch + j * 8) =
            pack<Bf16>(sums[m][j][half * 2], sums[m][j][half * 2 + 1]);
      }
    }
  }
}

// p and ds of the tile in `stage`, into shared memory. All threads of the block pass the barrier in here.
template <bool Bf16, int keys, int tall>
__device__ inline void differentiate(Shared<keys, tall>& shared, int stage, int row, int side, uint32_t seen,
                                     float factor, const float (&log_sums)[tall][2]) {
  using D = Division<keys, tall>;
  const int lane = lane_now(), first_key = side * (keys / 2);
  const int corner = row * D::pitch + first_key;
  float p[tall][D::pieces][4], ds[tall][D::pieces][4];
  multiply_rows<Bf16, 1>(p, shared.q[stage], row, shared.k, first_key, lane);
  multiply_rows<Bf16, 1>(ds, shared.d_o[stage], row, shared.v, first_key, lane);
#pragma unroll
  for (int m = 0; m < tall; ++m) {
    float delta[2] = {};
#pragma unroll
    for (int j = 0; j < D::pieces; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float weight = exp2_fast(fmaf(p[m][j][i], factor, -log_sums[m][i / 2]));
        p[m][j][i] = is_seen(seen, j, i) ? weight : 0.0f;
        delta[i / 2] = fmaf(p[m][j][i], ds[m][j][i], delta[i / 2]);
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = quad_sum(delta[half]);
      if (lane % 4 == 0) shared.delta[side][row + m * 16 + half * 8 + lane / 4] = sum;
    }
  }
  keep<Bf16, D::pitch>(p, shared.p + corner);
  __syncthreads();
#pragma unroll
  for (int m = 0; m < tall; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = row + m * 16 + half * 8 + lane / 4;
      const float delta = shared.delta[0][at] + shared.delta[1][at];
#pragma unroll
      for (int j = 0; j < D::pieces; ++j) {
#pragma unroll
        for (int i = half * 2; i < half * 2 + 2; ++i) ds[m][j][i] = p[m][j][i] * (ds[m][j][i] - delta);
      }
    }
  }
  keep<Bf16, D::pitch>(ds, shared.ds + corner);
}

// 32 columns of dq, from column `side` * 32 on, of the warp's rows.
template <bool Bf16, int keys, int tall>
__device__ inline void store_dq(const Backward& b, Shared<keys, tall>& shared, int head, int first, int row, int side) {
  using D = Division<keys, tall>;
  const int lane = lane_now();
  float dq[tall][4][4] = {};
#pragma unroll
  for (int step = 0; step < D::squares; ++step) {
    uint32_t words[2][4];
    load_square<true>(words[0], shared.k, step * 16, side * 4, lane);
    load_square<true>(words[1], shared.k, step * 16, side * 4 + 2, lane);
#pragma unroll
    for (int m = 0; m < tall; ++m) {
      uint32_t a[4];
      load_matrices<false>(a, shared.ds + (row + m * 16 + lane % 16) * D::pitch + step * 16 + lane / 16 * 8);
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        multiply_add_one<Bf16, 0>(dq[m][j * 2], a, words[j]);
        multiply_add_one<Bf16, 1>(dq[m][j * 2 + 1], a, words[j]);
      }
    }
  }
  uint16_t* const to = static_cast<uint16_t*>(b.dq.data) + head_at<width>(b.dq.at, head, b.problem.heads) + side * 32;
#pragma unroll
  for (int m = 0; m < tall; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = first + row + m * 16 + half * 8 + lane / 4;
      store_row<Bf16>(dq[m], 0, half, b.problem.scale, to + query * b.dq.at.row, query < b.problem.queries);
    }
  }
}

// sums [keys, columns] += weights^T x, over the queries of the tile.
template <bool Bf16, int keys, int tall>
__device__ inline void add_keys(float (&sums)[keys / 16][Division<keys, tall>::columns / 8][4], const uint16_t* weights,
                                unsigned char* x, int chunk) {
  using D = Division<keys, tall>;
  const int lane = lane_now();
#pragma unroll
  for (int step = 0; step < tile / 16; ++step) {
    uint32_t words[D::columns / 16][4];
#pragma unroll
    for (int j = 0; j < D::columns / 16; ++j) load_square<true>(words[j], x, step * 16, chunk + j * 2, lane);
#pragma unroll
    for (int m = 0; m < D::squares; ++m) {
      uint32_t a[4];
      load_matrices<true>(a, weights + (step * 16 + lane / 16 * 8 + lane % 8) * D::pitch + m * 16 + lane / 8 % 2 * 8);
#pragma unroll
      for (int j = 0; j < D::columns / 16; ++j) {
        multiply_add_one<Bf16, 0>(sums[m][j * 2], a, words[j]);
        multiply_add_one<Bf16, 1>(sums[m][j * 2 + 1], a, words[j]);
      }
    }
  }
}

// What a warp has of dv or dk, as the block's part or, where it is the head's only one, as the result.
template <bool Bf16, int squares, int pieces>
__device__ inline void store_keys(const Backward& b, const float (&sums)[squares][pieces][4], bool is_dk, int head,
                                  int split, int first_column) {
  const Problem& p = b.problem;
  const int lane = lane_now(), column = first_column + lane % 4 * 2;
  const Heads& y = is_dk ? b.dk : b.dv;
  const float factor = is_dk ? p.scale : 1.0f;
  float* const part = b.parts + ((int64_t{head} * b.splits + split) * 2 + is_dk) * p.keys * width;
  uint16_t* const whole = static_cast<uint16_t*>(y.data) + head_at<width>(y.at, head, p.heads);
#pragma unroll
  for (int m = 0; m < squares; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int key = m * 16 + half * 8 + lane / 4;
      if (key >= p.keys) continue;
#pragma unroll
      for (int j = 0; j < pieces; ++j) {
        const float low = sums[m][j][half * 2], high = sums[m][j][half * 2 + 1];
        const int at = column + j * 8;
        if (b.splits > 1)
          *reinterpret_cast<float2*>(part + key * width + at) = make_float2(low, high);
        else
          *reinterpret_cast<uint32_t*>(whole + key * y.at.row + at) = pack<Bf16>(low * factor, high * factor);
      }
    }
  }
}

// What the forward pass has left, long before: first tile, keys and values, while the operation in front still runs.
template <int threads>
__device__ inline void expect_first(const Problem& p, int head, int first) {
  for (int i = static_cast<int>(threadIdx.x); i < tile + 2 * p.keys; i += threads) {
    if (i < tile) expect_row(p.q, head, p.heads, first + i, p.queries);
    expect_row(p.k, head, p.heads, i - tile, p.keys);
    expect_row(p.v, head, p.heads, i - tile - p.keys, p.keys);
  }
}

template <bool Bf16, int keys, int tall>
__global__ void __launch_bounds__(Division<keys, tall>::threads, Division<keys, tall>::together)
    few_keys_backward_kernel(const __grid_constant__ Backward b) {
  using D = Division<keys, tall>;
  extern __shared__ __align__(16) unsigned char memory[];
  auto& shared = *reinterpret_cast<Shared<keys, tall>*>(memory);
  const Problem& p = b.problem;
  const int head = static_cast<int>(blockIdx.x) / b.splits, split = static_cast<int>(blockIdx.x) % b.splits;
  const auto run_at = [&](int at) { return at * p.tiles / b.splits; };
  const int begin = run_at(split), end = run_at(split + 1);
  const int warp = static_cast<int>(threadIdx.x) / 32, side = warp / (D::warps / 2), along = warp % (D::warps / 2);
  const int row = along * 16 * tall, column = along * D::columns;
  expect_first<D::threads>(p, head, begin * tile);
  await_previous();
  load_keys<keys, D::threads>(shared.k, p, p.k, head);
  load_keys<keys, D::threads>(shared.v, p, p.v, head);
  load_tile<D::threads>(shared.q[0], shared.d_o[0], b, head, begin * tile);
  const uint32_t seen = seen_keys<D::pieces>(p, head / p.heads, side * (keys / 2));
  float log_sums[tall][2], sums[D::squares][D::columns / 8][4] = {};
  load_log_sums(log_sums, b, head, begin * tile + row);
  for (int t = begin; t < end; ++t) {
    const int stage = (t - begin) % 2;
    wait_copies<0>();
    __syncthreads();  // and the tile before has been read
    float next[tall][2] = {};
    if (t + 1 < end) {
      load_tile<D::threads>(shared.q[stage ^ 1], shared.d_o[stage ^ 1], b, head, (t + 1) * tile);
      load_log_sums(next, b, head, (t + 1) * tile + row);
    }
    differentiate<Bf16>(shared, stage, row, side, seen, p.scale * log2_e, log_sums);
    __syncthreads();
    store_dq<Bf16>(b, shared, head, t * tile, row, side);
    add_keys<Bf16, keys, tall>(sums, side == 0 ? shared.p : shared.ds, side == 0 ? shared.d_o[stage] : shared.q[stage],
                               column / 8);
#pragma unroll
    for (int m = 0; m < tall; ++m) log_sums[m][0] = next[m][0], log_sums[m][1] = next[m][1];
  }
  store_keys<Bf16>(b, sums, side == 1, head, split, column);
}

// A thread adds the parts of four columns.
template <bool Bf16>
__global__ void few_keys_sum_kernel(const __grid_constant__ Backward b, int64_t count) {
  await_previous();
  const Problem& p = b.problem;
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const int fours = 2 * p.keys * (width / 4), head = static_cast<int>(i / fours), own = static_cast<int>(i % fours);
  const auto* const parts = reinterpret_cast<const float4*>(b.parts) + int64_t{head} * b.splits * fours + own;
  float sum[4] = {};
#pragma unroll 8
  for (int n = 0; n < b.splits; ++n) {
    const float4 part = __ldcg(parts + int64_t{n} * fours);
    sum[0] += part.x, sum[1] += part.y, sum[2] += part.z, sum[3] += part.w;
  }
  const int key = own / (width / 4) % p.keys, column = own % (width / 4) * 4;
  const bool is_dk = own >= fours / 2;
  const Heads& y = is_dk ? b.dk : b.dv;
  const float factor = is_dk ? p.scale : 1.0f;
  uint16_t* const to = static_cast<uint16_t*>(y.data) + head_at<width>(y.at, head, p.heads) + key * y.at.row + column;
  *reinterpret_cast<uint2*>(to) =
      make_uint2(pack<Bf16>(sum[0] * factor, sum[1] * factor), pack<Bf16>(sum[2] * factor, sum[3] * factor));
}

// Into how many runs a head's tiles are divided: as few as take the least time, where a block takes as long as its
// tiles and one more for its keys and its parts.
int splits_of(int64_t heads, int tiles, int64_t together) {
  int best = 1;
  int64_t least = INT64_MAX;
  for (int splits = 1; splits <= std::min(tiles, 64); ++splits) {
    const int64_t time = ceil_div(heads * splits, together) * (ceil_div(tiles, splits) + 1);
    if (time < least) best = splits, least = time;
  }
  return best;
}

template <bool Bf16, int keys, int tall>
void run(Cuda& cuda, Backward b, int64_t heads) {
  using D = Division<keys, tall>;
  b.splits = splits_of(heads, b.problem.tiles, int64_t{cuda.device().multiProcessorCount} * D::together);
  const int64_t part = 2 * int64_t{b.problem.keys} * width, count = heads * part / 4;
  b.parts = b.splits > 1 ? cuda.scratch<float>(heads * b.splits * part) : nullptr;
  cuda.launch(few_keys_backward_kernel<Bf16, keys, tall>, dim3(static_cast<unsigned>(heads * b.splits)), D::threads,
              sizeof(Shared<keys, tall>), b);
  if (b.splits == 1) return;
  cuda.launch(few_keys_sum_kernel<Bf16>, dim3(static_cast<unsigned>(ceil_div(count, 256))), 256, 0, b, count);
}

template <bool Bf16>
void run(Cuda& cuda, const Backward& b, int64_t heads) {
  if (b.problem.keys <= 32) return run<Bf16, 32, 1>(cuda, b, heads);
  if (b.problem.keys <= 80) return run<Bf16, 80, 2>(cuda, b, heads);
  run<Bf16, most_keys, 1>(cuda, b, heads);
}

}  // namespace

bool attention_backward_of_few_keys(Cuda& cuda, const lk_attention_backward_params& p) {
  if (const char* const why = unsuitable(cuda, p, {&p.q, &p.k, &p.v, &p.d_o, &p.dq, &p.dk, &p.dv}); why != nullptr)
    return cuda.passes_over("own kernel for few keys", why);
  const Backward b{.problem = problem_of(p, tile),
                   .d_o = heads_of(p.d_o),
                   .dq = heads_of(p.dq),
                   .dk = heads_of(p.dk),
                   .dv = heads_of(p.dv),
                   .lse = static_cast<const float*>(p.lse.data)};
  const int64_t heads = p.q.dims[0] * p.q.dims[2];
  p.q.dtype == LK_BF16 ? run<true>(cuda, b, heads) : run<false>(cuda, b, heads);
  return true;
}

}  // namespace lk::cuda
