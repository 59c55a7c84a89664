// d = a op(b) + z op(v) + bias + c, as product_tiles.cuh makes it, and z = alpha a op(w) on the way: an adapter from
// one end to the other without a pass of its own over a. w has the columns of a tile behind b's, so that z is what the
// same instructions leave there, in every tile of a row again, with the same bits; a row's first stores it. Rounded and
// still in registers it is a factor of the sum's last part.
//
// The adapter's matrices are float32. They come as they are, and three warps beside the one that loads round them into
// the places from which they are multiplied.
#pragma once

#include <algorithm>

#include "cuda/product_common.cuh"

namespace lk::cuda::product {

constexpr int rounding_warps = 3;

template <int Cols, int Rank, bool Across>  // Rank: 16 or 32, or less, with zeros where those that round find nothing
struct SharedThrough {
  using Out = Leaving<Cols>;
  static constexpr int width = Cols + Rank;  // what is multiplied at once
  static constexpr int boxes = (Cols + line - 1) / line, all_boxes = (width + line - 1) / line;  // of b [k, n]
  static constexpr int b_bytes = Across ? all_boxes * box_bytes : width * line_bytes;
  static constexpr int b_loaded = Across ? boxes * box_bytes : Cols * line_bytes;
  static constexpr int w_bytes = Rank * depth * 4;
  static_assert(Rank * Cols * 4 <= a_bytes);
  static constexpr int d_bytes = groups * Out::places * Out::boxes * Out::bytes;
  static constexpr int stages =
      std::min(8, (block_bytes - 1024 - d_bytes - tables_bytes) / (a_bytes + b_bytes + w_bytes));
  alignas(1024) unsigned char a[stages][a_bytes];  // or, behind the last part, v
  alignas(1024) unsigned char b[stages][b_bytes];
  alignas(1024) unsigned char d[groups][Out::places][Out::boxes][Out::bytes];
  alignas(128) float w[stages][Rank * depth];
  alignas(16) unsigned char bias[groups][Cols * 2];
  uint64_t full[stages], rounded[stages], empty[stages], added[groups][Out::places];
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// By one thread.
template <int Cols, int Rank, bool Across, int Layers>
__device__ void load_parts(const Problem<Layers>& p, const Maps<Layers>& maps, SharedThrough<Cols, Rank, Across>& s) {
  using S = SharedThrough<Cols, Rank, Across>;
  const int own = block_of_cluster();
  // The halves of b's and w's parts that this block loads for both, through `load(map, column, row, place)`.
  const auto load_b = [&](const auto& load, const CUtensorMap& b, int col, int from) {
    if constexpr (Across)
      for (int i = own; i < S::boxes; i += cluster) load(b, col + i * line, from, i * box_bytes);
    else
      load(b, from, col + own * (Cols / 2), own * (S::b_loaded / 2));
  };
  const auto load_w = [&](const auto& load, const CUtensorMap& w, int from, int rank) {
    const int place = own * rank * (depth / 2 * 4);
    if constexpr (Across)
      load(w, 0, from + own * (depth / 2), place);
    else
      load(w, from, own * (rank / 2), place);
  };
  Tiles tiles;
  if (tiles.there(p)) {  // whatever the kernel in front makes, the second-level cache will have it
    const Place place = tiles.place(p);
    const auto& of = maps.of[place.layer];
    const auto expect = [](const CUtensorMap& map, int x, int y, int) { expect_box_soon(map, x, y); };
    for (int step = 0; step < min(S::stages, p.steps[place.layer]); ++step) {
      load_b(expect, of.b, place.col * Cols, step * depth);
      load_w(expect, of.z, step * depth, p.made[place.layer].rank);
    }
  }
  await_previous();
  Ring<S::stages> at;
  for (; tiles.there(p); tiles.next()) {
    const Place place = tiles.place(p);
    const int row = (place.row * cluster + own) * tile_rows, col = place.col * Cols;
#pragma unroll 1
    for (int layer = place.layer; layer < place.end; ++layer) {
      const auto& of = maps.of[layer];
      const int rank = p.made[layer].rank;
      for (int step = 0; step < p.steps[layer]; ++step) {
        const int from = step * depth;
        uint64_t* const full = &s.full[at.stage];
        barrier_wait(&s.empty[at.stage], at.parity ^ 1);
        barrier_arrive_with(full, a_bytes + S::b_loaded + rank * (depth * 4));
        const auto load_into = [&](unsigned char* to) {
          return
              [=](const CUtensorMap& map, int x, int y, int place) { copy_box_to_both(to + place, map, x, y, full); };
        };
        load_b(load_into(s.b[at.stage]), of.b, col, from);
        copy_box(s.a[at.stage], of.a, from, row, full);
        load_w(load_into(reinterpret_cast<unsigned char*>(s.w[at.stage])), of.z, from, rank);
        at.next();
      }
      barrier_wait(&s.empty[at.stage], at.parity ^ 1);
      barrier_arrive_with(&s.full[at.stage], rank * (Cols * 4));
      unsigned char* const v = s.a[at.stage] + own * rank * (Cols / 2 * 4);
      if constexpr (Across)
        copy_box_to_both(v, of.v, col, own * (rank / 2), &s.full[at.stage]);
      else
        copy_box_to_both(v, of.v, 0, col + own * (Cols / 2), &s.full[at.stage]);
      at.next();
    }
  }
}

// Eight numbers, times `gain`, into the chunk of a line of a box; of them there are `count`, if more than 0 a multiple
// of 4, and the others are zero.
template <class T>
__device__ inline void round_eight(const float* from, int count, float gain, unsigned char* box, int row, int chunk) {
  float4 low = make_float4(0, 0, 0, 0), high = low;
  if (count > 0) low = reinterpret_cast<const float4*>(from)[0];
  if (count > 4) high = reinterpret_cast<const float4*>(from)[1];
  const auto pack = [&](float x, float y) { return Multiply<T>::pack(gain * x, gain * y); };
  *reinterpret_cast<uint4*>(box + place_in_box<line>(row, chunk)) =
      make_uint4(pack(low.x, low.y), pack(low.z, low.w), pack(high.x, high.y), pack(high.z, high.w));
}

// By warp number `warp` of those that round, every third part.
template <class T, int Cols, int Rank, bool Across, int Layers>
__device__ void round_parts(const Problem<Layers>& p, SharedThrough<Cols, Rank, Across>& s, int warp) {
  using S = SharedThrough<Cols, Rank, Across>;
  constexpr int rank_chunks = Rank / 8, depth_chunks = depth / 8, col_chunks = Cols / 8;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto round_w = [&](const float* w, int rank, unsigned char* b) {
#pragma unroll 2
    for (int i = lane; i < Rank * depth_chunks; i += 32) {
      if constexpr (Across) {  // w [64, rank]
        const int row = i / rank_chunks, first = i % rank_chunks * 8;
        round_eight<T>(w + row * rank + first, rank - first, 1, b + Cols / line * box_bytes, row,
                       (Cols % line + first) / 8);
      } else {  // [rank, 64]
        const int row = i / depth_chunks;
        round_eight<T>(w + i * 8, row < rank ? 8 : 0, 1, b, Cols + row, i % depth_chunks);
      }
    }
  };
  const auto round_v = [&](const float* v, int rank, float gain, unsigned char* b) {
#pragma unroll 2
    for (int i = lane; i < Rank * col_chunks; i += 32) {
      if constexpr (Across) {  // v [rank, columns]
        const int row = i / col_chunks, chunk = i % col_chunks;
        round_eight<T>(v + i * 8, row < rank ? 8 : 0, gain, b + chunk / depth_chunks * box_bytes, row,
                       chunk % depth_chunks);
      } else {  // [columns, rank]
        const int col = i / rank_chunks, first = i % rank_chunks * 8;
        round_eight<T>(v + col * rank + first, rank - first, gain, b, col, first / 8);
      }
    }
  };
  Ring<S::stages> at;
  int turn = 0;
  const auto round_part = [&](const auto& round) {
    // Every warp sees every turn of a barrier: one that left some out could take one for another.
    barrier_wait(&s.full[at.stage], at.parity);
    if (turn == warp) {
      round();
      fence_async_shared();
    }
    __syncwarp();
    if (lane == 0) barrier_arrive(&s.rounded[at.stage]);
    turn = turn == rounding_warps - 1 ? 0 : turn + 1;
    at.next();
  };
  for (Tiles tiles; tiles.there(p); tiles.next()) {
    const Place place = tiles.place(p);
#pragma unroll 1
    for (int layer = place.layer; layer < place.end; ++layer) {
      const int rank = p.made[layer].rank;
#pragma unroll 1
      for (int step = 0; step < p.steps[layer]; ++step)
        round_part([&] { round_w(s.w[at.stage], rank, s.b[at.stage]); });
      round_part(
          [&] { round_v(reinterpret_cast<const float*>(s.a[at.stage]), rank, p.made[layer].gain, s.b[at.stage]); });
    }
  }
}

template <class T, int Cols, int Rank, bool Across, int Layers>
__device__ void multiply(const Problem<Layers>& p, const Maps<Layers>& maps, SharedThrough<Cols, Rank, Across>& s) {
  using S = SharedThrough<Cols, Rank, Across>;
  using Out = Leaving<Cols>;
  const int thread = static_cast<int>(threadIdx.x) % 128, lane = thread % 32;
  const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 128, 0);
  Ring<S::stages> at;
  const auto release = [&](int stage) {  // for both blocks that load
    if (thread < cluster) barrier_arrive_at(&s.empty[stage], thread);
  };
  const auto wait_part = [&] {
    barrier_wait(&s.full[at.stage], at.parity);
    barrier_wait(&s.rounded[at.stage], at.parity);
  };
  const auto left = [&] { return Matrix(shared_address(s.a[at.stage]) + group * (group_rows * line_bytes)); };
  const auto right = [&] { return Matrix(shared_address(s.b[at.stage]), Across ? box_bytes : 16); };
  int turns = 0;  // of each place for boxes
  for (Tiles tiles; tiles.there(p); tiles.next()) {
    const Place place = tiles.place(p);
    const Part part = part_of<Cols>(place, group);
    if (p.adds && thread == 0) fetch_first_added<Cols>(maps, s, group, part);
    note_bias<T, Cols>(p.bias[place.layer], s, group, thread, part.col, p.cols[place.layer]);
    float sum[S::width / 2];
#pragma unroll
    for (int i = 0; i < S::width / 2; ++i) sum[i] = 0;
#pragma unroll 1
    for (int layer = place.layer; layer < place.end; ++layer) {
      int before = 0;
#pragma unroll 1
      for (int step = 0; step < p.steps[layer]; ++step) {
        wait_part();
        multiplies_begin();
#pragma unroll
        for (int i = 0; i < depth / 16; ++i) add_sixteen<T, Across>(sum, left(), right(), i);
        multiplies_commit();
        multiplies_wait<1>();
        if (step > 0) release(before);
        before = at.stage;
        at.next();
      }
      multiplies_wait<0>();
      hold(sum);
      release(before);

      const auto& made = p.made[layer];
      uint32_t z[Rank / 4];  // as a result packs them
#pragma unroll
      for (int i = 0; i < Rank / 4; ++i) {
        const float* const v = sum + Cols / 2 + i * 2;
        z[i] = Multiply<T>::pack(made.alpha * v[0], made.alpha * v[1]);
        const int row = part.row + thread / 32 * 16 + lane / 4 + i % 2 * 8, col = i / 2 * 8 + lane % 4 * 2;
        if (place.col == 0 && row < p.rows && col < made.pitch)
          *reinterpret_cast<uint32_t*>(static_cast<uint16_t*>(made.z) + int64_t{row} * made.pitch + col) = z[i];
      }
      wait_part();
      hold(sum);
      multiplies_begin();
      // What is behind the columns is left from the part before, and is not looked at.
#pragma unroll
      for (int i = 0; i < Rank / 16; ++i) {
        if constexpr (Across)
          Multiply<T>::add_from_registers(sum, z + i * 4, right().at(i * 128));
        else
          Multiply<T>::add_rows_from_registers(sum, z + i * 4, right().at(i * 2));
      }
      multiplies_commit();
      multiplies_wait<0>();
      hold(sum);
      if constexpr (Across && Layers > 1) {  // where the next layer has its z
#pragma unroll
        for (int i = Cols / 2; i < S::width / 2; ++i) sum[i] = 0;
        hold(sum);
      }
      release(at.stage);
      at.next();
    }
    meet(group);  // all have noted the bias
    leave<T, Cols>(p, maps, s, place.layer, group, part, turns, sum);
    turns += Out::turns / Out::places;
  }
  if (thread == 0) bulk_wait_read<0>();
}

#endif

template <class T, int Cols, int Rank, bool Across, int Layers>
__global__ void __cluster_dims__(cluster, 1, 1) __launch_bounds__(threads, 1)
    through_kernel(const __grid_constant__ Problem<Layers> p, const __grid_constant__ Maps<Layers> maps) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char memory[];
  using S = SharedThrough<Cols, Rank, Across>;
  S& s = aligned<S>(memory);
  begin<Cols>(maps, s, [&] {
    for (int i = 0; i < S::stages; ++i) barrier_init(&s.rounded[i], rounding_warps);
  });
  constexpr int registers = 56;  // the others have what is left of 504
  if (threadIdx.x >= multipliers) {
    fewer_registers<registers>();
    if (threadIdx.x == multipliers) load_parts<Cols, Rank, Across>(p, maps, s);
    __syncwarp();
    const int warp = static_cast<int>(threadIdx.x - multipliers) / 32 - 1;
    if (warp >= 0) round_parts<T, Cols, Rank, Across>(p, s, warp);
  } else {
    more_registers<(504 - registers) / 2>();
    await_previous();
    multiply<T, Cols, Rank, Across>(p, maps, s);
  }
  cluster_barrier();  // the other block's copies and arrivals come here
#endif
}

template <int Cols, int Rank, int Layers>
Tile<Layers> through_tile_of_rank(lk_dtype type, bool across) {
  const auto kernel_of = [&]<class T>(T) {
    return across ? through_kernel<T, Cols, Rank, true, Layers> : through_kernel<T, Cols, Rank, false, Layers>;
  };
  constexpr size_t bytes[] = {sizeof(SharedThrough<Cols, Rank, false>) + 1024,
                              sizeof(SharedThrough<Cols, Rank, true>) + 1024};
  static_assert(std::max(bytes[0], bytes[1]) <= block_bytes);
  return {Cols, type == LK_BF16 ? kernel_of(__nv_bfloat16()) : kernel_of(__half()), bytes[across ? 1 : 0]};
}

template <int Cols, int Layers>
Tile<Layers> through_tile_of(lk_dtype type, bool across, int64_t rank) {
  if (rank <= 16) return through_tile_of_rank<Cols, 16, Layers>(type, across);
  if constexpr (most_made * Cols * 4 <= a_bytes) return through_tile_of_rank<Cols, most_made, Layers>(type, across);
  return {Cols, nullptr, 0};
}

}  // namespace lk::cuda::product
