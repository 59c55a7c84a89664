// What both passes of attention to few keys share. All keys of a head are in shared memory, so a query's weights are
// made at once, and of the keys that are not seen zeros are there.
//
// Matrices of heads in shared memory have rows of 64 numbers, 128 bytes; the 16 bytes `chunk` of row r lie in place
// chunk ^ (r % 8) of it, so that a chunk of eight rows is in all banks.
#pragma once

#include "cuda/attention.cuh"
#include "cuda/fragments.cuh"

namespace lk::cuda::few_keys {

constexpr int width = 64, row_bytes = width * 2, row_chunks = row_bytes / 16;
constexpr int most_keys = 128;

// [batch, rows, heads, 64] of 16 bits.
struct Heads {
  void* data;
  Spacing at;
};

inline Heads heads_of(const lk_tensor& x) { return {x.data, spacing_of(x)}; }

struct Problem {
  Heads q, k, v;
  const int32_t *key_lengths, *key_mask;  // nullptr: every key is seen
  int queries, keys, heads, tiles;        // tiles of queries of a head
  float scale;
};

__device__ inline bool is_seen(const Problem& p, int batch, int key) {
  return key < p.keys && (p.key_lengths == nullptr || key < p.key_lengths[batch]) &&
         (p.key_mask == nullptr || p.key_mask[int64_t{batch} * p.keys + key] != 0);
}

// Of what a lane has of sums [16, 8 * pieces] from key `first` on: bit 2 j + i for column 2 (lane % 4) + i of piece j.
template <int pieces>
__device__ inline uint32_t seen_keys(const Problem& p, int batch, int first) {
  static_assert(pieces <= 16);
  const int column = first + static_cast<int>(threadIdx.x) % 4 * 2;
  uint32_t bits = 0;
#pragma unroll
  for (int j = 0; j < pieces; ++j) {
#pragma unroll
    for (int i = 0; i < 2; ++i) bits |= static_cast<uint32_t>(is_seen(p, batch, column + j * 8 + i)) << (j * 2 + i);
  }
  return bits;
}

// Piece j's element i of sums, by those bits.
__device__ inline bool is_seen(uint32_t bits, int j, int i) { return (bits >> (j * 2 + i % 2) & 1) != 0; }

__device__ inline unsigned char* chunk_at(unsigned char* matrix, int row, int chunk) {
  return matrix + row * row_bytes + ((chunk ^ row % 8) * 16);
}

// The thread of the block, asked anew (lane_now()).
__device__ inline int thread_now() {
  int thread = 0;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}

// Rows first .. first + rows - 1 of a head; zeros where there(row) is false.
template <int rows, int threads, class There>
__device__ inline void load_rows(unsigned char* to, const Heads& x, int head, int heads, int first,
                                 const There& there) {
  const auto* const from = static_cast<const uint16_t*>(x.data) + head_at<width>(x.at, head, heads);
  const int thread = thread_now(), chunk = thread % row_chunks;
#pragma unroll
  for (int done = 0; done < rows; done += threads / row_chunks) {
    const int row = done + thread / row_chunks, at = first + row;
    if (rows % (threads / row_chunks) != 0 && row >= rows) break;
    const bool inside = there(at);
    copy_16_async(chunk_at(to, row, chunk), from + (inside ? at * x.at.row : 0) + chunk * 8, inside);
  }
}

// Asks for a row of a head, if it is one of `rows`, into the second-level cache. The operation in front may still write
// it: nothing is read here.
__device__ inline void expect_row(const Heads& x, int head, int heads, int row, int rows) {
  if (row < 0 || row >= rows) return;
  const auto* const at = static_cast<const uint16_t*>(x.data) + head_at<width>(x.at, head, heads) + row * x.at.row;
  asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
}

template <int rows, int threads>
__device__ inline void load_queries(unsigned char* to, const Problem& p, const Heads& x, int head, int first) {
  load_rows<rows, threads>(to, x, head, p.heads, first, [&](int query) { return query < p.queries; });
}

template <int keys, int threads>
__device__ inline void load_keys(unsigned char* to, const Problem& p, const Heads& x, int head) {
  load_rows<keys, threads>(to, x, head, p.heads, 0, [&](int key) { return is_seen(p, head / p.heads, key); });
}

// Of a matrix of heads: 16 rows and columns from `chunk` on. As the factor a with rows along its rows, or transposed as
// two neighbouring factors b, whose sums are over the rows.
template <bool transposed>
__device__ inline void load_square(uint32_t (&words)[4], unsigned char* matrix, int row, int chunk, int lane) {
  load_matrices<transposed>(words, chunk_at(matrix, row + lane % 16, chunk + lane / 16));
}

// 8 rows and 32 columns: two factors b whose columns are the rows, sums over the first 16 columns and the next.
__device__ inline void load_line(uint32_t (&words)[4], unsigned char* matrix, int row, int chunk, int lane) {
  load_matrices<false>(words, chunk_at(matrix, row + lane % 8, chunk + lane / 8));
}

// sums = a b^T for 16 * tall rows of a and 8 * pieces rows of b. halves: 2 for both halves of the sums' length in one
// run of instructions, 1 where that takes more registers than there are.
template <bool Bf16, int halves, int tall, int pieces>
__device__ inline void multiply_rows(float (&sums)[tall][pieces][4], unsigned char* a, int a_row, unsigned char* b,
                                     int b_row, int lane) {
#pragma unroll
  for (int m = 0; m < tall; ++m) {
#pragma unroll
    for (int j = 0; j < pieces; ++j) sums[m][j][0] = sums[m][j][1] = sums[m][j][2] = sums[m][j][3] = 0.0f;
  }
#pragma unroll halves
  for (int half = 0; half < 2; ++half) {
    uint32_t left[tall][2][4];
#pragma unroll
    for (int m = 0; m < tall; ++m) {
      load_square<false>(left[m][0], a, a_row + m * 16, half * 4, lane);
      load_square<false>(left[m][1], a, a_row + m * 16, half * 4 + 2, lane);
    }
#pragma unroll
    for (int j = 0; j < pieces; ++j) {
      uint32_t words[4];
      load_line(words, b, b_row + j * 8, half * 4, lane);
#pragma unroll
      for (int m = 0; m < tall; ++m) {
        multiply_add_one<Bf16, 0>(sums[m][j], left[m][0], words);
        multiply_add_one<Bf16, 1>(sums[m][j], left[m][1], words);
      }
    }
  }
}

// Of sums [16, 32] from piece `first` on, the upper row of the lane's two (half 0) or the lower one, times factor: into
// 32 columns at `to`.
template <bool Bf16, int pieces>
__device__ inline void store_row(const float (&sums)[pieces][4], int first, int half, float factor, uint16_t* to,
                                 bool there) {
  uint32_t packed[4];
#pragma unroll
  for (int j = 0; j < 4; ++j)
    packed[j] = pack<Bf16>(sums[first + j][half * 2] * factor, sums[first + j][half * 2 + 1] * factor);
  const uint4 chunk = transposed(packed);
  if (there) *reinterpret_cast<uint4*>(to + lane_now() % 4 * 8) = chunk;
}

// Why these kernels do not take a call, or nullptr.
template <class Params>
const char* unsuitable(const Cuda& cuda, const Params& p, std::initializer_list<const lk_tensor*> tensors) {
  const int64_t keys = p.k.dims[1], queries = p.q.dims[1];
  if (cuda.capability() < 80) return "capability below 8.0";
  if (p.q.dims[3] != width) return "width of heads";
  if (keys > most_keys) return "more than 128 keys";
  if (queries < keys) return "fewer queries than keys";
  // Blocks are numbered by int.
  if (numel(p.q) == 0 || queries > (1 << 30) || p.q.dims[0] * p.q.dims[2] * ceil_div(queries, 64) > (1 << 30))
    return "too many queries";
  return not_plain(cuda, p, tensors);
}

// Of tiles of `tile` queries.
template <class Params>
Problem problem_of(const Params& p, int tile) {
  return {.q = heads_of(p.q),
          .k = heads_of(p.k),
          .v = heads_of(p.v),
          .key_lengths = static_cast<const int32_t*>(p.key_lengths.data),
          .key_mask = static_cast<const int32_t*>(p.key_mask.data),
          .queries = static_cast<int>(p.q.dims[1]),
          .keys = static_cast<int>(p.k.dims[1]),
          .heads = static_cast<int>(p.q.dims[2]),
          .tiles = static_cast<int>(ceil_div(p.q.dims[1], tile)),
          .scale = p.scale};
}

}  // namespace lk::cuda::few_keys
