// The backward pass of attention with heads of 128, in a fixed order of sums.
//
// dk and dv of 128 keys fill half of a processor's registers, and dq of the same step does not fit beside them. So ds
// goes through memory, in 16 bits, and dq is a product of its own:
//   tiles of 128 keys:    s^T = k q^T,  p^T = exp(scale s^T - lse),  dp^T = v do^T,  ds^T = p^T (dp^T - delta),
//                         dv += p^T do,  dk += ds^T q  over parts of 64 queries;  ds^T is stored
//   tiles of 128 or 256 queries: dq += ds k  over parts of 64 keys
// with delta = sum_d(do o). Every sum is made by one thread in order: nobody adds to what another one has.
//
// Tiles of both kinds run beside each other, those that wait for memory (dq) and those that do not: which and when, and
// where ds lies meanwhile, is in attention_wide_order.cuh.
//
// The weights p of keys that are not seen become 0 where they are computed, and with them all that such keys give and
// get.
//
// Where several heads of q have one of k and v, these are repeated first, and their gradients summed up afterwards, in
// order.
//
// One warp loads, a thread takes tiles, another one hands out cells, two warpgroups multiply, 64 keys or queries each.
// They issue their products in turns, so that one computes exponentials while the other's products run.
#include <optional>

#include "cuda/attention.h"
#include "cuda/attention_hopper.h"
#include "cuda/attention_wide_multiply.cuh"
#include "cuda/await_previous.cuh"
#include "lines.h"

namespace lk::cuda {

namespace {

using namespace wide;

constexpr int64_t usual_ds_bytes = int64_t{2} << 30, most_ds_bytes = int64_t{8} << 30;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

using namespace hopper;

// By one thread: takes tiles, each when all loads of the one before are begun.
template <class Way>
__device__ void take_tiles(const Problem& p, Shared& s) {
  typename Way::Tiles tiles;
  Turn<2> slot;
  for (int wanted = 0;; wanted ^= 1) {
    const Tile tile = tiles.next(p.order, p.counters);
    barrier_wait(&s.tile_empty[slot.place()], slot.parity() ^ 1);
    s.tiles[slot.place()] = tile;
    barrier_arrive(&s.tile_full[slot.place()]);
    ++slot.count;
    if (tile.kind == no_more) return;
    barrier_wait(&s.tile_wanted, wanted);
  }
}

// By one thread: hands out cells for tiles of keys, the next one while one is written, and tells of those that are.
template <class Way>
__device__ void hand_out_cells(const Problem& p, Shared& s) {
  Turn<2> slot, given, done;
  for (;;) {
    barrier_wait(&s.tile_full[slot.place()], slot.parity());
    const Tile tile = s.tiles[slot.place()];
    barrier_arrive(&s.tile_empty[slot.place()]);
    ++slot.count;
    if (tile.kind == no_more) return;
    if (tile.kind == of_queries) continue;
    typename Way::Cells cells(p.order, tile, p.counters);
    for (int row = 0; row <= p.order.query_tiles; ++row) {
      if (row < p.order.query_tiles) {
        s.cells[given.place()] = cells.next(p.order, p.counters);
        barrier_arrive(&s.cell_given[given.place()]);
        ++given.count;
      }
      if (row == 0) continue;
      barrier_wait(&s.cell_done[done.place()], done.parity());
      ++done.count;
      fence_async();
      cells.tell(p.order, p.counters, tile);
    }
  }
}

// By one warp, of which one lane copies. Places are counted without signs: that takes fewer registers.
template <class Way>
__device__ void load(const Problem& p, const Maps& maps, Shared& s) {
  const bool copies = threadIdx.x % 32 == 0;
  Turn<stages> at;
  Turn<2> slot;
  int keys_parity = 1;
  for (;;) {
    barrier_wait(&s.tile_full[slot.place()], slot.parity());
    const Tile tile = same(s.tiles[slot.place()]);
    __syncwarp();
    if (copies) barrier_arrive(&s.tile_empty[slot.place()]);
    ++slot.count;
    if (tile.kind == no_more) return;
    const int batch = tile.head / p.heads, head = tile.head % p.heads;
    if (tile.kind == of_keys) {
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
          copy_halves(s.q_or_k[stage], maps.q, batch, t * part_rows, head, &s.full[stage], Way::q_cached);
          copy_bulk(s.statistics[stage], statistics + static_cast<uint32_t>(t * 2 * part_rows), sizeof s.statistics[0],
                    &s.full[stage]);
          copy_halves(s.do_or_ds[stage], maps.d_o, batch, t * part_rows, head, &s.full[stage], Way::q_cached);
        }
        __syncwarp();
        ++at.count;
      }
    } else {
      typename Way::Rows rows(p.order, tile, p.counters);
#pragma unroll 1
      for (int key = 0; key < p.order.key_tiles; ++key) {
        int cells[Way::Rows::rows];
        rows.next(p.order, p.counters, cells);
#pragma unroll 1
        for (int half = 0; half < 2; ++half) {
          const int stage = at.place();
          const RowPart<Way::Rows::rows> part(s, stage);
          barrier_wait(&s.empty[stage], at.parity() ^ 1);
          if (copies) {
            barrier_arrive_with(&s.full[stage], part_bytes + rows.there() * 2 * ds_bytes);
#pragma unroll
            for (int row = 0; row < Way::Rows::rows; ++row) {
              if (row >= rows.there()) continue;
              const unsigned char* const ds =
                  p.ds + uint64_t{static_cast<uint32_t>(cells[row])} * cell_bytes + half * ds_bytes;
              copy_bulk(part.ds + row * 2 * ds_bytes, ds, ds_bytes, &s.full[stage], Way::ds_cached);
              copy_bulk(part.ds + (row * 2 + 1) * ds_bytes, ds + 2 * ds_bytes, ds_bytes, &s.full[stage],
                        Way::ds_cached);
            }
            copy_halves(part.k, maps.k, batch, key * tile_rows + half * part_rows, head, &s.full[stage]);
          }
          __syncwarp();
          ++at.count;
        }
        if (copies) rows.tell(p.counters, (at.count - stages) / 2);
      }
    }
    if (copies) barrier_arrive(&s.tile_wanted);
  }
}

#endif

template <class T, class Way>
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
      barrier_init(&s.tile_empty[i], multiplier_warps + 2);
      barrier_init(&s.cell_given[i], 1);
      barrier_init(&s.cell_done[i], multiplier_warps);
    }
    barrier_init(&s.tile_wanted, 1);
    fence_async();
  }
  __syncthreads();
  if (threadIdx.x >= multipliers) {
    fewer_registers<24>();
    if (threadIdx.x < multipliers + loaders)
      load<Way>(p, maps, s);
    else if (threadIdx.x == multipliers + loaders)
      take_tiles<Way>(p, s);
    else if (threadIdx.x == multipliers + 2 * loaders)
      hand_out_cells<Way>(p, s);
  } else {
    more_registers<240>();
    multiply<T, Way>(p, s);
  }
#endif
}

// 16 lanes for each row of a head.
template <class T>
__global__ void prepare_kernel(const Problem p, int64_t rows) {
  await_previous();
  const int64_t thread = int64_t{blockIdx.x} * blockDim.x + threadIdx.x, at = thread / 16;
  if (thread < p.order.counters()) p.counters[thread] = 0;
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

// Of a dense tensor [B, S, heads, D], each of its heads so many times.
lk_tensor repeated_heads(lk_tensor x, int64_t times) {
  if (times == 1) return x;
  x.dims[2] *= times;
  for (int64_t& stride : x.strides) stride = 0;
  return x;
}

template <class T>
void run(Cuda& cuda, const Problem& p, const Maps& maps) {
  const int64_t rows = int64_t{p.order.all_heads} * p.query_parts * part_rows;
  cuda.launch(prepare_kernel<T>, dim3(static_cast<unsigned>(ceil_div(rows * 16, 256))), 256, 0, p, rows);
  const dim3 blocks(static_cast<unsigned>(p.order.blocks(cuda.device().multiProcessorCount)));
  if (p.order.in_teams())
    cuda.launch_together(backward_kernel<T, InTeams>, blocks, threads, sizeof(Shared) + 1024, p, maps);
  else
    cuda.launch(backward_kernel<T, ByList>, blocks, threads, sizeof(Shared) + 1024, p, maps);
}

}  // namespace

bool attention_backward_wide_on_hopper(Cuda& cuda, const lk_attention_backward_params& given) {
  if (given.q.dims[3] != width) return false;  // the other one's
  lk_attention_backward_params p = given;
  const int64_t group = p.q.dims[2] / p.k.dims[2];
  for (lk_tensor* const t : {&p.k, &p.v, &p.dk, &p.dv}) {
    if (group > 1 && !is_dense(*t)) return pass_over(cuda, "grouped heads that are not dense");
    *t = repeated_heads(*t, group);
  }
  if (!suits_hopper(cuda, p, width, true, {&p.q, &p.k, &p.v, &p.o, &p.d_o, &p.dq, &p.dk, &p.dv})) return false;
  const int64_t batch = p.q.dims[0], queries = p.q.dims[1], heads = p.q.dims[2], keys = p.k.dims[1];
  const int64_t query_tiles = ceil_div(queries, tile_rows), key_tiles = ceil_div(keys, tile_rows);
  const int64_t query_parts = ceil_div(queries, part_rows);
  const int64_t processors = cuda.device().multiProcessorCount, all_heads = batch * heads;
  if (queries == 0 || all_heads * key_tiles < processors) return pass_over(cuda, "too few keys for each processor");
  const std::optional<WideOrder> order =
      wide_order(all_heads, query_tiles, key_tiles, processors, usual_ds_bytes / cell_bytes);
  if (!order || order->cells() * cell_bytes > most_ds_bytes) return pass_over(cuda, "too many tiles");
  if (group > 1) {
    p.k = copy_keys(cuda, given.k, group, {}), p.v = copy_keys(cuda, given.v, group, {});
    for (lk_tensor* const t : {&p.dk, &p.dv}) t->data = cuda.scratch<uint16_t>(numel(*t));
  }
  Problem problem{.o = p.o.data,
                  .d_o = p.d_o.data,
                  .dq = p.dq.data,
                  .dk = p.dk.data,
                  .dv = p.dv.data,
                  .lse = static_cast<const float*>(p.lse.data),
                  .key_lengths = static_cast<const int32_t*>(p.key_lengths.data),
                  .key_mask = static_cast<const int32_t*>(p.key_mask.data),
                  .statistics = cuda.scratch<float>(all_heads * query_parts * 2 * part_rows),
                  .ds = cuda.scratch<unsigned char>(order->cells() * cell_bytes),
                  .counters = cuda.scratch<uint32_t>(order->counters()),
                  .order = *order,
                  .queries = static_cast<int>(queries),
                  .keys = static_cast<int>(keys),
                  .heads = static_cast<int>(heads),
                  .query_parts = static_cast<int>(query_parts),
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
  if (group > 1) {
    collect_key_gradient(cuda, p.dk, group, {}, given.dk);
    collect_key_gradient(cuda, p.dv, group, {}, given.dv);
  }
  return true;
}

}  // namespace lk::cuda
