// c [m, n] = op(a) b for every b of a batch: a block keeps a and goes over tiles of columns, of one matrix after the
// other, with the next tile on its way while it multiplies. A warp makes 32 x 32 numbers at a time, and passes them
// through shared memory so that it writes pieces of 16 bytes.
#include <algorithm>

#include "cuda/await_previous.cuh"
#include "cuda/fragments.cuh"
#include "cuda/matmul_ways.h"

namespace lk::cuda {

namespace {

constexpr int warps = 8, threads = 32 * warps;
constexpr int stages = 2;
constexpr int part = 32;              // rows and columns of a warp's result
constexpr int part_pitch = part + 8;  // the pitches here let eight rows' pieces lie in different banks

struct OneLeft {
  In a;
  bool transposed;  // a is [k, m]
  const uint16_t* b;
  uint16_t* c;
  int m, k;
  int64_t n;
  int padded_m, padded_k;  // multiples of 16; what is beyond m and k counts as zero
  int columns;             // of a tile
  Pieces pieces;
};

// In numbers of 16 bits.
size_t left_size(const OneLeft& p) { return static_cast<size_t>(p.padded_m) * static_cast<size_t>(p.padded_k + 8); }
size_t stage_size(const OneLeft& p) { return static_cast<size_t>(p.padded_k) * static_cast<size_t>(p.columns + 8); }
size_t shared_bytes(const OneLeft& p) {
  return sizeof(uint16_t) * (left_size(p) + stages * stage_size(p) + size_t{warps} * part * part_pitch);
}

template <bool Bf16>
__global__ void __launch_bounds__(threads) one_left_kernel(OneLeft p) {
  await_previous();
  extern __shared__ __align__(16) unsigned char memory[];
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32, g = lane / 4, t = lane % 4;
  const int left_pitch = p.padded_k + 8, pitch = p.columns + 8, size = p.padded_k * pitch;
  uint16_t* const left = reinterpret_cast<uint16_t*>(memory);
  uint16_t* const tiles = left + p.padded_m * left_pitch;
  uint16_t* const result = tiles + stages * size + warp * part * part_pitch;

  const int chunks = p.columns / vector_width, chunk = thread % chunks, first_row = thread / chunks,
            rows_at_once = threads / chunks;
  const int count = (p.pieces.count + chunks - 1) / chunks;
  const auto fetch = [&](int tile, int stage) {
    const int piece = tile * chunks + chunk;
    const bool inside = piece < p.pieces.count;
    const uint16_t* const from = inside ? p.b + p.pieces.at(piece, p.k) : p.b;
    uint16_t* const to = tiles + stage * size + chunk * vector_width;
    for (int row = first_row; row < p.k; row += rows_at_once)
      copy_16_async(to + row * pitch, from + (inside ? row * p.n : 0), inside);
  };

  int tile = static_cast<int>(blockIdx.x);
  if (tile < count) fetch(tile, 0);
  commit_copies();
  for (int i = thread; i < p.padded_m * p.padded_k; i += threads) {
    const int row = i / p.padded_k, col = i - row * p.padded_k;
    const bool inside = row < p.m && col < p.k;
    left[row * left_pitch + col] =
        inside ? to_16_bit<Bf16>(load(p.a, p.transposed ? col * p.m + row : row * p.k + col)) : uint16_t{0};
  }
  const int padding = (p.padded_k - p.k) * pitch;  // no tile writes it
  for (int i = thread; i < stages * padding; i += threads) tiles[i / padding * size + p.k * pitch + i % padding] = 0;

  const int groups = p.columns / part, items = groups * ((p.padded_m + part - 1) / part);
  for (int stage = 0; tile < count; tile += static_cast<int>(gridDim.x), stage ^= 1) {
    wait_copies<0>();
    __syncthreads();  // the tile is there, and nobody reads the one before any more
    const int next = tile + static_cast<int>(gridDim.x);
    if (next < count) fetch(next, stage ^ 1);
    commit_copies();
    const uint16_t* const right = tiles + stage * size;
    for (int item = warp; item < items; item += warps) {
      const int column = item % groups * part, row = item / groups * part;
      const bool both = row + 16 < p.padded_m;  // halves of the 32 rows
      float sum[2][4][4] = {};
      for (int k = 0; k < p.padded_k; k += 16) {
        uint32_t b[2][4];
#pragma unroll
        for (int j = 0; j < 2; ++j)
          load_matrices<true>(b[j], right + (k + lane % 16) * pitch + column + 16 * j + lane / 16 * 8);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          if (i == 1 && !both) break;
          uint32_t a[4];
          load_matrices<false>(a, left + (row + 16 * i + lane % 16) * left_pitch + k + lane / 16 * 8);
#pragma unroll
          for (int j = 0; j < 4; ++j) multiply_add<Bf16>(sum[i][j], a, {b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]});
        }
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j)
          *reinterpret_cast<uint32_t*>(result + (8 * i + g) * part_pitch + 8 * j + 2 * t) =
              pack<Bf16>(sum[i / 2][j][i % 2 * 2], sum[i / 2][j][i % 2 * 2 + 1]);
      }
      __syncwarp();
      const int piece = tile * chunks + column / vector_width + t;
      if (piece < p.pieces.count) {
        uint16_t* const to = p.c + p.pieces.at(piece, p.m);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int own = 8 * i + g;
          if (row + own < p.m)
            *reinterpret_cast<uint4*>(to + (row + own) * p.n) =
                *reinterpret_cast<const uint4*>(result + own * part_pitch + t * vector_width);
        }
      }
      __syncwarp();
    }
  }
}

}  // namespace

bool matmul_of_one_left(Cuda& cuda, const BatchedProduct& p) {
  constexpr int64_t most = 256;  // rows and columns of a
  OneLeft call{};
  call.pieces = pieces_of(p.batch, p.n);
  if (p.stride_a != 0 || p.transpose_b || p.b.dtype == LK_F32 || p.c.dtype != p.b.dtype || p.m > most || p.k > most ||
      call.pieces.count == 0 || cuda.capability() < 80 || !in_pieces_of_16_bytes(cuda, {p.b.data, p.c.data}))
    return false;
  call.a = p.a;
  call.transposed = p.transpose_a;
  call.b = static_cast<const uint16_t*>(p.b.data);
  call.c = static_cast<uint16_t*>(p.c.data);
  call.m = static_cast<int>(p.m);
  call.k = static_cast<int>(p.k);
  call.n = p.n;
  call.padded_m = static_cast<int>(ceil_div(p.m, int64_t{16})) * 16;
  call.padded_k = static_cast<int>(ceil_div(p.k, int64_t{16})) * 16;
  call.columns = call.padded_k <= 16 ? 512 : call.padded_k <= 48 ? 256 : 128;
  const size_t shared = shared_bytes(call);
  if (shared > cuda.device().sharedMemPerBlockOptin) return false;
  const int64_t resident = std::clamp<int64_t>(
      static_cast<int64_t>(cuda.device().sharedMemPerMultiprocessor / (shared + 1024)), 1, 2048 / threads);
  const int64_t tiles = ceil_div(int64_t{call.pieces.count} * vector_width, int64_t{call.columns});
  const auto blocks = static_cast<unsigned>(std::min(tiles, resident * cuda.device().multiProcessorCount));
  cuda.launch(p.b.dtype == LK_BF16 ? one_left_kernel<true> : one_left_kernel<false>, dim3(blocks), dim3(threads),
              shared, call);
  return true;
}

}  // namespace lk::cuda
