// What the kernels that make products of 16-bit numbers have in common (product_tiles.cuh, product_through.cuh): which
// tiles a cluster makes, how its blocks begin, and how results leave.
#pragma once

#include <type_traits>
#include <utility>

#include "cuda/await_previous.cuh"
#include "cuda/hopper.cuh"
#include "cuda/matrix_instructions.cuh"
#include "cuda/product_problem.cuh"

namespace lk::cuda::product {

constexpr int block_bytes = 227 * 1024, tables_bytes = 2048;  // shared memory of a block; biases and barriers in it

// How what a group has made leaves, and c comes: in boxes of 64 rows, whose lines are as long as the tile's columns
// allow, so many at a time. Tiles of whole boxes of 128 bytes a line leave in turns, others at once.
template <int Cols>  // of a tile
struct Leaving {
  static constexpr int cols = leaving_cols(Cols), bytes = group_rows * cols * 2;  // of a box
  static constexpr bool in_turns = Cols % (2 * line) == 0;
  static constexpr int boxes = in_turns ? 1 : Cols / cols;  // at a time
  static constexpr int turns = Cols / (boxes * cols), places = in_turns ? 2 : 1;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

using namespace hopper;

// The tile of this number where there are so many columns of them: bands of rows one after the other, in a band column
// after column.
struct InBands {
  int row, col;
  template <int Layers>
  __device__ InBands(const Problem<Layers>& p, int cols, int tile) {
    const int in_band = p.band * cols, first = tile / in_band * p.band;
    const int height = min(p.band, p.row_tiles - first), left = tile % in_band;
    row = first + left % height;
    col = left / height;
  }
};

// Of a cluster's tile, in units of tiles. The column is the layer's, and layers `layer` to `end` are summed.
struct Place {
  int row, col, layer = 0, end = 1;
  int of_all;  // the column among those of all layers
  template <int Layers>
  __device__ Place(const Problem<Layers>& p, const InBands& tile) : row(tile.row), col(tile.col), of_all(tile.col) {
    if constexpr (Layers > 1) {
#pragma unroll
      for (int i = 1; i < Layers; ++i) layer += col >= p.first[i] ? 1 : 0;
      col -= p.first[layer];
      end = layer + p.summed;
    }
  }
};

// The tiles of a cluster.
struct Tiles {
  int now = static_cast<int>(blockIdx.x) / cluster;
  template <int Layers>
  __device__ bool there(const Problem<Layers>& p) const {
    return now < p.row_tiles * p.col_tiles;
  }
  template <int Layers>
  __device__ Place place(const Problem<Layers>& p) const {
    return {p, InBands(p, p.col_tiles, now)};
  }
  __device__ void next() { now += static_cast<int>(gridDim.x) / cluster; }
};

// The same where tiles gate others: a cluster makes a tile that gates and behind it the one that it gates, and after
// all of its pairs its share of the single tiles, of which clusters with a pair less have two more.
struct PairedTiles {
  int turn = 0;
  template <int Layers>
  __device__ bool there(const Problem<Layers>& p) const {
    const int behind = turn - 2 * own_pairs(p);
    return behind < 0 || single(p, behind) < p.row_tiles * single_cols(p);
  }
  template <int Layers>
  __device__ Place place(const Problem<Layers>& p) const {
    const int behind = turn - 2 * own_pairs(p);
    if (behind >= 0) return {p, InBands(p, single_cols(p), single(p, behind))};
    InBands tile(p, p.gates, own() + turn / 2 * clusters());
    tile.col += p.activated_from + turn % 2 * p.gates;
    return {p, tile};
  }
  __device__ void next() { ++turn; }

 private:
  static __device__ int own() { return static_cast<int>(blockIdx.x) / cluster; }
  static __device__ int clusters() { return static_cast<int>(gridDim.x) / cluster; }
  template <int Layers>
  static __device__ int single_cols(const Problem<Layers>& p) {
    return p.col_tiles - 2 * p.gates;
  }
  template <int Layers>
  static __device__ int own_pairs(const Problem<Layers>& p) {
    return (p.row_tiles * p.gates - own() + clusters() - 1) / clusters();
  }
  // The number of a cluster's single tile.
  template <int Layers>
  static __device__ int single(const Problem<Layers>& p, int number) {
    const int with_more = p.row_tiles * p.gates % clusters(), others = clusters() - with_more;
    if (own() < with_more) return 2 * others + own() + number * clusters();
    if (number < 2) return own() - with_more + number * others;
    return 2 * others + own() + (number - 2) * clusters();
  }
};

// The first row and column of what a group makes.
struct Part {
  int row, col;
};
template <int Cols>
__device__ Part part_of(const Place& place, int group) {
  return {(place.row * cluster + block_of_cluster()) * tile_rows + group * group_rows, place.col * Cols};
}

// How a block begins: the maps on their way to where they are read from, and the barriers of the ring and of what is
// added, by the two threads that need them first. `more` begins a kernel's own.
template <int Cols, int Layers, class Memory, class More>
__device__ inline void begin(const Maps<Layers>& maps, Memory& s, const More& more) {
  if (threadIdx.x == multipliers) {
    const auto& of = maps.of[0];
    for (const CUtensorMap* map : {&of.b, &of.a, &of.z, &of.v, &of.d}) expect_soon(*map);
  }
  if (threadIdx.x == 0) {
    for (int i = 0; i < groups * Leaving<Cols>::places; ++i) barrier_init(&s.added[0][0] + i, 1);
    for (int i = 0; i < Memory::stages; ++i) {
      barrier_init(&s.full[i], 1);
      barrier_init(&s.empty[i], groups * cluster);
    }
    more();
    fence_barriers();
  }
  cluster_barrier();
}

template <class T>
using Pair = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;

// Where the 16 bytes `chunk` of a line lie in a box whose lines have so many columns: the swizzle of a line's bytes.
template <int Cols>
__device__ inline int place_in_box(int row, int chunk) {
  constexpr int chunks = Cols / 8;
  return row * Cols * 2 + (chunk ^ row / (line / Cols) % chunks) * 16;
}

// The sum of 16 of a part, or, without `add`, the first.
template <class T, bool Across, bool add = true, int Count>
__device__ inline void add_sixteen(float (&sum)[Count], const Matrix& a, const Matrix& b, int i) {
  if constexpr (Across)
    Multiply<T>::template rows_across<add>(sum, a.at(i * 2), b.at(i * 128));
  else
    Multiply<T>::template by_rows<add>(sum, a.at(i * 2), b.at(i * 2));
}

// c, in d's type as cuBLASLt takes it, into the places of a turn; by one thread, when they are free.
template <int Cols, int Layers, class Memory>
__device__ inline void fetch_added(const Maps<Layers>& maps, Memory& s, int group, const Part& part, int turn) {
  using Out = Leaving<Cols>;
  const int place = turn % Out::places;
  uint64_t* const there = &s.added[group][place];
  barrier_arrive_with(there, Out::boxes * Out::bytes);
  for (int box = 0; box < Out::boxes; ++box)
    copy_box(s.d[group][place][box], maps.c, part.col + (turn * Out::boxes + box) * Out::cols, part.row, there);
}
template <int Cols, int Layers, class Memory>
__device__ inline void fetch_first_added(const Maps<Layers>& maps, Memory& s, int group, const Part& part) {
  bulk_wait_read<0>();
#pragma unroll
  for (int turn = 0; turn < Leaving<Cols>::places; ++turn) fetch_added<Cols>(maps, s, group, part, turn);
}

// The tile's bias in d's type, as cuBLASLt takes it, by all of a group; they meet before it is read.
template <class T, int Cols, class Memory>
__device__ inline void note_bias(const In& bias, Memory& s, int group, int thread, int col, int cols) {
#pragma unroll
  for (int i = thread; i < Cols; i += 128) {
    const float value = bias.data != nullptr && col + i < cols ? load(bias, col + i) : 0.0f;
    reinterpret_cast<T*>(s.bias[group])[i] = static_cast<T>(value);
  }
}

__device__ inline void meet(int group) { asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory"); }

// `body` of each of these numbers.
template <class Body, int... I>
__device__ __forceinline__ void each_of(std::integer_sequence<int, I...>, const Body& body) {
  (body.template operator()<I>(), ...);
}
template <int Cols>
using TurnsOf = std::make_integer_sequence<int, Leaving<Cols>::turns>;

// What a thread has of a turn: of each 16 bytes of a line two rows' numbers.
template <int Cols>
using Rounded = uint32_t[Leaving<Cols>::boxes * Leaving<Cols>::cols / 4];

// A turn's sums with the bias.
template <class T, int Cols, int Turn, class Memory, int Count>
__device__ __forceinline__ void round_sums(const Memory& s, int group, const float (&sum)[Count],
                                           Rounded<Cols>& rounded) {
  constexpr int chunks = Leaving<Cols>::boxes * Leaving<Cols>::cols / 8;
#pragma unroll
  for (int i = 0; i < chunks; ++i) {
    const int chunk = Turn * chunks + i;
    const float2 bias = unpack_pair(reinterpret_cast<const Pair<T>*>(s.bias[group])[chunk * 4 + threadIdx.x % 4]);
    const float* const v = sum + chunk * 4;
    rounded[2 * i] = Multiply<T>::pack(v[0] + bias.x, v[1] + bias.y);
    rounded[2 * i + 1] = Multiply<T>::pack(v[2] + bias.x, v[3] + bias.y);
  }
}

// The boxes of a turn on their way, by one thread.
template <int Cols, int Layers, class Boxes>
__device__ inline void send_boxes(const Problem<Layers>& p, const Maps<Layers>& maps, int layer, const Part& part,
                                  int turn, Boxes& boxes) {
  using Out = Leaving<Cols>;
  for (int box = 0; box < Out::boxes; ++box) {
    const int first = part.col + (turn * Out::boxes + box) * Out::cols;
    if (first < p.cols[layer] && part.row < p.rows) store_box(maps.of[layer].d, first, part.row, boxes[box]);
  }
  bulk_commit();
}

// A turn of a tile without c, by all of a group. `taken` is how often each place for boxes was taken before the tile.
// With an activation others begin the copies (store_tiles).
template <int Cols, bool Activates, int Turn, int Layers, class Memory>
__device__ __forceinline__ void leave_turn(const Problem<Layers>& p, const Maps<Layers>& maps, Memory& s, int layer,
                                           int group, const Part& part, int taken, const Rounded<Cols>& rounded) {
  using Out = Leaving<Cols>;
  constexpr int at_place = Turn % Out::places, chunks = Out::cols / 8;  // of a line
  const int thread = static_cast<int>(threadIdx.x) % 128, warp = thread / 32, lane = thread % 32;
  auto& to = s.d[group][at_place];
  if constexpr (Activates) {
    barrier_wait(&s.read[group][at_place], (taken + Turn / Out::places) % 2 ^ 1);
  } else {
    if (thread == 0) bulk_wait_read<Out::places - 1>();
    meet(group);
  }
#pragma unroll
  for (int j = 0; j < Out::boxes * chunks; j += 2)
    store_matrices(
        shared_address(to[j / chunks]) + place_in_box<Out::cols>(warp * 16 + lane % 16, j % chunks + lane / 16),
        rounded + 2 * j);
  fence_async_shared();
  if constexpr (Activates) {
    __syncwarp();
    if (lane == 0) barrier_arrive(&s.written[group][at_place]);
  } else {
    meet(group);
    if (thread == 0) send_boxes<Cols>(p, maps, layer, part, Turn, to);
  }
}

// A group's sums with the bias and c, by all of its threads.
template <class T, int Cols, int Layers, class Memory, int Count>
__device__ __forceinline__ void leave_added(const Problem<Layers>& p, const Maps<Layers>& maps, Memory& s, int layer,
                                            int group, const Part& part, int taken, const float (&sum)[Count]) {
  using Out = Leaving<Cols>;
  constexpr int chunks = Out::cols / 8;  // of a line
  const int thread = static_cast<int>(threadIdx.x) % 128, warp = thread / 32, lane = thread % 32;
#pragma unroll
  for (int turn = 0; turn < Out::turns; ++turn) {
    const int at_place = turn % Out::places;
    auto& to = s.d[group][at_place];
    barrier_wait(&s.added[group][at_place], (taken + turn / Out::places) % 2);
    meet(group);
#pragma unroll
    for (int j = 0; j < Out::boxes * chunks; j += 2) {
      uint32_t packed[4];
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const int chunk = turn * Out::boxes * chunks + j + k;
        const float2 bias = unpack_pair(reinterpret_cast<const Pair<T>*>(s.bias[group])[chunk * 4 + lane % 4]);
        const float* const v = sum + chunk * 4;
        const auto more = [&](int of_box) {
          return unpack_pair(*reinterpret_cast<const Pair<T>*>(
              to[j / chunks] + place_in_box<Out::cols>(of_box, j % chunks + k) + lane % 4 * 4));
        };
        const float2 above = more(warp * 16 + lane / 4), below = more(warp * 16 + 8 + lane / 4);
        packed[2 * k] = Multiply<T>::pack(v[0] + bias.x + above.x, v[1] + bias.y + above.y);
        packed[2 * k + 1] = Multiply<T>::pack(v[2] + bias.x + below.x, v[3] + bias.y + below.y);
      }
      __syncwarp();  // a warp has its 16 rows of the box to itself
      store_matrices(
          shared_address(to[j / chunks]) + place_in_box<Out::cols>(warp * 16 + lane % 16, j % chunks + lane / 16),
          packed);
    }
    fence_async_shared();
    meet(group);
    if (thread == 0) {
      send_boxes<Cols>(p, maps, layer, part, turn, to);
      if (turn + Out::places < Out::turns) {
        bulk_wait_read<0>();
        fetch_added<Cols>(maps, s, group, part, turn + Out::places);
      }
    }
  }
}

// Likewise where nothing has been done yet with sums that are complete, and a bias that is noted.
template <class T, int Cols, int Layers, class Memory, int Count>
__device__ __forceinline__ void leave(const Problem<Layers>& p, const Maps<Layers>& maps, Memory& s, int layer,
                                      int group, const Part& part, int taken, const float (&sum)[Count]) {
  if (p.adds) return leave_added<T, Cols>(p, maps, s, layer, group, part, taken, sum);
  each_of(TurnsOf<Cols>(), [&]<int Turn>() {
    Rounded<Cols> rounded;
    round_sums<T, Cols, Turn>(s, group, sum, rounded);
    leave_turn<Cols, false, Turn>(p, maps, s, layer, group, part, taken, rounded);
  });
}

#endif

}  // namespace lk::cuda::product
