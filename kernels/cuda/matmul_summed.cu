// c [m, n] = the sum of a b^T over a batch, a [m, k], b [n, k]: columns of all matrices one after the other are the
// steps of one long sum. A block takes every so many-th tile of them, for a tile of c, whose sums its warps keep in
// registers; what the blocks have is added in their order.
#include <algorithm>

#include "cuda/await_previous.cuh"
#include "cuda/fragments.cuh"
#include "cuda/matmul_ways.h"

namespace lk::cuda {

namespace {

constexpr int warps = 8, threads = 32 * warps;

// A block's tile of c, `rows` x `cols`, and a warp's part of it; where there are fewer parts than warps, these share
// the columns of a tile of a and b. `stages` of them are in shared memory.
template <int Rows, int Cols, int WarpRows, int WarpCols, int Columns, int Stages>
struct Form {
  static constexpr int rows = Rows, cols = Cols, warp_rows = WarpRows, warp_cols = WarpCols;
  static constexpr int columns = Columns, pitch = Columns + 8, stages = Stages;
  static constexpr int ways = (Rows / WarpRows) * (Cols / WarpCols), splits = warps / ways;
  static constexpr int stage_size = (Rows + Cols) * pitch;
  static constexpr size_t shared_bytes =
      std::max(sizeof(uint16_t) * stages * stage_size, sizeof(float) * splits * Rows * Cols);
};
using Small = Form<16, 16, 16, 16, 256, 4>;
using Medium = Form<64, 64, 32, 32, 64, 4>;
using Large = Form<128, 128, 64, 32, 64, 3>;

struct Summed {
  const uint16_t *a, *b;
  int m, n;
  int64_t k;
  int across;  // tiles of c along its columns
  Pieces pieces;
  float* partial;  // [blocks, m, n]
};

template <class F, bool Bf16>
__global__ void __launch_bounds__(threads) summed_kernel(Summed p) {
  await_previous();
  extern __shared__ __align__(16) unsigned char memory[];
  uint16_t* const tiles = reinterpret_cast<uint16_t*>(memory);
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int first_row = static_cast<int>(blockIdx.y) / p.across * F::rows,
            first_col = static_cast<int>(blockIdx.y) % p.across * F::cols;

  constexpr int chunks = F::columns / vector_width, rows_at_once = threads / chunks;
  const int count = (p.pieces.count + chunks - 1) / chunks, chunk = thread % chunks, own_row = thread / chunks;
  const auto fetch = [&](int tile, int stage) {
    const int piece = tile * chunks + chunk;
    const bool there = piece < p.pieces.count;
    uint16_t* const to = tiles + stage * F::stage_size + chunk * vector_width;
    const uint16_t* const a = p.a + (there ? p.pieces.at(piece, p.m) : 0);
    const uint16_t* const b = p.b + (there ? p.pieces.at(piece, p.n) : 0);
#pragma unroll
    for (int row = own_row; row < F::rows; row += rows_at_once) {
      const bool inside = there && first_row + row < p.m;
      copy_16_async(to + row * F::pitch, a + (inside ? (first_row + row) * p.k : 0), inside);
    }
#pragma unroll
    for (int row = own_row; row < F::cols; row += rows_at_once) {
      const bool inside = there && first_col + row < p.n;
      copy_16_async(to + (F::rows + row) * F::pitch, b + (inside ? (first_col + row) * p.k : 0), inside);
    }
  };

  const int step = static_cast<int>(gridDim.x), split = warp / F::ways, way = warp % F::ways;
  const int row = way / (F::cols / F::warp_cols) * F::warp_rows, col = way % (F::cols / F::warp_cols) * F::warp_cols;
  int tile = static_cast<int>(blockIdx.x);
#pragma unroll
  for (int i = 0; i < F::stages - 1; ++i) {
    if (tile + i * step < count) fetch(tile + i * step, i);
    commit_copies();
  }
  float sum[F::warp_rows / 16][F::warp_cols / 8][4] = {};
  for (int stage = 0; tile < count; tile += step, stage = stage + 1 == F::stages ? 0 : stage + 1) {
    wait_copies<F::stages - 2>();
    __syncthreads();  // the tile is there, and nobody reads the one before any more
    const int ahead = tile + (F::stages - 1) * step;
    if (ahead < count) fetch(ahead, stage == 0 ? F::stages - 1 : stage - 1);
    commit_copies();
    const uint16_t* const a_tile = tiles + stage * F::stage_size + lane % 16 * F::pitch + lane / 16 * 8;
    const uint16_t* const b_tile = a_tile + F::rows * F::pitch;
#pragma unroll
    for (int k = 16 * split; k < F::columns; k += 16 * F::splits) {
      uint32_t a[F::warp_rows / 16][4];
#pragma unroll
      for (int i = 0; i < F::warp_rows / 16; ++i) load_matrices<false>(a[i], a_tile + (row + 16 * i) * F::pitch + k);
#pragma unroll
      for (int j = 0; j < F::warp_cols / 16; ++j) {
        uint32_t b[4];  // columns 0 to 7 of c in words 0 and 2, the next in 1 and 3
        load_matrices<false>(b, b_tile + (col + 16 * j) * F::pitch + k);
#pragma unroll
        for (int i = 0; i < F::warp_rows / 16; ++i) {
          multiply_add<Bf16>(sum[i][2 * j], a[i], {b[0], b[2]});
          multiply_add<Bf16>(sum[i][2 * j + 1], a[i], {b[1], b[3]});
        }
      }
    }
  }
  wait_copies<0>();
  __syncthreads();

  float* const sums = reinterpret_cast<float*>(memory);  // [splits, rows, cols]
  float* const own = sums + (split * F::rows + row + lane / 4) * F::cols + col + lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < F::warp_rows / 8; ++i) {
#pragma unroll
    for (int j = 0; j < F::warp_cols / 8; ++j)
      *reinterpret_cast<float2*>(own + 8 * i * F::cols + 8 * j) =
          make_float2(sum[i / 2][j][i % 2 * 2], sum[i / 2][j][i % 2 * 2 + 1]);
  }
  __syncthreads();
  float* const to = p.partial + int64_t{blockIdx.x} * p.m * p.n;
  for (int i = thread; i < F::rows * F::cols; i += threads) {
    const int to_row = first_row + i / F::cols, to_col = first_col + i % F::cols;
    if (to_row >= p.m || to_col >= p.n) continue;
    float total = 0;
#pragma unroll
    for (int s = 0; s < F::splits; ++s) total += sums[s * F::rows * F::cols + i];
    to[to_row * p.n + to_col] = total;
  }
}

// As many blocks for each tile of c as run at once, with two tiles of a and b at least.
template <class F>
void run(Cuda& cuda, Summed call, const BatchedProduct& p) {
  call.across = static_cast<int>(ceil_div(call.n, F::cols));
  const int64_t of_c = ceil_div(call.m, F::rows) * call.across;
  const int64_t tiles = ceil_div(int64_t{call.pieces.count} * vector_width, F::columns);
  const int64_t most = std::max<int64_t>(cuda.device().multiProcessorCount / of_c, 1);
  const int64_t blocks = std::min(ceil_div(tiles, 2), most);
  call.partial = cuda.scratch<float>(blocks * call.m * call.n);
  cuda.launch(p.a.dtype == LK_BF16 ? summed_kernel<F, true> : summed_kernel<F, false>,
              dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(of_c)), dim3(threads), F::shared_bytes, call);
  sum_matrices(cuda, call.partial, blocks, p);
}

}  // namespace

bool matmul_summed(Cuda& cuda, const BatchedProduct& p) {
  constexpr int64_t most = 1024;  // rows and columns of c
  Summed call{};
  call.pieces = pieces_of(p.batch, p.k);
  if (p.stride_a == 0 || p.stride_b == 0 || p.transpose_a || !p.transpose_b || p.a.dtype == LK_F32 ||
      p.b.dtype != p.a.dtype || p.m > most || p.n > most || call.pieces.count == 0 || cuda.capability() < 80 ||
      cuda.device().sharedMemPerBlockOptin < Large::shared_bytes || !in_pieces_of_16_bytes(cuda, {p.a.data, p.b.data}))
    return false;
  call.a = static_cast<const uint16_t*>(p.a.data);
  call.b = static_cast<const uint16_t*>(p.b.data);
  call.m = static_cast<int>(p.m);
  call.n = static_cast<int>(p.n);
  call.k = p.k;
  const int64_t side = std::max(p.m, p.n);
  if (side <= Small::rows)
    run<Small>(cuda, call, p);
  else if (side <= Medium::rows)
    run<Medium>(cuda, call, p);
  else
    run<Large>(cuda, call, p);
  return true;
}

}  // namespace lk::cuda
