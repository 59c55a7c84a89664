// The backward pass of attention with heads of 64, in a fixed order of sums.
//
// An item is 128 keys of a head: a block keeps their k and v in shared memory, dk and dv in registers, and passes over
// tiles of 128 queries. One warpgroup loads tiles, two multiply, 64 keys each:
//   s^T = k q^T,  p^T = exp(scale s^T - lse),  dp^T = v do^T,  ds^T = p^T (dp^T - delta),  delta = sum_d(do o)
//   dv += p^T do,  dk += ds^T q;  dq += ds k, in which the blocks of a head meet
// p goes into its product from registers, ds through shared memory; dq is made of 64 queries by each warpgroup.
//
// Where an item begins in one block and ends in another (attention_order.cuh), who does not begin it leaves its dk and
// dv in memory, who does adds them to its own. All blocks run at once, by a cooperative launch.
//
// Each tile of dq is a float32 sum in global memory to which blocks add in turns, counted by the tile.
#include "cuda/attention_hopper.cuh"
#include "cuda/attention_hopper.h"
#include "cuda/await_previous.cuh"

namespace lk::cuda {

namespace {

constexpr int width = 64, tile_rows = 128, row_bytes = width * 2, tile_bytes = tile_rows * row_bytes;
constexpr int multipliers = 256, threads = 128 + multipliers;
constexpr int loader = 0, writer = 32, counters = 2;  // threads and a warp of the first warpgroup
constexpr int tile_sums = tile_rows * width;          // of dq

struct Problem {
  const void *o, *d_o;  // [batch, rows, heads, 64]
  void *dq, *dk, *dv;
  const float* lse;     // [batch, heads, queries]
  float *lse2, *delta;  // [batch, heads, query_tiles * 128]: lse / ln 2, infinity where there is no query
  float* dq_sums;       // [batch, heads, query_tiles, tile_sums], in the order of the threads that make them
  uint32_t* turns;      // [batch, heads, query_tiles]: blocks that have added
  float* ends;          // [blocks, 2, tile_sums]: dk and dv of an item that another block began
  uint32_t* ended;      // [blocks]: whether they are there; 0 before and after
  int queries, keys, heads;
  Order order;
  Spacing o_at, d_o_at, dq_at, dk_at, dv_at;
  float scale;
};

// q, k, v, do as boxes of 128 rows of a head.
struct Maps {
  CUtensorMap q, k, v, d_o;
};

// When the block may add to a tile of dq.
struct Turn {
  int tile;         // of all heads; -1: there is no more
  uint32_t before;  // how many add before
};

struct Shared {
  alignas(1024) unsigned char k[tile_bytes], v[tile_bytes], q[2][tile_bytes], d_o[2][tile_bytes];
  alignas(1024) unsigned char ds[2][2][tile_bytes];  // ds^T: [turn][half of the queries][key][64 queries]
  alignas(128) float dq[tile_sums], lse2[2][tile_rows], delta[2][tile_rows];
  uint64_t keys_full, keys_empty, full[2], empty[2], dq_full, dq_empty, turn_full[2], turn_empty[2];
  Part part;  // with keys_full
  Turn turns[2];
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

using namespace hopper;

__device__ inline int first_key(const Part& part) { return part.item_of_head * tile_rows; }

// By one thread.
__device__ void load(const Problem& p, const Maps& maps, Shared& s) {
  int stage = 0, parity = 1, keys_parity = 1;
  for (Parts parts(p.order);; keys_parity ^= 1) {
    const Part part = parts.next(p.order);
    barrier_wait(&s.keys_empty, keys_parity);
    s.part = part;
    if (part.begin == part.end) {
      barrier_arrive(&s.keys_full);
      return;
    }
    const int batch = part.head / p.heads, head = part.head % p.heads;
    barrier_arrive_with(&s.keys_full, 2 * tile_bytes);
    copy_rows(s.k, maps.k, batch, first_key(part), head, &s.keys_full);
    copy_rows(s.v, maps.v, batch, first_key(part), head, &s.keys_full);
    int t = Parts::first_tile(p.order, part);
    for (int i = part.begin; i < part.end; ++i) {
      const int64_t at = (static_cast<int64_t>(part.head) * p.order.tiles + t) * tile_rows;
      barrier_wait(&s.empty[stage], parity);
      barrier_arrive_with(&s.full[stage], 2 * tile_bytes + 2 * static_cast<int>(sizeof s.lse2[0]));
      copy_rows(s.q[stage], maps.q, batch, t * tile_rows, head, &s.full[stage]);
      copy_bulk(s.lse2[stage], p.lse2 + at, sizeof s.lse2[0], &s.full[stage]);
      copy_rows(s.d_o[stage], maps.d_o, batch, t * tile_rows, head, &s.full[stage]);
      copy_bulk(s.delta[stage], p.delta + at, sizeof s.delta[0], &s.full[stage]);
      stage ^= 1;
      if (stage == 0) parity ^= 1;
      if (++t == p.order.tiles) t = 0;
    }
  }
}

// By a warp, ahead of the thread that adds, whose time the products wait for.
__device__ void count_turns(const Problem& p, Shared& s) {
  const bool hands_over = threadIdx.x % 32 == 0;
  int place = 0, parity = 1, time = 0;
  const auto hand_over = [&](const Turn& turn) {
    if (hands_over) {
      barrier_wait(&s.turn_empty[place], parity);
      s.turns[place] = turn;
      barrier_arrive(&s.turn_full[place]);
    }
    __syncwarp();
    place ^= 1;
    if (place == 0) parity ^= 1;
  };
  for (Parts parts(p.order);;) {
    const Part part = parts.next(p.order);
    if (part.begin == part.end) return hand_over({-1, 0});
    int t = Parts::first_tile(p.order, part);
    for (int i = part.begin; i < part.end; ++i, ++time) {
      hand_over({part.head * p.order.tiles + t, turn_of(p.order, part, t, time)});
      if (++t == p.order.tiles) t = 0;
    }
  }
}

// By one thread.
__device__ void write_dq(const Problem& p, Shared& s) {
  int place = 0, turn_parity = 0;
  for (int parity = 0;; parity ^= 1) {
    barrier_wait(&s.turn_full[place], turn_parity);
    const Turn turn = s.turns[place];
    if (turn.tile < 0) return;
    barrier_arrive(&s.turn_empty[place]);
    place ^= 1;
    if (place == 0) turn_parity ^= 1;
    barrier_wait(&s.dq_full, parity);
    while (load_acquire(p.turns + turn.tile) != turn.before) __nanosleep(20);
    fence_async();
    float* const sums = p.dq_sums + int64_t{turn.tile} * tile_sums;
    if (turn.before == 0)
      bulk_store(sums, shared_address(s.dq), tile_sums * 4);
    else
      bulk_add(sums, shared_address(s.dq), tile_sums * 4);
    bulk_commit();
    bulk_wait_read();
    barrier_arrive(&s.dq_empty);
    bulk_wait();
    fence_async();
    add_release(p.turns + turn.tile);
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

// The two halves of a block's place for the end of an item: dk and dv, as a multiplying thread has them.
__device__ inline float4* end_of(const Problem& p, int block, int half) {
  return reinterpret_cast<float4*>(p.ends + (int64_t{block} * 2 + half) * tile_sums) + threadIdx.x - 128;
}
__device__ inline void leave_end(const float (&v)[32], float4* to) {
#pragma unroll
  for (int j = 0; j < 8; ++j) to[j * multipliers] = make_float4(v[j * 4], v[j * 4 + 1], v[j * 4 + 2], v[j * 4 + 3]);
}
__device__ inline void add_end(float (&v)[32], const float4* from) {
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const float4 four = __ldcg(from + j * multipliers);
    v[j * 4] += four.x, v[j * 4 + 1] += four.y, v[j * 4 + 2] += four.z, v[j * 4 + 3] += four.w;
  }
}

// For the block that began the item.
__device__ inline void leave_ends(const Problem& p, const float (&dk)[32], const float (&dv)[32]) {
  const int block = static_cast<int>(blockIdx.x);
  leave_end(dk, end_of(p, block, 0));
  leave_end(dv, end_of(p, block, 1));
  tell_end<multipliers>(p.ended + block);
}

// What other blocks made of an item that this one began, in their order.
__device__ inline void add_ends(const Problem& p, int item_end, float (&dk)[32], float (&dv)[32]) {
  for (int block = static_cast<int>(blockIdx.x) + 1; first_unit(p.order.units, p.order.blocks, block) < item_end;
       ++block) {
    await_end(p.ended + block);
    add_end(dk, end_of(p, block, 0));
    add_end(dv, end_of(p, block, 1));
    forget_end<multipliers>(p.ended + block);
  }
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
  for (;; keys_parity ^= 1) {
    barrier_wait(&s.keys_full, keys_parity);
    int left = s.part.end - s.part.begin;
    if (left == 0) return;
    const int keys_left = p.keys - first_key(s.part) - group * 64;
    float dk[32] = {}, dv[32] = {};
    for (; left > 0; --left) {
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
      unsigned char(&kept)[2][tile_bytes] = s.ds[stage];
#pragma unroll
      for (int step = 0; step < 8; ++step) {
        const int chunk = (step % 4 * 2 + lane / 16) ^ (stored_row % 8);
        store_matrices(shared_address(kept[step / 4]) + stored_row * row_bytes + chunk * 16, ds + step * 4);
      }
      fence_async_shared();
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
      fence_async_shared();
      barrier_arrive(&s.dq_full);
      multiplies_wait<0>();
      hold(dv);
      hold(dk);
      barrier_arrive(&s.empty[stage]);
      stage ^= 1;
      if (stage == 0) parity ^= 1;
    }
    const Part part = s.part;  // not kept in registers meanwhile
    barrier_arrive(&s.keys_empty);
    if (part.begin > 0) {
      leave_ends(p, dk, dv);
      continue;
    }
    if (part.end < p.order.tiles) add_ends(p, part.first_unit + p.order.tiles, dk, dv);
    const int64_t row = first_key(part) + group * 64;
    const int64_t dk_at = head_at<width>(p.dk_at, part.head, p.heads) + row * p.dk_at.row;
    const int64_t dv_at = head_at<width>(p.dv_at, part.head, p.heads) + row * p.dv_at.row;
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
  Shared& s = aligned<Shared>(memory);
  if (threadIdx.x == 0) {
    barrier_init(&s.keys_full, 1);
    barrier_init(&s.keys_empty, multipliers);
    for (int stage = 0; stage < 2; ++stage) {
      barrier_init(&s.full[stage], 1);
      barrier_init(&s.empty[stage], multipliers);
    }
    barrier_init(&s.dq_full, multipliers);
    barrier_init(&s.dq_empty, 1);
    for (int place = 0; place < 2; ++place) {
      barrier_init(&s.turn_full[place], 1);
      barrier_init(&s.turn_empty[place], 1);
    }
    fence_async();
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    fewer_registers<24>();
    if (threadIdx.x == loader)
      load(p, maps, s);
    else if (threadIdx.x == writer)
      write_dq(p, s);
    else if (threadIdx.x / 32 == counters)
      count_turns(p, s);
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
  const int padded = p.order.tiles * tile_rows;
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
  const int tile = static_cast<int>(blockIdx.x) % p.order.tiles, group = static_cast<int>(threadIdx.x) / 128;
  const int head = static_cast<int>(blockIdx.x) / p.order.tiles;
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

template <class T>
void run(Cuda& cuda, const Problem& p, int64_t heads, const Maps& maps) {
  const int64_t rows = heads * p.order.tiles * tile_rows;
  cuda.launch(prepare_kernel<T>, dim3(static_cast<unsigned>(ceil_div(rows * 8, 256))), 256, 0, p, rows);
  constexpr size_t bytes = sizeof(Shared) + 1024;
  cuda.launch_together(backward_kernel<T>, dim3(static_cast<unsigned>(p.order.blocks)), threads, bytes, p, maps);
  cuda.launch(finish_kernel<T>, dim3(static_cast<unsigned>(heads * p.order.tiles)), 256, 0, p);
}

}  // namespace

bool attention_backward_on_hopper(Cuda& cuda, const lk_attention_backward_params& p) {
  if (!suits_hopper(cuda, p, width, false, {&p.q, &p.k, &p.v, &p.o, &p.d_o, &p.dq, &p.dk, &p.dv})) return false;
  const int64_t batch = p.q.dims[0], queries = p.q.dims[1], heads = p.q.dims[2], keys = p.k.dims[1];
  const int64_t query_tiles = ceil_div(queries, tile_rows), key_tiles = ceil_div(keys, tile_rows);
  if (!can_share_out(cuda, batch * heads * key_tiles * query_tiles)) return false;
  Order order = order_of(batch * heads, key_tiles, query_tiles, cuda.device().multiProcessorCount);
  order.rotation = rotation_of(order);
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
                  .ends = cuda.scratch<float>(int64_t{order.blocks} * 2 * tile_sums),
                  .ended = cuda.arrivals(),
                  .queries = static_cast<int>(queries),
                  .keys = static_cast<int>(keys),
                  .heads = static_cast<int>(heads),
                  .order = order,
                  .o_at = spacing_of(p.o),
                  .d_o_at = spacing_of(p.d_o),
                  .dq_at = spacing_of(p.dq),
                  .dk_at = spacing_of(p.dk),
                  .dv_at = spacing_of(p.dv),
                  .scale = p.scale};
  if (cuda.measuring()) return true;
  const auto map_of = [](const lk_tensor& x) { return head_rows<width>(x, tile_rows); };
  const Maps maps{map_of(p.q), map_of(p.k), map_of(p.v), map_of(p.d_o)};
  p.q.dtype == LK_BF16 ? run<__nv_bfloat16>(cuda, problem, batch * heads, maps)
                       : run<__half>(cuda, problem, batch * heads, maps);
  return true;
}

}  // namespace lk::cuda
