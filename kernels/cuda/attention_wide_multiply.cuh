// What the two warpgroups of attention's backward pass at heads of 128 do (attention_wide_hopper.cu): the tiles of keys
// and of queries, from the parts that another warp has loaded.
#pragma once

#include <cstddef>

#include "cuda/attention_hopper.cuh"
#include "cuda/attention_wide_order.cuh"

namespace lk::cuda::wide {

constexpr int width = 128, part_rows = 64, part_bytes = part_rows * width * 2;  // a part of q, k, v or do
constexpr int tile_rows = 2 * part_rows;
constexpr int ds_bytes = part_rows * part_rows * 2;  // of 64 queries and 64 keys
constexpr int cell_bytes = 4 * ds_bytes;             // [2 parts of queries, 2 of keys]
constexpr int multipliers = 256, threads = multipliers + 128, multiplier_warps = multipliers / 32;
constexpr int loaders =
    32;  // the warp after the multipliers; then those of which a thread takes tiles, or hands out cells
constexpr int stages = 4;

struct Problem {
  const void *o, *d_o;  // [batch, rows, heads, 128]
  void *dq, *dk, *dv;
  const float* lse;  // [batch, heads, queries]
  // Which keys are seen, or nullptr: those before [batch], and where [batch, keys] is not 0.
  const int32_t *key_lengths, *key_mask;
  float* statistics;  // [batch, heads, query_parts, 2, 64]: lse / ln 2, infinity where there is no query; delta
  unsigned char* ds;  // [cells] x cell_bytes
  uint32_t* counters;
  WideOrder order;
  int queries, keys, heads, query_parts;
  Spacing o_at, d_o_at, dq_at, dk_at, dv_at;
  float scale, factor;  // factor: scale / ln 2
};

// q, k, v, do as boxes of 64 rows of a head.
struct Maps {
  CUtensorMap q, k, v, d_o;
};

struct Shared {
  alignas(1024) unsigned char k[2][part_bytes], v[2][part_bytes];
  // q and do for a tile of keys; k and ds of two parts of queries for one of queries.
  alignas(1024) unsigned char q_or_k[stages][part_bytes], do_or_ds[stages][part_bytes];
  alignas(128) float statistics[stages][2][part_rows];
  uint64_t keys_full, keys_empty, full[stages], empty[stages], tile_full[2], tile_empty[2], tile_wanted;
  uint64_t cell_given[2], cell_done[2];
  Tile tiles[2];
  int cells[2];
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

using namespace hopper;

// A number that all lanes of a warp have; what follows from it is then computed once for the warp.
__device__ inline int same(int x) { return __shfl_sync(0xffffffffu, x, 0); }

// A tile that all lanes of a warp read.
__device__ inline Tile same(const Tile& t) { return {same(t.kind), same(t.head), same(t.place), same(t.slot)}; }

// Where a thread is in a ring: how much it has passed.
template <int size>
struct Turn {
  int count = 0;
  __device__ int place() const { return count % size; }
  __device__ int parity() const { return count / size % 2; }
};

// k of 64 keys, and ds of them and of the queries of so many rows, [rows, 2] x ds_bytes. Those of two rows take the
// place of all that a block needs for keys.
template <int rows>
struct RowPart {
  unsigned char *k, *ds;
  __device__ RowPart(Shared& s, int stage)
      : k(rows == 1 ? s.q_or_k[stage] : s.k[0] + stage * (part_bytes + rows * 2 * ds_bytes)),
        ds(rows == 1 ? s.do_or_ds[stage] : k + part_bytes) {}
};
static_assert(offsetof(Shared, statistics) - offsetof(Shared, k) == stages * (part_bytes + 4 * ds_bytes));

// [64, 64] = a b^T, of parts.
template <class T>
__device__ inline void multiply_rows(float (&d)[32], const Matrix& a, const Matrix& b) {
  Multiply<T>::template by_rows<false>(d, a.at(0), b.at(0));
#pragma unroll
  for (int step = 1; step < 8; ++step) {
    const int at = step / 4 * (part_bytes / 32) + step % 4 * 2;
    Multiply<T>::template by_rows<true>(d, a.at(at), b.at(at));
  }
}

// [64, 128] += a b, of what a result of the above was packed to and a part.
template <class T>
__device__ inline void add_columns(float (&d)[64], const uint32_t (&a)[16], const Matrix& b) {
#pragma unroll
  for (int step = 0; step < 4; ++step) Multiply<T>::add_from_registers(d, a + step * 4, b.at(step * 128));
}

// Turns of the two warpgroups to issue products: `turn` waits for the own one, `pass` gives the other its own.
__device__ inline void turn(int group) { asm volatile("bar.sync %0, 256;" ::"r"(2 + group) : "memory"); }
__device__ inline void pass(int group) { asm volatile("bar.arrive %0, 256;" ::"r"(3 - group) : "memory"); }

// Bit 0: `key` is one, and seen; bit 1: the eighth after it.
__device__ inline int seen_keys(const Problem& p, int batch, int key) {
  const int length = p.key_lengths != nullptr ? min(p.key_lengths[batch], p.keys) : p.keys;
  int seen = 0;
#pragma unroll
  for (int half = 0; half < 2; ++half, key += 8) {
    const bool is = key < length && (p.key_mask == nullptr || p.key_mask[int64_t{batch} * p.keys + key] != 0);
    seen |= is ? 1 << half : 0;
  }
  return seen;
}

template <class T>
__device__ inline void differentiate_keys(const Problem& p, Shared& s, const Tile& taken, Turn<stages>& at,
                                          Turn<2>& cell) {
  using M = Multiply<T>;
  const int thread = static_cast<int>(threadIdx.x), group = same(thread / 128), lane = thread % 32;
  const int warp = thread % 128 / 32, own_row = warp * 16 + lane / 4;
  const Tile tile = same(taken);
  const Matrix k_rows(shared_address(s.k[group])), v_rows(shared_address(s.v[group]));
  const int seen = seen_keys(p, tile.head / p.heads, tile.place * tile_rows + group * part_rows + own_row);
  // A part of ds is a MatrixOfPieces of keys by queries: the lane has 16 bytes, 8 queries of a key, in four pieces.
  unsigned char* ds_to = nullptr;
  float dk[64] = {}, dv[64] = {};
  uint32_t packed[16] = {}, ds[16] = {};  // p and ds of the part before; of the first one there is nothing to add
  int before = at.place();
#pragma unroll 1
  for (int i = 0; i < p.query_parts; ++i) {
    const int stage = at.place();
    float scores[32], dp[32];
    barrier_wait(&s.full[stage], at.parity());
    turn(group);
    multiplies_begin();
    add_columns<T>(dv, packed, Matrix(shared_address(s.do_or_ds[before]), part_bytes / 2));
    add_columns<T>(dk, ds, Matrix(shared_address(s.q_or_k[before]), part_bytes / 2));
    multiplies_commit();
    multiply_rows<T>(scores, k_rows, Matrix(shared_address(s.q_or_k[stage])));
    multiplies_commit();
    multiplies_wait<1>();  // what was packed is used up: its registers are dp's
    multiplies_begin();
    multiply_rows<T>(dp, v_rows, Matrix(shared_address(s.do_or_ds[stage])));
    multiplies_commit();
    pass(group);
    multiplies_wait<1>();
    hold(scores);
    if (i > 0 && lane == 0) barrier_arrive(&s.empty[before]);
    const auto* const lse2 = reinterpret_cast<const float2*>(s.statistics[stage][0]) + lane % 4;
    const auto* const delta = reinterpret_cast<const float2*>(s.statistics[stage][1]) + lane % 4;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float2 l = lse2[j * 4];
      scores[j * 4] = exp2_fast(fmaf(scores[j * 4], p.factor, -l.x));
      scores[j * 4 + 1] = exp2_fast(fmaf(scores[j * 4 + 1], p.factor, -l.y));
      scores[j * 4 + 2] = exp2_fast(fmaf(scores[j * 4 + 2], p.factor, -l.x));
      scores[j * 4 + 3] = exp2_fast(fmaf(scores[j * 4 + 3], p.factor, -l.y));
    }
    if (seen != 3) {
#pragma unroll
      for (int j = 0; j < 32; ++j) scores[j] = (seen >> (j % 4 / 2) & 1) != 0 ? scores[j] : 0.0f;
    }
#pragma unroll
    for (int j = 0; j < 16; ++j) packed[j] = M::pack(scores[j * 2], scores[j * 2 + 1]);
    multiplies_wait<0>();
    hold(dp);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float2 d = delta[j * 4];
      ds[j * 2] = M::pack(scores[j * 4] * (dp[j * 4] - d.x), scores[j * 4 + 1] * (dp[j * 4 + 1] - d.y));
      ds[j * 2 + 1] = M::pack(scores[j * 4 + 2] * (dp[j * 4 + 2] - d.x), scores[j * 4 + 3] * (dp[j * 4 + 3] - d.y));
    }
    if (i % 2 == 0) {
      barrier_wait(&s.cell_given[cell.place()], cell.parity());
      ds_to = p.ds + uint64_t{static_cast<uint32_t>(s.cells[cell.place()])} * cell_bytes + group * ds_bytes +
              warp * 2048 + lane % 4 * 128 + lane / 4 * 16;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int j = half; j < 16; j += 8)
        __stcg(reinterpret_cast<uint4*>(ds_to + half * 1024 + j / 8 * 512),
               make_uint4(ds[j], ds[j + 2], ds[j + 4], ds[j + 6]));
    ds_to += 2 * ds_bytes;
    if (i % 2 == 1 || i + 1 == p.query_parts) {
      __syncwarp();
      if (lane == 0) barrier_arrive(&s.cell_done[cell.place()]);
      ++cell.count;
    }
    before = stage;
    ++at.count;
  }
  multiplies_begin();
  add_columns<T>(dv, packed, Matrix(shared_address(s.do_or_ds[before]), part_bytes / 2));
  add_columns<T>(dk, ds, Matrix(shared_address(s.q_or_k[before]), part_bytes / 2));
  multiplies_commit();
  multiplies_wait<0>();
  hold(dk);
  hold(dv);
  if (lane == 0) {
    barrier_arrive(&s.empty[before]);
    barrier_arrive(&s.keys_empty);
  }
  const Tile again = same(taken);  // not kept in registers meanwhile
  const int row = again.place * tile_rows + group * part_rows + own_row;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int key = row + half * 8;
    const int64_t dk_at = head_at<width>(p.dk_at, again.head, p.heads) + key * p.dk_at.row;
    const int64_t dv_at = head_at<width>(p.dv_at, again.head, p.heads) + key * p.dv_at.row;
    store_row(dk, half, p.scale, static_cast<T*>(p.dk) + dk_at, key < p.keys);
    store_row(dv, half, 1.0f, static_cast<T*>(p.dv) + dv_at, key < p.keys);
  }
}

template <class T, int rows>
__device__ inline void differentiate_queries(const Problem& p, Shared& s, const Tile& taken, Turn<stages>& at) {
  const int thread = static_cast<int>(threadIdx.x), group = same(thread / 128), lane = thread % 32;
  const int warp = thread % 128 / 32;
  const Tile tile = same(taken);
  float dq[rows][64] = {};
#pragma unroll 1
  for (int i = 0; i < 2 * p.order.key_tiles; ++i) {
    const RowPart<rows> part(s, at.place());
    barrier_wait(&s.full[at.place()], at.parity());
    const Matrix k(shared_address(part.k), part_bytes / 2);
    multiplies_begin();
#pragma unroll
    for (int row = 0; row < rows; ++row) {
      const MatrixOfPieces ds(shared_address(part.ds) + (row * 2 + group) * ds_bytes);
#pragma unroll
      for (int step = 0; step < 4; ++step) Multiply<T>::add_across(dq[row], ds.at(step * 128), k.at(step * 128));
    }
    multiplies_commit();
    multiplies_wait<1>();
    if (i > 0 && lane == 0) barrier_arrive(&s.empty[(at.count - 1) % stages]);
    ++at.count;
  }
  multiplies_wait<0>();
#pragma unroll
  for (int row = 0; row < rows; ++row) hold(dq[row]);
  if (lane == 0) barrier_arrive(&s.empty[(at.count - 1) % stages]);
#pragma unroll
  for (int row = 0; row < rows; ++row) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // The lane's row is number `in` of column `piece` of pieces, and as it was stored there by differentiate_keys.
      const int piece = warp * 2 + half, in = lane / 4;
      const int query =
          ((tile.place * rows + row) * 2 + group) * part_rows + piece / 4 * 32 + in / 2 * 8 + piece % 4 * 2 + in % 2;
      const int64_t dq_at = head_at<width>(p.dq_at, tile.head, p.heads) + query * p.dq_at.row;
      store_row(dq[row], half, p.scale, static_cast<T*>(p.dq) + dq_at, query < p.queries);
    }
  }
}

template <class T, class Way>
__device__ void multiply(const Problem& p, Shared& s) {
  Turn<stages> at;
  Turn<2> slot, cell;
  int keys_parity = 0;
  if (threadIdx.x >= multipliers / 2) pass(1);  // the first turn is the first warpgroup's
  for (;;) {
    barrier_wait(&s.tile_full[slot.place()], slot.parity());
    const Tile& taken = s.tiles[slot.place()];
    const int kind = same(taken.kind);
    if (kind == no_more) return;
    if (kind == of_keys) {
      barrier_wait(&s.keys_full, keys_parity);
      keys_parity ^= 1;
      differentiate_keys<T>(p, s, taken, at, cell);
    } else {
      differentiate_queries<T, Way::Rows::rows>(p, s, taken, at);
      barrier_among<1, multipliers>();  // all cells are read
      if (threadIdx.x == 0) Way::Rows::end(p.order, p.counters, taken.head, at.count / 2);
    }
    if (threadIdx.x % 32 == 0) barrier_arrive(&s.tile_empty[slot.place()]);
    ++slot.count;
  }
}

#endif

}  // namespace lk::cuda::wide
