// The backward pass of attention with heads of 64, in a fixed order of sums.
//
// A block owns 128 keys of a head: k and v stay in shared memory, dk and dv in registers, and it passes over tiles of
// 128 queries. One warpgroup loads tiles, two multiply, 64 keys each:
//   s^T = k q^T,  p^T = exp(scale s^T - lse),  dp^T = v do^T,  ds^T = p^T (dp^T - delta),  delta = sum_d(do o)
//   dv += p^T do,  dk += ds^T q;  dq += ds k, in which the blocks of a head meet
// p goes into its product from registers, ds through shared memory; dq is made of 64 queries by each warpgroup.
//
// The order of dq. Each tile of dq is a float32 sum in global memory to which blocks add in turns, counted by the tile.
// So that they seldom wait, the blocks of a head that run together begin at tiles that are far apart and go round. The
// blocks of a head that come in a later round of the device add after all of the earlier one. A block waits only for
// blocks of its own round, all of which run at once (a cooperative launch), or of an earlier one: block j passes tile t
// at time (t - start(j)) mod tiles, turns are ordered by time, then by larger j first, and a block meets its turns in
// that same order, so some block can always go on.
#include <algorithm>

#include "cuda/attention_hopper.cuh"
#include "cuda/attention_hopper.h"
#include "cuda/await_previous.cuh"

namespace lk::cuda {

namespace {

constexpr int width = 64, tile_rows = 128, row_bytes = width * 2, tile_bytes = tile_rows * row_bytes;
constexpr int multipliers = 256, threads = 128 + multipliers;
constexpr int loader = 0, writer = 32;        // threads of the first warpgroup
constexpr int tile_sums = tile_rows * width;  // of dq

struct Problem {
  const void *o, *d_o;  // [batch, rows, heads, 64]
  void *dq, *dk, *dv;
  const float* lse;     // [batch, heads, queries]
  float *lse2, *delta;  // [batch, heads, query_tiles * 128]: lse / ln 2, infinity where there is no query
  float* dq_sums;       // [batch, heads, query_tiles, tile_sums], in the order of the threads that make them
  uint32_t* turns;      // [batch, heads, query_tiles]: blocks that have added
  int queries, keys, heads, query_tiles, key_tiles, items;  // an item: 128 keys of a head
  Spacing o_at, d_o_at, dq_at, dk_at, dv_at;
  float scale;
};

// q, k, v, do as boxes of 128 rows of a head.
struct Maps {
  CUtensorMap q, k, v, d_o;
};

struct Shared {
  alignas(1024) unsigned char k[tile_bytes], v[tile_bytes], q[2][tile_bytes], d_o[2][tile_bytes];
  alignas(1024) unsigned char ds[2][2][tile_bytes];  // ds^T: [turn][half of the queries][key][64 queries]
  alignas(128) float dq[tile_sums], lse2[2][tile_rows], delta[2][tile_rows];
  uint64_t keys_full, keys_empty, full[2], empty[2], dq_full, dq_empty;
};

// Where a block is in the order of its head.
struct Order {
  int head, first_key, start, place, count, before;

  __device__ Order(const Problem& p, int item) {
    const int blocks = p.key_tiles, block = item % blocks, processors = static_cast<int>(gridDim.x);
    head = item / blocks;
    first_key = block * tile_rows;
    const int first = head * blocks, left = (first / processors + 1) * processors - first;
    const int together = left < blocks ? left : blocks;  // of this head, in the round of its first block
    const bool later = block >= together;
    count = later ? blocks - together : together;
    place = later ? block - together : block;
    before = later ? together : 0;
    start = place * p.query_tiles / count;
  }
  __device__ uint32_t turn(const Problem& p, int t) const {
    const int begun = ((t + 1) * count + p.query_tiles - 1) / p.query_tiles - 1, last = min(count - 1, begun);
    return static_cast<uint32_t>(before + (place <= last ? last - place : last + count - place));
  }
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

using namespace hopper;

// By one thread.
__device__ void load(const Problem& p, const Maps& maps, Shared& s) {
  int stage = 0, parity = 1, keys_parity = 1;
  for (int item = static_cast<int>(blockIdx.x); item < p.items; item += static_cast<int>(gridDim.x)) {
    const Order order(p, item);
    const int batch = order.head / p.heads, head = order.head % p.heads;
    barrier_wait(&s.keys_empty, keys_parity);
    keys_parity ^= 1;
    barrier_arrive_with(&s.keys_full, 2 * tile_bytes);
    copy_rows(s.k, maps.k, batch, order.first_key, head, &s.keys_full);
    copy_rows(s.v, maps.v, batch, order.first_key, head, &s.keys_full);
    int t = order.start;
    for (int i = 0; i < p.query_tiles; ++i) {
      const int64_t at = (static_cast<int64_t>(order.head) * p.query_tiles + t) * tile_rows;
      barrier_wait(&s.empty[stage], parity);
      barrier_arrive_with(&s.full[stage], 2 * tile_bytes + 2 * static_cast<int>(sizeof s.lse2[0]));
      copy_rows(s.q[stage], maps.q, batch, t * tile_rows, head, &s.full[stage]);
      copy_bulk(s.lse2[stage], p.lse2 + at, sizeof s.lse2[0], &s.full[stage]);
      copy_rows(s.d_o[stage], maps.d_o, batch, t * tile_rows, head, &s.full[stage]);
      copy_bulk(s.delta[stage], p.delta + at, sizeof s.delta[0], &s.full[stage]);
      stage ^= 1;
      if (stage == 0) parity ^= 1;
      if (++t == p.query_tiles) t = 0;
    }
  }
}

__device__ void write_dq(const Problem& p, Shared& s) {
  int parity = 0;
  for (int item = static_cast<int>(blockIdx.x); item < p.items; item += static_cast<int>(gridDim.x)) {
    const Order order(p, item);
    int t = order.start;
    for (int i = 0; i < p.query_tiles; ++i) {
      const int64_t at = static_cast<int64_t>(order.head) * p.query_tiles + t;
      const uint32_t turn = order.turn(p, t);
      barrier_wait(&s.dq_full, parity);
      parity ^= 1;
      while (load_acquire(p.turns + at) != turn) __nanosleep(20);
      fence_async();
      if (turn == 0)
        bulk_store(p.dq_sums + at * tile_sums, shared_address(s.dq), tile_sums * 4);
      else
        bulk_add(p.dq_sums + at * tile_sums, shared_address(s.dq), tile_sums * 4);
      bulk_commit();
      bulk_wait_read();
      barrier_arrive(&s.dq_empty);
      bulk_wait();
      fence_async();
      add_release(p.turns + at);
      if (++t == p.query_tiles) t = 0;
    }
  }
}

// [64 rows, 64] of a warpgroup's result, times scale.
template <class T>
__device__ inline void store_rows(const float (&v)[32], float scale, T* to, int64_t row_pitch, int rows) {
  const int thread = static_cast<int>(threadIdx.x) % 128, row = thread / 32 * 16 + thread % 32 / 4;
#pragma unroll
  for (int half = 0; half < 2; ++half)
    store_row(v, half, scale, to + (row + half * 8) * row_pitch, row + half * 8 < rows);
}

template <class T>
__device__ void multiply(const Problem& p, Shared& s) {
  using M = Multiply<T>;
  const int thread = static_cast<int>(threadIdx.x) - 128, group = thread / 128, lane = thread % 32;
  const int warp = thread % 128 / 32, own_row = warp * 16 + lane / 4;
  const float factor = p.scale * log2_e;
  const Matrix k_rows(shared_address(s.k) + group * (tile_bytes / 2));
  const Matrix v_rows(shared_address(s.v) + group * (tile_bytes / 2));
  // Of the matrix that a lane stores a row of: keys down, queries in chunks along.
  const int stored_row = group * 64 + warp * 16 + lane / 8 % 2 * 8 + lane % 8;
  int stage = 0, parity = 0, keys_parity = 0, dq_parity = 1;
  for (int item = static_cast<int>(blockIdx.x); item < p.items; item += static_cast<int>(gridDim.x)) {
    const Order order(p, item);
    const int keys_left = p.keys - order.first_key - group * 64;
    float dk[32] = {}, dv[32] = {};
    barrier_wait(&s.keys_full, keys_parity);
    keys_parity ^= 1;
    for (int i = 0; i < p.query_tiles; ++i) {
      const Matrix q_rows(shared_address(s.q[stage])), do_rows(shared_address(s.d_o[stage]));
      float scores[64], dp[64];
      barrier_wait(&s.full[stage], parity);
      multiplies_begin();
      M::template by_rows<false>(scores, k_rows.at(0), q_rows.at(0));
#pragma unroll
      for (int step = 1; step < 4; ++step) M::template by_rows<true>(scores, k_rows.at(step * 2), q_rows.at(step * 2));
      multiplies_commit();
      M::template by_rows<false>(dp, v_rows.at(0), do_rows.at(0));
#pragma unroll
      for (int step = 1; step < 4; ++step) M::template by_rows<true>(dp, v_rows.at(step * 2), do_rows.at(step * 2));
      multiplies_commit();
      multiplies_wait<1>();
      hold(scores);
      const auto* const lse2 = reinterpret_cast<const float2*>(s.lse2[stage]) + lane % 4;
      const auto* const delta = reinterpret_cast<const float2*>(s.delta[stage]) + lane % 4;
#pragma unroll
      for (int j = 0; j < 16; ++j) {
        const float2 l = lse2[j * 4];
        scores[j * 4] = exp2_fast(fmaf(scores[j * 4], factor, -l.x));
        scores[j * 4 + 1] = exp2_fast(fmaf(scores[j * 4 + 1], factor, -l.y));
        scores[j * 4 + 2] = exp2_fast(fmaf(scores[j * 4 + 2], factor, -l.x));
        scores[j * 4 + 3] = exp2_fast(fmaf(scores[j * 4 + 3], factor, -l.y));
      }
      if (keys_left < 64) {  // rows that are no keys
#pragma unroll
        for (int j = 0; j < 64; ++j) scores[j] = own_row + j % 4 / 2 * 8 < keys_left ? scores[j] : 0.0f;
      }
      multiplies_wait<0>();
      hold(dp);
      uint32_t packed[32], ds[32];
#pragma unroll
      for (int j = 0; j < 16; ++j) {
        const float2 d = delta[j * 4];
        ds[j * 2] = M::pack(scores[j * 4] * (dp[j * 4] - d.x), scores[j * 4 + 1] * (dp[j * 4 + 1] - d.y));
        ds[j * 2 + 1] = M::pack(scores[j * 4 + 2] * (dp[j * 4 + 2] - d.x), scores[j * 4 + 3] * (dp[j * 4 + 3] - d.y));
        packed[j * 2] = M::pack(scores[j * 4], scores[j * 4 + 1]);
        packed[j * 2 + 1] = M::pack(scores[j * 4 + 2], scores[j * 4 + 3]);
      }
      multiplies_begin();
#pragma unroll
      for (int step = 0; step < 8; ++step) M::add_from_registers(dv, packed + step * 4, do_rows.at(step * 128));
      multiplies_commit();
      unsigned char(&kept)[2][tile_bytes] = s.ds[i % 2];
#pragma unroll
      for (int step = 0; step < 8; ++step) {
        const int chunk = (step % 4 * 2 + lane / 16) ^ (stored_row % 8);
        store_matrices(shared_address(kept[step / 4]) + stored_row * row_bytes + chunk * 16, ds + step * 4);
      }
      fence_async();
      barrier_among<1, multipliers>();
      float dq[32];
      const Matrix ds_across(shared_address(kept[group])), k_across(shared_address(s.k));
      multiplies_begin();
      M::template across<false>(dq, ds_across.at(0), k_across.at(0));
#pragma unroll
      for (int step = 1; step < 8; ++step)
        M::template across<true>(dq, ds_across.at(step * 128), k_across.at(step * 128));
      multiplies_commit();
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const Matrix ds_rows(shared_address(kept[half]) + group * (tile_bytes / 2));
#pragma unroll
        for (int step = 0; step < 4; ++step)
          M::template rows_across<true>(dk, ds_rows.at(step * 2), q_rows.at((half * 4 + step) * 128));
      }
      multiplies_commit();
      multiplies_wait<1>();
      hold(dq);
      barrier_wait(&s.dq_empty, dq_parity);
      dq_parity ^= 1;
      auto* const sums = reinterpret_cast<float4*>(s.dq) + group * 1024 + thread % 128;
#pragma unroll
      for (int j = 0; j < 8; ++j) sums[j * 128] = make_float4(dq[j * 4], dq[j * 4 + 1], dq[j * 4 + 2], dq[j * 4 + 3]);
      fence_async();
      barrier_arrive(&s.dq_full);
      multiplies_wait<0>();
      hold(dv);
      hold(dk);
      barrier_arrive(&s.empty[stage]);
      stage ^= 1;
      if (stage == 0) parity ^= 1;
    }
    barrier_arrive(&s.keys_empty);
    const int64_t row = order.first_key + group * 64;
    const int64_t dk_at = head_at<width>(p.dk_at, order.head, p.heads) + row * p.dk_at.row;
    const int64_t dv_at = head_at<width>(p.dv_at, order.head, p.heads) + row * p.dv_at.row;
    store_rows(dk, p.scale, static_cast<T*>(p.dk) + dk_at, p.dk_at.row, keys_left);
    store_rows(dv, 1.0f, static_cast<T*>(p.dv) + dv_at, p.dv_at.row, keys_left);
  }
}

#endif

template <class T>
__global__ void __launch_bounds__(threads, 1)
    backward_kernel(const __grid_constant__ Problem p, const __grid_constant__ Maps maps) {
  await_previous();
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char memory[];
  Shared& s = *reinterpret_cast<Shared*>((reinterpret_cast<uintptr_t>(memory) + 1023) / 1024 * 1024);
  if (threadIdx.x == 0) {
    barrier_init(&s.keys_full, 1);
    barrier_init(&s.keys_empty, multipliers);
    for (int stage = 0; stage < 2; ++stage) {
      barrier_init(&s.full[stage], 1);
      barrier_init(&s.empty[stage], multipliers);
    }
    barrier_init(&s.dq_full, multipliers);
    barrier_init(&s.dq_empty, 1);
    fence_async();
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    fewer_registers<24>();
    if (threadIdx.x == loader)
      load(p, maps, s);
    else if (threadIdx.x == writer)
      write_dq(p, s);
  } else {
    more_registers<240>();
    multiply<T>(p, s);
  }
#endif
}

// 8 lanes for each row of a head.
template <class T>
__global__ void prepare_kernel(const Problem p, int64_t rows) {
  await_previous();
  const int64_t at = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / 8;
  const int padded = p.query_tiles * tile_rows;
  const int head = static_cast<int>(at % p.heads), query = static_cast<int>(at / p.heads % padded);
  const int64_t batch = at / p.heads / padded, place = (batch * p.heads + head) * padded + query;
  const bool there = at < rows && query < p.queries;
  const float sum = delta_of_row<T, width>(p.o, batch * p.o_at.item + query * p.o_at.row + head * width, p.d_o,
                                           batch * p.d_o_at.item + query * p.d_o_at.row + head * width, there);
  if (at >= rows || threadIdx.x % 8 != 0) return;
  p.delta[place] = sum;
  p.lse2[place] = there ? p.lse[(batch * p.heads + head) * p.queries + query] * log2_e : __int_as_float(0x7f800000);
  if (query % tile_rows == 0) p.turns[place / tile_rows] = 0;
}

// dq from the sums: a warpgroup for 64 queries of a head, as the one that made them.
template <class T>
__global__ void finish_kernel(const Problem p) {
  await_previous();
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  const int tile = static_cast<int>(blockIdx.x) % p.query_tiles, group = static_cast<int>(threadIdx.x) / 128;
  const int head = static_cast<int>(blockIdx.x) / p.query_tiles;
  const auto* const sums = reinterpret_cast<const float4*>(p.dq_sums) + int64_t{blockIdx.x} * (tile_sums / 4) +
                           group * 1024 + threadIdx.x % 128;
  float v[32];
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const float4 four = sums[j * 128];
    v[j * 4] = four.x, v[j * 4 + 1] = four.y, v[j * 4 + 2] = four.z, v[j * 4 + 3] = four.w;
  }
  const int first = tile * tile_rows + group * 64;
  const int64_t at = head_at<width>(p.dq_at, head, p.heads) + first * p.dq_at.row;
  store_rows(v, p.scale, static_cast<T*>(p.dq) + at, p.dq_at.row, p.queries - first);
#endif
}

CUtensorMap map_of(const lk_tensor& x) {
  const Spacing spacing = spacing_of(x);
  return tensor_map<4>(
      x.data, x.dtype,
      {.dims = {width, static_cast<cuuint64_t>(x.dims[2]), static_cast<cuuint64_t>(x.dims[1]),
                static_cast<cuuint64_t>(x.dims[0])},
       .pitches = {row_bytes, static_cast<cuuint64_t>(spacing.row) * 2, static_cast<cuuint64_t>(spacing.item) * 2},
       .box = {width, 1, tile_rows, 1}});
}

template <class T>
void run(Cuda& cuda, const Problem& p, const Maps& maps) {
  const int64_t heads = p.items / p.key_tiles;
  const int64_t rows = heads * p.query_tiles * tile_rows;
  cuda.launch(prepare_kernel<T>, dim3(static_cast<unsigned>(ceil_div(rows * 8, 256))), 256, 0, p, rows);
  constexpr size_t bytes = sizeof(Shared) + 1024;
  cuda.launch_together(backward_kernel<T>,
                       dim3(static_cast<unsigned>(std::min(p.items, cuda.device().multiProcessorCount))), threads,
                       bytes, p, maps);
  cuda.launch(finish_kernel<T>, dim3(static_cast<unsigned>(heads * p.query_tiles)), 256, 0, p);
}

}  // namespace

bool suits_hopper(const Cuda& cuda, const lk_attention_backward_params& p, int64_t width, bool keys_may_be_unseen) {
  if (p.q.dims[3] != width) return false;  // the other one's
  if (cuda.capability() != 90) return pass_over(cuda, "capability is not 9.0");
  if (p.k.dims[2] != p.q.dims[2]) return pass_over(cuda, "grouped heads");
  if (p.q.dtype != LK_BF16 && p.q.dtype != LK_F16) return pass_over(cuda, "neither bf16 nor f16");
  if (present(p.bias) || p.soft_cap != 0.0f || p.causal != 0) return pass_over(cuda, "bias, soft_cap or causal");
  if (!keys_may_be_unseen && (present(p.key_lengths) || present(p.key_mask)))
    return pass_over(cuda, "keys that are not seen");
  for (const lk_tensor* t : {&p.q, &p.k, &p.v, &p.o, &p.d_o, &p.dq, &p.dk, &p.dv}) {
    if (t->dtype != p.q.dtype) return pass_over(cuda, "mixed types");
    if (!heads_in_lines(*t)) return pass_over(cuda, "heads not in lines");
    if (!cuda.measuring() && reinterpret_cast<uintptr_t>(t->data) % 16 != 0)
      return pass_over(cuda, "not aligned to 16 bytes");
  }
  return true;
}

bool attention_backward_on_hopper(Cuda& cuda, const lk_attention_backward_params& p) {
  if (cuda.fast() || !suits_hopper(cuda, p, width, false)) return false;
  const int64_t batch = p.q.dims[0], queries = p.q.dims[1], heads = p.q.dims[2], keys = p.k.dims[1];
  const int64_t query_tiles = ceil_div(queries, tile_rows), key_tiles = ceil_div(keys, tile_rows);
  const int64_t processors = cuda.device().multiProcessorCount, items = batch * heads * key_tiles;
  // All blocks of a head that are in one round have to run together; with fewer than one for each processor cuDNN,
  // which shares out queries as well, is faster.
  if (queries == 0 || key_tiles > processors || items < processors)
    return pass_over(cuda, "too few keys for each processor, or too many");
  if (batch * heads * std::max(query_tiles, key_tiles) > (int64_t{1} << 24)) return pass_over(cuda, "too many tiles");
  Problem problem{.o = p.o.data,
                  .d_o = p.d_o.data,
                  .dq = p.dq.data,
                  .dk = p.dk.data,
                  .dv = p.dv.data,
                  .lse = static_cast<const float*>(p.lse.data),
                  .lse2 = cuda.scratch<float>(batch * heads * query_tiles * tile_rows),
                  .delta = cuda.scratch<float>(batch * heads * query_tiles * tile_rows),
                  .dq_sums = cuda.scratch<float>(batch * heads * query_tiles * tile_sums),
                  .turns = cuda.scratch<uint32_t>(batch * heads * query_tiles),
                  .queries = static_cast<int>(queries),
                  .keys = static_cast<int>(keys),
                  .heads = static_cast<int>(heads),
                  .query_tiles = static_cast<int>(query_tiles),
                  .key_tiles = static_cast<int>(key_tiles),
                  .items = static_cast<int>(items),
                  .o_at = spacing_of(p.o),
                  .d_o_at = spacing_of(p.d_o),
                  .dq_at = spacing_of(p.dq),
                  .dk_at = spacing_of(p.dk),
                  .dv_at = spacing_of(p.dv),
                  .scale = p.scale};
  if (cuda.measuring()) return true;
  const Maps maps{map_of(p.q), map_of(p.k), map_of(p.v), map_of(p.d_o)};
  p.q.dtype == LK_BF16 ? run<__nv_bfloat16>(cuda, problem, maps) : run<__half>(cuda, problem, maps);
  return true;
}

}  // namespace lk::cuda
