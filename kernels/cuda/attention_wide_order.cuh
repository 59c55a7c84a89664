// Which blocks of attention's backward pass at heads of 128 take which tiles of keys and of queries, and where ds lies
// on its way from the ones to the others. A cell is ds of 128 queries and 128 keys; a row, 128 queries and all keys.
//
// By a list: tiles of both kinds are taken from one list, by blocks that stay. In it the queries of a head come `lag`
// heads after its keys, between the keys of a later head: by then they are done, and as who takes a tile only waits for
// tiles earlier in the list, which are all taken, somebody can always go on. Cells are those of `slots` heads, more
// than `lag`: more than the second-level cache holds, so that ds goes to memory and comes back. Long heads have as few
// slots as leave hardly anybody waiting: three, and a lag of two.
//
// In teams: a team has a block for each tile of keys of a head and `followers`, which take pairs of rows in turn as
// soon as their cells are there; then comes the team's next head. A tile of keys has `depth` cells and writes the next
// row's where a follower has read. As a follower reads a pair in the order of the keys, their tiles are soon out of
// step by as much as it takes from one to the next, and every cell is read when it has just been written: so few are
// under way that all stay in the second-level cache. Who waits, for a cell to be there or to be read, waits for what
// others do with earlier rows, so somebody can always go on; but all blocks have to be there at once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "cuda/attention_order.cuh"
#include "cuda/cuda.h"
#include "cuda/hopper.cuh"

namespace lk::cuda::wide {

// The two ways, as the kernel's parameter.
struct ByList;
struct InTeams;

struct WideOrder {
  int key_tiles, query_tiles, all_heads;
  int lag = 0, slots = 0, listed = 0;  // by a list
  int teams = 0, followers = 0;        // or in teams, unless there are none

  __host__ __device__ bool in_teams() const { return teams > 0; }
  __host__ __device__ int members() const { return key_tiles + followers; }
  __host__ __device__ int pairs() const { return (query_tiles + 1) / 2; }  // of rows of a head
  __host__ __device__ int counters() const { return in_teams() ? teams * members() : 1 + 2 * all_heads; }
  int64_t cells() const {
    return in_teams() ? int64_t{teams} * key_tiles * depth : int64_t{slots} * query_tiles * key_tiles;
  }
  int blocks(int processors) const {
    return in_teams() ? teams * members() : std::min(all_heads * (key_tiles + query_tiles), processors);
  }

  // A pair that is written, one that is read, and as much again for telling of both: with 4, who writes waits for who
  // reads (1480 us for 1190 of 24 heads of 4608), with 10 the cache is full (1260).
  static constexpr int depth = 6;
};

// usual_cells: where more would be wanted there are fewer slots, but no fewer than three. None: there are too many
// tiles to count.
inline std::optional<WideOrder> wide_order(int64_t all_heads, int64_t query_tiles, int64_t key_tiles,
                                           int64_t processors, int64_t usual_cells) {
  // When a head's queries come up, all tiles of keys under way are of later heads, with twice as many between as that
  // takes: then nobody waits, and enough is left for the time in which the last keys end. A slot is wanted again when
  // the queries of its last head are done.
  constexpr int64_t least_slots = 3;
  const int64_t under_way = ceil_div(processors, key_tiles + query_tiles);  // heads
  const int64_t room = std::max(usual_cells / (key_tiles * query_tiles), least_slots);
  const int64_t lag =
      std::min({all_heads, 2 * (1 + ceil_div(processors, key_tiles)), std::max(room - 1 - under_way, least_slots - 1)});
  const int64_t listed = (all_heads + lag) * (key_tiles + query_tiles);
  if (listed > most_tiles) return {};
  WideOrder order{.key_tiles = static_cast<int>(key_tiles),
                  .query_tiles = static_cast<int>(query_tiles),
                  .all_heads = static_cast<int>(all_heads)};
  // As many followers as keep up: on an H200 a pair takes one 0.36 of a cell's time at the keys for each of them.
  const int64_t least = ceil_div(2 * key_tiles, 11);
  const int64_t teams = std::min(all_heads, processors / (key_tiles + least));
  // Both ways in cells' time at the keys: a team's heads and its last follower; by a list, cells at the queries take
  // 0.27 more. Teams leave processors idle, but what they save is power: at a card's limit they are up to 6% faster
  // where they are level here, and as fast where they are a tenth behind. The memory that they save is worth a little
  // more.
  const auto cells = static_cast<double>(key_tiles * query_tiles);
  const double by_list = 1.27 * static_cast<double>(all_heads) * cells / static_cast<double>(processors);
  const bool countable = all_heads * key_tiles * query_tiles < int64_t{1} << 30;  // the cells of all heads
  if (teams > 0 && countable &&
      static_cast<double>(ceil_div(all_heads, teams) * query_tiles) + 0.36 * static_cast<double>(key_tiles) <
          1.13 * by_list) {
    order.teams = static_cast<int>(teams);
    order.followers = static_cast<int>(std::min(processors / teams - key_tiles, std::max<int64_t>(1, key_tiles / 3)));
    return order;
  }
  order.lag = static_cast<int>(lag);
  order.slots = static_cast<int>(std::min({all_heads, lag + 1 + under_way, room}));
  order.listed = static_cast<int>(listed);
  return order;
}

enum TileKind { no_more = -1, of_queries, of_keys };

// Of a head of all items. `slot`: of a list the head's, in a team the number of the first row among all of the team.
struct Tile {
  int kind, head, place, slot;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Counters. By a list: tiles taken; then of each head the tiles of keys that are done; and those of queries. In teams,
// for each member: the rows that a tile of keys has made, or the cells that a follower has read.
__device__ inline uint32_t* keys_done(uint32_t* counters, int head) { return counters + 1 + head; }
__device__ inline uint32_t* queries_done(const WideOrder& o, uint32_t* counters, int head) {
  return counters + 1 + o.all_heads + head;
}

// The tiles of a block, in order; by one thread.
class ListedTiles {
 public:
  __device__ Tile next(const WideOrder& o, uint32_t* counters) {
    for (;;) {
      const int x = static_cast<int>(atomicAdd(counters, 1u));
      if (x >= o.listed) return {no_more, 0, 0, 0};
      const Tile tile = number(o, x);
      if (tile.head >= 0 && tile.head < o.all_heads) return tile;
    }
  }

 private:
  // For each head its tiles of keys, and spread evenly between them the tiles of queries of the head that is `lag`
  // before; the first ones and the last ones do not exist.
  __device__ static Tile number(const WideOrder& o, int x) {
    const int both = o.key_tiles + o.query_tiles, group = x / both, y = x % both;
    const int before = y * o.query_tiles / both;
    const bool keys = (y + 1) * o.query_tiles / both == before;
    const int head = keys ? group : group - o.lag;
    return {keys ? of_keys : of_queries, head, keys ? y - before : before, head % o.slots};
  }
};

class TeamTiles {
 public:
  __device__ Tile next(const WideOrder& o, const uint32_t*) {
    const int team = static_cast<int>(blockIdx.x) / o.members(), member = static_cast<int>(blockIdx.x) % o.members();
    const int turn = turn_++;
    if (member < o.key_tiles) {
      const int head = team + turn * o.teams;
      return {head < o.all_heads ? of_keys : no_more, head, member, turn * o.query_tiles};
    }
    const int pair = member - o.key_tiles + turn * o.followers, heads = pair / o.pairs(), place = pair % o.pairs();
    const int head = team + heads * o.teams;
    return {head < o.all_heads ? of_queries : no_more, head, place, heads * o.query_tiles + place * 2};
  }

 private:
  int turn_ = 0;
};

__device__ inline void wait_until(const uint32_t* counter, int count) {
  while (static_cast<int>(hopper::load_acquire(counter)) < count) __nanosleep(50);
}

// The cells of a tile of keys, a row after the other, each when it may be written; by one thread.
class ListedCells {
 public:
  __device__ ListedCells(const WideOrder& o, const Tile& tile, uint32_t* counters)
      : cell_(tile.slot * o.query_tiles * o.key_tiles + tile.place) {
    if (tile.head >= o.slots)  // the slot's last head is used up
      wait_until(queries_done(o, counters, tile.head - o.slots), o.query_tiles);
  }
  __device__ int next(const WideOrder& o, const uint32_t*) {
    const int cell = cell_;
    cell_ += o.key_tiles;
    return cell;
  }
  // Another one is written.
  __device__ void tell(const WideOrder& o, uint32_t* counters, const Tile& tile) {
    if (++told_ == o.query_tiles) hopper::add_release(keys_done(counters, tile.head));
  }

 private:
  int cell_, told_ = 0;
};

class TeamCells {
 public:
  __device__ TeamCells(const WideOrder& o, const Tile& tile, const uint32_t*) : row_(tile.slot), key_(tile.place) {
    const int team = tile.head % o.teams;
    counters_ = team * o.members();
    first_ = (team * o.key_tiles + key_) * WideOrder::depth;
  }
  __device__ int next(const WideOrder& o, const uint32_t* counters) {
    const int before = row_ - WideOrder::depth;  // the row that the cell was of
    if (before >= 0) {
      const int heads = before / o.query_tiles, pair = heads * o.pairs() + (before - heads * o.query_tiles) / 2;
      wait_until(counters + counters_ + o.key_tiles + pair % o.followers, pair / o.followers * o.key_tiles + key_ + 1);
    }
    return first_ + row_++ % WideOrder::depth;
  }
  __device__ void tell(const WideOrder&, uint32_t* counters, const Tile&) {
    hopper::add_release(counters + counters_ + key_);
  }

 private:
  int row_, key_, counters_, first_;
};

// The cells of a tile of queries in the order of the keys, one of each row, when they are there; by a warp.
class ListedRow {
 public:
  static constexpr int rows = 1;

  __device__ ListedRow(const WideOrder& o, const Tile& tile, uint32_t* counters)
      : cell_((tile.slot * o.query_tiles + tile.place) * o.key_tiles) {
    wait_until(keys_done(counters, tile.head), o.key_tiles);
    hopper::fence_async();
  }
  __device__ int there() const { return 1; }
  __device__ void next(const WideOrder&, const uint32_t*, int (&cells)[rows]) { cells[0] = cell_++; }
  __device__ void tell(uint32_t*, int) {}
  __device__ static void end(const WideOrder& o, uint32_t* counters, int head, int) {
    hopper::add_release(queries_done(o, counters, head));
  }

 private:
  int cell_;
};

class TeamRows {
 public:
  static constexpr int rows = 2;

  __device__ TeamRows(const WideOrder& o, const Tile& tile, const uint32_t*)
      : row_(tile.slot),
        there_(tile.place * 2 + 1 < o.query_tiles ? 2 : 1),
        first_(tile.head % o.teams * o.key_tiles * WideOrder::depth) {}
  __device__ int there() const { return there_; }
  __device__ void next(const WideOrder& o, const uint32_t* counters, int (&cells)[rows]) {
    while (key_ >= made_) {
      const int key = key_ + static_cast<int>(threadIdx.x % 32), team = static_cast<int>(blockIdx.x) / o.members();
      const bool is = key < o.key_tiles &&
                      static_cast<int>(hopper::load_acquire(counters + team * o.members() + key)) >= row_ + there_;
      made_ = key_ + __clz(static_cast<int>(__brev(~__ballot_sync(0xffffffffu, is))));  // all before are, too
      __syncwarp();
      hopper::fence_async();
    }
    ++key_;
    cells[0] = first_ + row_ % WideOrder::depth;
    cells[1] = first_ + (row_ + 1) % WideOrder::depth;
    first_ += WideOrder::depth;
  }
  // By one thread: so many cells of each row, of all tiles until now, are read.
  __device__ void tell(uint32_t* counters, int cells) {
    if (key_ % 2 == 0 && cells > 0) hopper::raise_release(counters + blockIdx.x, static_cast<uint32_t>(cells));
  }
  __device__ static void end(const WideOrder&, uint32_t* counters, int, int cells) {
    hopper::raise_release(counters + blockIdx.x, static_cast<uint32_t>(cells));
  }

 private:
  int row_, there_, first_, key_ = 0, made_ = 0;
};

// And what the second-level cache is told of q and do, read by all tiles of keys of a head, and of ds.
struct ByList {
  using Tiles = ListedTiles;
  using Cells = ListedCells;
  using Rows = ListedRow;
  static constexpr hopper::Cached q_cached = hopper::Cached::last_out, ds_cached = hopper::Cached::first_out;
};
struct InTeams {
  using Tiles = TeamTiles;
  using Cells = TeamCells;
  using Rows = TeamRows;
  static constexpr hopper::Cached q_cached = hopper::Cached::usual, ds_cached = hopper::Cached::usual;
};

#endif

}  // namespace lk::cuda::wide
