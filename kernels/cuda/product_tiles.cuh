// d = a op(b) + z op(v) + bias + c in 16-bit numbers, sums in float32.
//
// A block makes tiles of d of 128 rows and 96 to 256 columns, two warpgroups 64 rows each; one thread loads parts of 64
// along the sum's axis, some ahead. Two blocks of a cluster have tiles below each other, and each loads half of b's
// part for both. The adapter's z op(v) is the first part, or the first two. Results leave through shared memory as bulk
// copies; c has come there before, while the sums were made. Where what is stored then goes through an activation, two
// warps beside the one that loads begin the copies, one for each warpgroup, and see to that while the next tile is made
// (activation_beside.cuh).
//
// The kernel in front makes the adapter's part or its gradients and leaves b alone, whose first parts are loaded before
// it has ended.
//
// Several layers are made by one kernel: where a is the same, their columns lie side by side, and a tile is of one
// layer; where d is, their sums come one after the other, and a tile is of all.
#pragma once

#include <algorithm>

#include "cuda/product_common.cuh"

namespace lk::cuda::product {

template <int Cols, bool Across>
struct Shared {
  using Out = Leaving<Cols>;
  // Of b [k, n], whole boxes.
  static constexpr int b_boxes = (Cols + line - 1) / line, b_bytes = Across ? b_boxes * box_bytes : Cols * line_bytes;
  static constexpr int d_bytes = groups * Out::places * Out::boxes * Out::bytes;
  static constexpr int stages =
      std::min(8, (block_bytes - 1024 - d_bytes - tables_bytes) / (a_bytes + b_bytes));  // parts on their way
  alignas(1024) unsigned char a[stages][a_bytes];
  alignas(1024) unsigned char b[stages][b_bytes];
  alignas(1024) unsigned char d[groups][Out::places][Out::boxes][Out::bytes];
  alignas(16) unsigned char bias[groups][Cols * 2];
  uint64_t full[stages], empty[stages], added[groups][Out::places];
  uint64_t written[groups][Out::places], read[groups][Out::places], stored[groups];  // with an activation
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

using namespace hopper;

template <bool Activates>
using TilesOf = std::conditional_t<Activates, PairedTiles, Tiles>;

// By one thread.
template <int Cols, bool Across, bool Activates, int Layers>
__device__ void load_parts(const Problem<Layers>& p, const Maps<Layers>& maps, Shared<Cols, Across>& s) {
  using S = Shared<Cols, Across>;
  constexpr int stages = S::stages;
  const int own = block_of_cluster();
  const auto load_right = [&](int stage, const CUtensorMap& right, const Place& place, int from) {
    uint64_t* const full = &s.full[stage];
    barrier_arrive_with(full, a_bytes + S::b_bytes);
    const int col = place.col * Cols;
    if constexpr (Across) {
      for (int i = own; i < S::b_boxes; i += cluster)
        copy_box_to_both(s.b[stage] + i * box_bytes, right, col + i * line, from, full);
    } else {
      copy_box_to_both(s.b[stage] + own * (S::b_bytes / 2), right, from, col + own * (Cols / 2), full);
    }
  };
  TilesOf<Activates> tiles;
  int early = 0;  // parts of b, behind the adapter's
  if (tiles.there(p)) {
    const Place place = tiles.place(p);
    const int share = 1 + p.more_share[place.layer];
    for (; early < min(stages - share, p.steps[place.layer]); ++early)
      load_right(early + share, maps.of[place.layer].b, place, early * depth);
  }
  await_previous();
  Ring<stages> at;
  for (; tiles.there(p); tiles.next()) {
    const Place place = tiles.place(p);
    const int row = (place.row * cluster + own) * tile_rows;
#pragma unroll 1
    for (int layer = place.layer; layer < place.end; ++layer) {
      const auto& of = maps.of[layer];
      const int share = 1 + p.more_share[layer];
      for (int step = -share; step < p.steps[layer]; ++step) {  // the adapter's first
        const int from = (step < 0 ? step + share : step) * depth;
        barrier_wait(&s.empty[at.stage], at.parity ^ 1);
        if (step < 0 || early == 0)
          load_right(at.stage, step < 0 ? of.v : of.b, place, from);
        else
          --early;
        copy_box(s.a[at.stage], step < 0 ? of.z : of.a, from, row, &s.full[at.stage]);
        at.next();
      }
    }
  }
}

// What follows on a tile that was stored: nothing, its activation, or that of the pair of which it is the second.
template <class T, int Cols, int Layers>
__device__ void activate_tile(const Problem<Layers>& p, const Place& place, int group, int warp, int warps) {
  const int col = place.of_all - p.activated_from - p.gates;
  if (col >= 0)
    activate_part<T, Pair<T>, group_rows, Cols>(p.beside, part_of<Cols>(place, group).row, col * Cols, warp, warps);
}

// Where a group's tiles end up, by a warp beside it. The last one's activation is left to the group, which is free
// then.
template <class T, int Cols, int Layers>
__device__ void store_tiles(const Problem<Layers>& p, const Maps<Layers>& maps, Shared<Cols, false>& s, int group) {
  using Out = Leaving<Cols>;
  static_assert(Out::in_turns);
  const bool first_lane = threadIdx.x % 32 == 0;
  constexpr int count = Out::turns, boxes = Out::places;
  int turns = 0;
  for (PairedTiles tiles; tiles.there(p); turns += count / boxes) {
    const Place place = tiles.place(p);
    const auto [row, col] = part_of<Cols>(place, group);
#pragma unroll
    for (int box = 0; box < count; ++box) {
      barrier_wait(&s.written[group][box % boxes], (turns + box / boxes) % 2);
      if (first_lane) {
        if (col + box * line < p.cols[place.layer] && row < p.rows)
          store_box(maps.of[place.layer].d, col + box * line, row, s.d[group][box % boxes][0]);
        bulk_commit();
        if (box > 0) {
          bulk_wait_read<1>();
          barrier_arrive(&s.read[group][(box - 1) % boxes]);
        }
        if (box == count - 1) {
          bulk_wait();
          barrier_arrive(&s.read[group][box % boxes]);
        }
      }
      __syncwarp();
    }
    tiles.next();
    if (tiles.there(p))
      activate_tile<T, Cols>(p, place, group, 0, 1);
    else if (first_lane)
      barrier_arrive(&s.stored[group]);
  }
}

template <class T, int Cols, int Layers>
__device__ void activate_last(const Problem<Layers>& p, Shared<Cols, false>& s, int group, const Place& last,
                              int warp) {
  barrier_wait(&s.stored[group], 0);
  activate_tile<T, Cols>(p, last, group, warp, 4);
}

// Results that are rounded and still in registers leave while the next tile's first parts are multiplied; those with c
// before.
template <int Cols>
struct Waiting {
  Rounded<Cols> turns[Leaving<Cols>::turns];
  bool there = false;
  int layer, taken;
  Part part;
};

template <class T, int Cols, bool Across, bool Activates, int Layers>
__device__ void multiply(const Problem<Layers>& p, const Maps<Layers>& maps, Shared<Cols, Across>& s) {
  using Out = Leaving<Cols>;
  const int thread = static_cast<int>(threadIdx.x) % 128;
  const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 128, 0);
  Waiting<Cols> waiting;
  const auto leave_one = [&]<int Turn>() {
    leave_turn<Cols, Activates, Turn>(p, maps, s, waiting.layer, group, waiting.part, waiting.taken,
                                      waiting.turns[Turn]);
  };
  Ring<Shared<Cols, Across>::stages> at;
  int turns = 0;  // of each place for boxes
  for (TilesOf<Activates> tiles; tiles.there(p); tiles.next()) {
    const Place place = tiles.place(p);
    const Part part = part_of<Cols>(place, group);
    if (p.adds && thread == 0) fetch_first_added<Cols>(maps, s, group, part);
    float sum[Cols / 2];
    const auto left = [&] { return Matrix(shared_address(s.a[at.stage]) + group * (group_rows * line_bytes)); };
    const auto right = [&] { return Matrix(shared_address(s.b[at.stage]), Across ? box_bytes : 16); };
    int before = -1;  // the stage that is to be released, for both blocks that load
    const auto release = [&] {
      if (before >= 0 && thread < cluster) barrier_arrive_at(&s.empty[before], thread);
    };
    const auto begin_part = [&] {
      barrier_wait(&s.full[at.stage], at.parity);
      multiplies_begin();
    };
    const auto end_part = [&] {
      multiplies_wait<1>();
      release();
      before = at.stage;
      at.next();
    };
    const auto multiply_part = [&](const auto& meanwhile) {
      begin_part();
#pragma unroll
      for (int i = 0; i < depth / 16; ++i) add_sixteen<T, Across, true>(sum, left(), right(), i);
      multiplies_commit();
      meanwhile();
      end_part();
    };
    if constexpr (Layers > 1) {
#pragma unroll
      for (int i = 0; i < Cols / 2; ++i) sum[i] = 0;
      hold(sum);
    }
#pragma unroll 1
    for (int layer = place.layer; layer < place.end; ++layer) {
      begin_part();
      add_sixteen<T, Across, (Layers > 1)>(sum, left(), right(), 0);
#pragma unroll 1
      for (int i = 1; i < p.share[layer]; ++i) {
        multiplies_begin();
        add_sixteen<T, Across, true>(sum, left(), right(), i);
      }
      multiplies_commit();
      end_part();
      int step = -p.more_share[layer];
      if (waiting.there && p.steps[layer] - step >= Out::turns) {
        each_of(TurnsOf<Cols>(), [&]<int Turn>() { multiply_part([&] { leave_one.template operator()<Turn>(); }); });
        step += Out::turns;
      } else if (waiting.there) {
        each_of(TurnsOf<Cols>(), leave_one);
      }
      waiting.there = false;
#pragma unroll 1
      for (; step < p.steps[layer]; ++step) multiply_part([] {});
    }
    // All have read the last tile's: without an activation they have met since.
    if constexpr (Activates) meet(group);
    note_bias<T, Cols>(p.bias[place.layer], s, group, thread, part.col, p.cols[place.layer]);
    multiplies_wait<0>();
    hold(sum);
    release();
    meet(group);  // all have noted the bias
    if (!Activates && p.adds) {
      leave_added<T, Cols>(p, maps, s, place.layer, group, part, turns, sum);
    } else {
      each_of(TurnsOf<Cols>(), [&]<int Turn>() { round_sums<T, Cols, Turn>(s, group, sum, waiting.turns[Turn]); });
      waiting.there = true;
      waiting.layer = place.layer, waiting.taken = turns, waiting.part = part;
    }
    turns += Out::turns / Out::places;
  }
  if (waiting.there) each_of(TurnsOf<Cols>(), leave_one);
  if constexpr (Activates) {
    TilesOf<true> last, tiles;
    for (; tiles.there(p); tiles.next()) last = tiles;
    activate_last<T, Cols>(p, s, group, last.place(p), thread / 32);
  } else if (thread == 0) {
    bulk_wait_read<0>();
  }
}

#endif

template <class T, int Cols, bool Across, bool Activates, int Layers>
__global__ void __cluster_dims__(cluster, 1, 1) __launch_bounds__(threads, 1)
    product_kernel(const __grid_constant__ Problem<Layers> p, const __grid_constant__ Maps<Layers> maps) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char memory[];
  using S = Shared<Cols, Across>;
  S& s = aligned<S>(memory);
  begin<Cols>(maps, s, [&] {
    if constexpr (Activates) {
      for (int i = 0; i < groups * Leaving<Cols>::places; ++i) {
        barrier_init(&s.written[0][0] + i, 4);
        barrier_init(&s.read[0][0] + i, 1);
      }
      for (int i = 0; i < groups; ++i) barrier_init(&s.stored[i], 1);
    }
  });
  constexpr int registers = Activates ? 72 : 40;  // the others have what is left of 504
  if (threadIdx.x >= multipliers) {
    fewer_registers<registers>();
    if (threadIdx.x == multipliers) load_parts<Cols, Across, Activates>(p, maps, s);
    __syncwarp();
    if constexpr (Activates) {
      await_previous();
      const int warp = static_cast<int>(threadIdx.x - multipliers) / 32 - 1;
      if (warp >= 0 && warp < groups) store_tiles<T, Cols>(p, maps, s, warp);
    }
  } else {
    more_registers<(504 - registers) / 2>();
    await_previous();
    multiply<T, Cols, Across, Activates>(p, maps, s);
  }
  cluster_barrier();  // the other block's copies and arrivals come here
#endif
}

template <class T, int Cols, int Layers>
auto kernel_of(bool across, bool activates) {
  if constexpr (Leaving<Cols>::in_turns)
    if (activates) return product_kernel<T, Cols, false, true, Layers>;
  return across ? product_kernel<T, Cols, true, false, Layers> : product_kernel<T, Cols, false, false, Layers>;
}

template <int Cols, int Layers>
Tile<Layers> tile_of(lk_dtype type, bool across, bool activates) {
  const auto kernel = type == LK_BF16 ? kernel_of<__nv_bfloat16, Cols, Layers>(across, activates)
                                      : kernel_of<__half, Cols, Layers>(across, activates);
  constexpr size_t bytes[] = {sizeof(Shared<Cols, false>) + 1024, sizeof(Shared<Cols, true>) + 1024};
  static_assert(std::max(bytes[0], bytes[1]) <= block_bytes);
  return {Cols, kernel, bytes[across ? 1 : 0]};
}

}  // namespace lk::cuda::product
