// Which blocks of attention's kernels pass over which tiles, and in which order what they make is added up.
//
// An item is some rows of a head, queries or keys, and has a tile for each tile of the head's others. Blocks run at
// once, one on each processor, and take whole items in rounds, neighbours the items of one head, whose other rows the
// second-level cache then has. The tiles of the last items, one to two for each block, are one line that is shared out
// evenly, so that an item may begin in one block and end in another.
//
// Backward, all items of a head add to each tile, in turns, ordered by time, which is how many tiles the block had
// before, then by item, later ones first. Each block meets its turns in that order, so that the first turn that is not
// over can always be taken. Blocks seldom wait, as an item begins at a tile that is far from where others then are.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <vector>

namespace lk::cuda {

constexpr int64_t most_tiles = int64_t{1} << 24;  // of all items

struct Order {
  int blocks;
  int tiles;     // of an item
  int items;     // of a head
  int rounds;    // of whole items
  int units;     // tiles of the items that are shared out after them
  int rotation;  // of these: tiles from where an item of a head begins to where its next one does
};

__host__ __device__ inline int first_unit(int units, int blocks, int block) {
  return static_cast<int>(static_cast<uint32_t>(block) * static_cast<uint32_t>(units) / static_cast<uint32_t>(blocks));
}

// The tile that an item of a head begins with.
__device__ inline int start_of(const Order& order, bool shared_out, int item_of_head) {
  return shared_out ? order.rotation * item_of_head % order.tiles : item_of_head * order.tiles / order.items;
}

// What a block has of an item: places begin .. end - 1 in the order of its tiles; none: there is no more.
struct Part {
  int head, item_of_head, begin = 0, end = 0;
  int first_unit = 0;  // of the item, if it is shared out
};

// The parts of a block, in order.
class Parts {
 public:
  __device__ explicit Parts(const Order& order)
      : item_(static_cast<int>(blockIdx.x)),
        unit_(first_unit(order.units, order.blocks, item_)),
        last_(first_unit(order.units, order.blocks, item_ + 1)) {}

  __device__ Part next(const Order& order) {
    Part part;
    int item = item_;
    if (item < order.rounds * order.blocks) {
      item_ += order.blocks;
      part.end = order.tiles;
    } else {
      const int of_shared = unit_ / order.tiles;
      item = order.rounds * order.blocks + of_shared;
      part.first_unit = of_shared * order.tiles;
      part.begin = unit_ - part.first_unit;
      part.end = min(order.tiles, last_ - part.first_unit);
      unit_ = part.first_unit + part.end;
    }
    part.head = item / order.items;
    part.item_of_head = item - part.head * order.items;
    return part;
  }
  __device__ static int first_tile(const Order& order, const Part& part) {
    const bool shared_out = part.head * order.items + part.item_of_head >= order.rounds * order.blocks;
    return (start_of(order, shared_out, part.item_of_head) + part.begin) % order.tiles;
  }

 private:
  int item_, unit_, last_;
};

// How many of a head's items add to tile t before the one of this part does: those of earlier rounds, and of its own
// round those that come to t earlier. By a warp.
__device__ inline uint32_t turn_of(const Order& order, const Part& part, int t, int time) {
  const int first_item = part.head * order.items, shared_out = order.rounds * order.blocks - first_item;
  if (part.item_of_head < shared_out) {
    // Items begin at j tiles / items; `last` is the last one that begins at t or before.
    const int round = (first_item + part.item_of_head) / order.blocks * order.blocks - first_item;
    const int first = max(round, 0), end = min(round + order.blocks, order.items);
    const int last = min(((t + 1) * order.items + order.tiles - 1) / order.tiles, end) - 1;
    const bool begun = part.item_of_head <= last;
    return static_cast<uint32_t>(begun ? first + last - part.item_of_head
                                       : max(last + 1, first) + end - 1 - part.item_of_head);
  }
  const auto units = static_cast<uint32_t>(order.units), blocks = static_cast<uint32_t>(order.blocks);
  uint32_t before = static_cast<uint32_t>(max(shared_out, 0));
  for (int first = max(shared_out, 0); first < order.items; first += 32) {
    const int other = first + static_cast<int>(threadIdx.x) % 32;
    int place = t - start_of(order, true, other);
    if (place < 0) place += order.tiles;
    const auto unit = static_cast<uint32_t>((other - shared_out) * order.tiles + place);
    const uint32_t block = ((unit + 1) * blocks - 1) / units;
    const int its_time = order.rounds * order.tiles + static_cast<int>(unit - block * units / blocks);
    const bool earlier = its_time < time || (its_time == time && other > part.item_of_head);
    before += __popc(__ballot_sync(0xffffffffu, other < order.items && earlier));
  }
  return before;
}

// Of so many heads; all their tiles are most_tiles at most. Items begin with their first tile where they are shared
// out: only who adds to tiles needs a rotation.
inline Order order_of(int64_t heads, int64_t items, int64_t tiles, int64_t processors) {
  const int64_t rounds = std::max<int64_t>(heads * items / processors - 1, 0);
  const int64_t units = (heads * items - rounds * processors) * tiles;
  return {.blocks = static_cast<int>(std::min(units, processors)),
          .tiles = static_cast<int>(tiles),
          .items = static_cast<int>(items),
          .rounds = static_cast<int>(rounds),
          .units = static_cast<int>(units),
          .rotation = 0};
}

// The rotation with which the tiles that blocks of the first items' head begin with are farthest apart.
inline int rotation_of(const Order& order) {
  const int units = order.units, blocks = order.blocks, tiles = order.tiles;
  std::vector<int> begins;
  for (int block = 0; block < blocks && first_unit(units, blocks, block) < order.items * tiles; ++block)
    begins.push_back(first_unit(units, blocks, block));
  int best = 0, farthest = -1;
  for (int rotation = 0; rotation < tiles; ++rotation) {
    const auto tile = [&](int unit) { return (unit + rotation * (unit / tiles)) % tiles; };
    int nearest = tiles;
    for (size_t a = 0; a < begins.size(); ++a)
      for (size_t b = 0; b < a; ++b) {
        const int apart = std::abs(tile(begins[a]) - tile(begins[b]));
        nearest = std::min({nearest, apart, tiles - apart});
      }
    if (nearest > farthest) best = rotation, farthest = nearest;
  }
  return best;
}

}  // namespace lk::cuda
