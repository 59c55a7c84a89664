// The backward pass of attention with heads of 128, in a fixed order of sums.
//
// dk and dv of 128 keys fill half of a processor's registers, and dq of the same step does not fit beside them. So ds
// goes through memory, in 16 bits, and dq is a product of its own:
//   tiles of 128 keys:    s^T = k q^T,  p^T = exp(scale s^T - lse),  dp^T = v do^T,  ds^T = p^T (dp^T - delta),
//                         dv += p^T do,  dk += ds^T q  over parts of 64 queries;  ds^T is stored
//   tiles of 128 queries: dq += ds k  over parts of 64 keys
// with delta = sum_d(do o). Every sum is made by one thread in order: nobody adds to what another one has.
//
// Tiles of both kinds are taken from one list, by blocks that stay; so the products that wait for memory (dq) run
// beside those that do not. In the list the queries of a head come `lag` heads after its keys, between the keys of a
// later head: by then they are done, and as who takes a tile only waits for tiles earlier in the list, which are all
// taken, somebody can always go on. ds lies in a ring of `slots` heads, more than `lag`.
//
// The weights p of keys that are not seen become 0 where they are computed, and with them all that such keys give and
// get.
//
// One warp loads, one thread takes tiles from the list, two warpgroups multiply, 64 keys or queries each. They issue
// their products in turns, so that one computes exponentials while the other's products run.
#include <algorithm>

#include "cuda/attention_hopper.cuh"
#include "cuda/attention_hopper.h"
#include "cuda/await_previous.cuh"

namespace lk::cuda {

namespace {

constexpr int width = 128, part_rows = 64, part_bytes = part_rows * width * 2;  // a part of q, k, v or do
constexpr int tile_rows = 2 * part_rows;
constexpr int ds_bytes = part_rows * part_rows * 2;  // of 64 queries and 64 keys
constexpr int multipliers = 256, threads = multipliers + 128, multiplier_warps = multipliers / 32;
constexpr int loaders = 32;  // the warp after the multipliers; then the thread that takes tiles
constexpr int stages = 4;
constexpr int64_t most_ds_bytes = int64_t{2} << 30;

struct Problem {
  const void *o, *d_o;  // [batch, rows, heads, 128]
  void *dq, *dk, *dv;
  const float* lse;  // [batch, heads, queries]
  // Which keys are seen, or nullptr: those before [batch], and where [batch, keys] is not 0.
  const int32_t *key_lengths, *key_mask;
  float* statistics;   // [batch, heads, query_parts, 2, 64]: lse / ln 2, infinity where there is no query; delta
  unsigned char* ds;   // [slots, query_tiles, 2, key_tiles, 2] x ds_bytes
  uint32_t* counters;  // tiles taken; then of each head the tiles of keys that are done; and those of queries
  int queries, keys, heads, all_heads, query_parts, query_tiles, key_tiles;
  int lag, slots, listed;
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
  int4 tiles[2];
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

using namespace hopper;

// A number that all lanes of a warp have; what follows from it is then computed once for the warp.
__device__ inline int same(int x) { return __shfl_sync(0xffffffffu, x, 0); }

enum Kind { no_more = -1, of_queries, of_keys };

struct Tile {
  int kind, head, place, slot;  // head: of all items

  // Number x of the list: for each head its tiles of keys, and spread evenly between them the tiles of queries of the
  // head that is `lag` before. `there` is false where either does not exist.
  __device__ Tile(const Problem& p, int x) {
    const int both = p.key_tiles + p.query_tiles, group = x / both, y = x % both;
    const int before = y * p.query_tiles / both;
    kind = (y + 1) * p.query_tiles / both == before ? of_keys : of_queries;
    head = kind == of_keys ? group : group - p.lag;
    place = kind == of_keys ? y - before : before;
    slot = head % p.slots;
  }
  __device__ bool there(const Problem& p) const { return head >= 0 && head < p.all_heads; }
  __device__ explicit Tile(const int4& v) : kind(same(v.x)), head(same(v.y)), place(same(v.z)), slot(same(v.w)) {}
};

// Where a thread is in a ring: how much it has passed.
template <int size>
struct Turn {
  int count = 0;
  __device__ int place() const { return count % size; }
  __device__ int parity() const { return count / size % 2; }
};

// By one thread: takes tiles, each when all loads of the one before are begun.
__device__ void take_tiles(const Problem& p, Shared& s) {
  Turn<2> slot;
  for (int wanted = 0;; wanted ^= 1) {
    int x = static_cast<int>(atomicAdd(p.counters, 1u));
    Tile tile(p, x);
    while (x < p.listed && !tile.there(p)) {
      x = static_cast<int>(atomicAdd(p.counters, 1u));
      tile = Tile(p, x);
    }
    barrier_wait(&s.tile_empty[slot.place()], slot.parity() ^ 1);
    s.tiles[slot.place()] = make_int4(x < p.listed ? tile.kind : no_more, tile.head, tile.place, tile.slot);
    barrier_arrive(&s.tile_full[slot.place()]);
    ++slot.count;
    if (x >= p.listed) return;
    barrier_wait(&s.tile_wanted, wanted);
  }
}

__device__ inline void wait_until(const uint32_t* counter, int count) {
  while (load_acquire(counter) < static_cast<uint32_t>(count)) __nanosleep(100);
  fence_async();
}

// By one warp, of which one lane copies. Places are counted without signs: that takes fewer registers.
__device__ void load(const Problem& p, const Maps& maps, Shared& s) {
  const bool copies = threadIdx.x % 32 == 0;
  Turn<stages> at;
  Turn<2> slot;
  int keys_parity = 1;
  for (;;) {
    barrier_wait(&s.tile_full[slot.place()], slot.parity());
    const Tile tile(s.tiles[slot.place()]);
    __syncwarp();
    if (copies) barrier_arrive(&s.tile_empty[slot.place()]);
    ++slot.count;
    if (tile.kind == no_more) return;
    const int batch = tile.head / p.heads, head = tile.head % p.heads;
    if (tile.kind == of_keys) {
      if (tile.head >= p.slots)  // the slot's last head is used up
        wait_until(p.counters + static_cast<uint32_t>(1 + p.all_heads + tile.head - p.slots), p.query_tiles);
      barrier_wait(&s.keys_empty, keys_parity);
      keys_parity ^= 1;
      if (copies) {
        barrier_arrive_with(&s.keys_full, 4 * part_bytes);
        const int row = tile.place * tile_rows;
        copy_halves(s.k[0], maps.k, batch, row, head, &s.keys_full);
        copy_halves(s.k[1], maps.k, batch, row + part_rows, head, &s.keys_full);
        copy_halves(s.v[0], maps.v, batch, row, head, &s.keys_full);
        copy_halves(s.v[1], maps.v, batch, row + part_rows, head, &s.keys_full);
      }
      __syncwarp();
      const float* const statistics =
          p.statistics + uint64_t{static_cast<uint32_t>(tile.head * p.query_parts)} * (2 * part_rows);
#pragma unroll 1
      for (int t = 0; t < p.query_parts; ++t) {
        const int stage = at.place();
        barrier_wait(&s.empty[stage], at.parity() ^ 1);
        if (copies) {
          barrier_arrive_with(&s.full[stage], 2 * part_bytes + static_cast<int>(sizeof s.statistics[0]));
          copy_halves(s.q_or_k[stage], maps.q, batch, t * part_rows, head, &s.full[stage], Cached::last_out);
          copy_bulk(s.statistics[stage], statistics + static_cast<uint32_t>(t * 2 * part_rows), sizeof s.statistics[0],
                    &s.full[stage]);
          copy_halves(s.do_or_ds[stage], maps.d_o, batch, t * part_rows, head, &s.full[stage], Cached::last_out);
        }
        __syncwarp();
        ++at.count;
      }
    } else {
      wait_until(p.counters + static_cast<uint32_t>(1 + tile.head), p.key_tiles);
      const int key_parts = 2 * p.key_tiles;
      const unsigned char* const ds =
          p.ds + uint64_t{static_cast<uint32_t>((tile.slot * p.query_tiles + tile.place) * key_parts)} * (2 * ds_bytes);
#pragma unroll 1
      for (int t = 0; t < key_parts; ++t) {
        const int stage = at.place();
        barrier_wait(&s.empty[stage], at.parity() ^ 1);
        if (copies) {
          barrier_arrive_with(&s.full[stage], 2 * part_bytes);
          copy_bulk(s.do_or_ds[stage], ds + uint64_t{static_cast<uint32_t>(t)} * ds_bytes, ds_bytes, &s.full[stage],
                    Cached::first_out);
          copy_bulk(s.do_or_ds[stage] + ds_bytes, ds + uint64_t{static_cast<uint32_t>(key_parts + t)} * ds_bytes,
                    ds_bytes, &s.full[stage], Cached::first_out);
          copy_halves(s.q_or_k[stage], maps.k, batch, t * part_rows, head, &s.full[stage]);
        }
        __syncwarp();
        ++at.count;
      }
    }
    if (copies) barrier_arrive(&s.tile_wanted);
  }
}

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
__device__ inline void differentiate_keys(const Problem& p, Shared& s, const int4& taken, Turn<stages>& at) {
  using M = Multiply<T>;
  const int thread = static_cast<int>(threadIdx.x), group = same(thread / 128), lane = thread % 32;
  const int warp = thread % 128 / 32, own_row = warp * 16 + lane / 4;
  const Tile tile(taken);
  const Matrix k_rows(shared_address(s.k[group])), v_rows(shared_address(s.v[group]));
  const int seen = seen_keys(p, tile.head / p.heads, tile.place * tile_rows + group * part_rows + own_row);
  // A part of ds is a MatrixOfPieces of keys by queries: the lane has 16 bytes, 8 queries of a key, in four pieces.
  unsigned char* ds_to = p.ds +
                         (int64_t{tile.slot} * p.query_tiles * p.key_tiles * 4 + tile.place * 2 + group) * ds_bytes +
                         warp * 2048 + lane % 4 * 128 + lane / 4 * 16;
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
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int j = half; j < 16; j += 8)
        __stcs(reinterpret_cast<uint4*>(ds_to + half * 1024 + j / 8 * 512),
               make_uint4(ds[j], ds[j + 2], ds[j + 4], ds[j + 6]));
    ds_to += int64_t{p.key_tiles} * (2 * ds_bytes);
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
  const Tile again(taken);  // not kept in registers meanwhile
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

template <class T>
__device__ inline void differentiate_queries(const Problem& p, Shared& s, const int4& taken, Turn<stages>& at) {
  const int thread = static_cast<int>(threadIdx.x), group = same(thread / 128), lane = thread % 32;
  const int warp = thread % 128 / 32;
  const Tile tile(taken);
  float dq[64] = {};
#pragma unroll 1
  for (int i = 0; i < 2 * p.key_tiles; ++i) {
    barrier_wait(&s.full[at.place()], at.parity());
    const MatrixOfPieces ds(shared_address(s.do_or_ds[at.place()]) + group * ds_bytes);
    const Matrix k(shared_address(s.q_or_k[at.place()]), part_bytes / 2);
    multiplies_begin();
#pragma unroll
    for (int step = 0; step < 4; ++step) Multiply<T>::add_across(dq, ds.at(step * 128), k.at(step * 128));
    multiplies_commit();
    multiplies_wait<1>();
    if (i > 0 && lane == 0) barrier_arrive(&s.empty[(at.count - 1) % stages]);
    ++at.count;
  }
  multiplies_wait<0>();
  hold(dq);
  if (lane == 0) barrier_arrive(&s.empty[(at.count - 1) % stages]);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    // The lane's row is number `in` of column `piece` of pieces, and as it was stored there by differentiate_keys.
    const int piece = warp * 2 + half, in = lane / 4;
    const int query = (tile.place * 2 + group) * part_rows + piece / 4 * 32 + in / 2 * 8 + piece % 4 * 2 + in % 2;
    const int64_t dq_at = head_at<width>(p.dq_at, tile.head, p.heads) + query * p.dq_at.row;
    store_row(dq, half, p.scale, static_cast<T*>(p.dq) + dq_at, query < p.queries);
  }
}

template <class T>
__device__ void multiply(const Problem& p, Shared& s) {
  Turn<stages> at;
  Turn<2> slot;
  int keys_parity = 0;
  if (threadIdx.x >= multipliers / 2) pass(1);  // the first turn is the first warpgroup's
  for (;;) {
    barrier_wait(&s.tile_full[slot.place()], slot.parity());
    const int4& taken = s.tiles[slot.place()];
    const int kind = Tile(taken).kind;
    if (kind == no_more) return;
    if (kind == of_keys) {
      barrier_wait(&s.keys_full, keys_parity);
      keys_parity ^= 1;
      differentiate_keys<T>(p, s, taken, at);
    } else {
      differentiate_queries<T>(p, s, taken, at);
    }
    fence_async();
    barrier_among<1, multipliers>();
    if (threadIdx.x == 0) add_release(p.counters + 1 + (kind == of_keys ? 0 : p.all_heads) + taken.y);
    if (threadIdx.x % 32 == 0) barrier_arrive(&s.tile_empty[slot.place()]);
    ++slot.count;
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
    barrier_init(&s.keys_empty, multiplier_warps);
    for (int i = 0; i < stages; ++i) {
      barrier_init(&s.full[i], 1);
      barrier_init(&s.empty[i], multiplier_warps);
    }
    for (int i = 0; i < 2; ++i) {
      barrier_init(&s.tile_full[i], 1);
      barrier_init(&s.tile_empty[i], multiplier_warps + 1);
    }
    barrier_init(&s.tile_wanted, 1);
    fence_async();
  }
  __syncthreads();
  if (threadIdx.x >= multipliers) {
    fewer_registers<24>();
    if (threadIdx.x < multipliers + loaders)
      load(p, maps, s);
    else if (threadIdx.x == multipliers + loaders)
      take_tiles(p, s);
  } else {
    more_registers<240>();
    multiply<T>(p, s);
  }
#endif
}

// 16 lanes for each row of a head.
template <class T>
__global__ void prepare_kernel(const Problem p, int64_t rows) {
  await_previous();
  const int64_t thread = int64_t{blockIdx.x} * blockDim.x + threadIdx.x, at = thread / 16;
  if (thread < 1 + 2 * p.all_heads) p.counters[thread] = 0;
  const int padded = p.query_parts * part_rows;
  const int head = static_cast<int>(at % p.heads), query = static_cast<int>(at / p.heads % padded);
  const int64_t batch = at / p.heads / padded, all = batch * p.heads + head;
  const bool there = at < rows && query < p.queries;
  const float delta = delta_of_row<T, width>(p.o, batch * p.o_at.item + query * p.o_at.row + head * width, p.d_o,
                                             batch * p.d_o_at.item + query * p.d_o_at.row + head * width, there);
  if (at >= rows || thread % 16 != 0) return;
  float* const to = p.statistics + (all * p.query_parts + query / part_rows) * 2 * part_rows + query % part_rows;
  to[0] = there ? p.lse[all * p.queries + query] * log2_e : __int_as_float(0x7f800000);
  to[part_rows] = delta;
}

// Both halves of a head's rows one after the other, as copy_halves reads them.
CUtensorMap map_of(const lk_tensor& x) {
  const Spacing spacing = spacing_of(x);
  const auto bytes = [](int64_t numbers) { return static_cast<cuuint64_t>(numbers) * 2; };
  return tensor_map<5>(x.data, x.dtype,
                       {.dims = {width / 2, static_cast<cuuint64_t>(x.dims[1]), 2, static_cast<cuuint64_t>(x.dims[2]),
                                 static_cast<cuuint64_t>(x.dims[0])},
                        .pitches = {bytes(spacing.row), bytes(width / 2), bytes(width), bytes(spacing.item)},
                        .box = {width / 2, part_rows, 2, 1, 1}});
}

template <class T>
void run(Cuda& cuda, const Problem& p, const Maps& maps) {
  const int64_t rows = int64_t{p.all_heads} * p.query_parts * part_rows;
  cuda.launch(prepare_kernel<T>, dim3(static_cast<unsigned>(ceil_div(rows * 16, 256))), 256, 0, p, rows);
  const int tiles = p.all_heads * (p.key_tiles + p.query_tiles);
  cuda.launch(backward_kernel<T>, dim3(static_cast<unsigned>(std::min(tiles, cuda.device().multiProcessorCount))),
              threads, sizeof(Shared) + 1024, p, maps);
}

}  // namespace

bool attention_backward_wide_on_hopper(Cuda& cuda, const lk_attention_backward_params& p) {
  if (!suits_hopper(cuda, p, width, true, {&p.q, &p.k, &p.v, &p.o, &p.d_o, &p.dq, &p.dk, &p.dv})) return false;
  const int64_t batch = p.q.dims[0], queries = p.q.dims[1], heads = p.q.dims[2], keys = p.k.dims[1];
  const int64_t query_tiles = ceil_div(queries, tile_rows), key_tiles = ceil_div(keys, tile_rows);
  const int64_t query_parts = ceil_div(queries, part_rows);
  const int64_t processors = cuda.device().multiProcessorCount, all_heads = batch * heads;
  if (queries == 0 || all_heads * key_tiles < processors) return pass_over(cuda, "too few keys for each processor");
  // When a head's queries come up, all tiles of keys under way are of later heads, with twice as many between as that
  // takes: then nobody waits, and enough is left for the time in which the last keys end. A slot is wanted again when
  // the queries of its last head are done.
  const int64_t lag = std::min(all_heads, 2 * (1 + ceil_div(processors, key_tiles)));
  const int64_t slots = std::min(all_heads, lag + 1 + ceil_div(processors, key_tiles + query_tiles));
  const int64_t ds_parts = slots * query_tiles * key_tiles * 4, listed = (all_heads + lag) * (key_tiles + query_tiles);
  if (ds_parts * ds_bytes > most_ds_bytes || std::max(ds_parts, listed) > (int64_t{1} << 24))
    return pass_over(cuda, "too many tiles");
  Problem problem{.o = p.o.data,
                  .d_o = p.d_o.data,
                  .dq = p.dq.data,
                  .dk = p.dk.data,
                  .dv = p.dv.data,
                  .lse = static_cast<const float*>(p.lse.data),
                  .key_lengths = static_cast<const int32_t*>(p.key_lengths.data),
                  .key_mask = static_cast<const int32_t*>(p.key_mask.data),
                  .statistics = cuda.scratch<float>(all_heads * query_parts * 2 * part_rows),
                  .ds = cuda.scratch<unsigned char>(ds_parts * ds_bytes),
                  .counters = cuda.scratch<uint32_t>(1 + 2 * all_heads),
                  .queries = static_cast<int>(queries),
                  .keys = static_cast<int>(keys),
                  .heads = static_cast<int>(heads),
                  .all_heads = static_cast<int>(all_heads),
                  .query_parts = static_cast<int>(query_parts),
                  .query_tiles = static_cast<int>(query_tiles),
                  .key_tiles = static_cast<int>(key_tiles),
                  .lag = static_cast<int>(lag),
                  .slots = static_cast<int>(slots),
                  .listed = static_cast<int>(listed),
                  .o_at = spacing_of(p.o),
                  .d_o_at = spacing_of(p.d_o),
                  .dq_at = spacing_of(p.dq),
                  .dk_at = spacing_of(p.dk),
                  .dv_at = spacing_of(p.dv),
                  .scale = p.scale,
                  .factor = p.scale * log2_e};
  if (cuda.measuring()) return true;
  const Maps maps{map_of(p.q), map_of(p.k), map_of(p.v), map_of(p.d_o)};
  p.q.dtype == LK_BF16 ? run<__nv_bfloat16>(cuda, problem, maps) : run<__half>(cuda, problem, maps);
  return true;
}

}  // namespace lk::cuda
