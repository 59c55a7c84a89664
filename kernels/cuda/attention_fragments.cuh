// Attention with matrix instructions on 16-bit numbers for whatever cuDNN does not do: every capability, bias, mask and
// cap, and heads up to 256 wide. What its forward and its backward pass share.
//
// A block of four warps owns rows of a head, 16 for a warp, and passes over the other side's rows in tiles. Widths are
// those of shared memory: narrower heads have zeros behind their columns. Scores are in units of log 2. A warp's
// results of a product are its factor a of the next one, in registers, rounded to 16 bits.
#pragma once

#include "cuda/attention.cuh"
#include "cuda/attention_scores.cuh"
#include "cuda/fragments.cuh"

namespace lk::cuda::by_fragments {

constexpr int threads = 128;

// Of rows in shared memory, in numbers: eight rows are in all banks.
template <int width>
constexpr int pitch = width + 8;

// Rows of one head of a dense [batch, rows, heads, width].
struct Matrix {
  const uint16_t* data;
  int64_t row;  // numbers from one to the next
  int rows;     // what lies behind reads as zero
};

struct Problem {
  Scores scores;
  const uint16_t *q, *k, *v;
  int heads, key_heads, width;
};

// A head of q and the one of k and v that it reads.
struct Place {
  int batch, head, key_head;
  int length;  // keys that the item has
};

__device__ inline int64_t queries_at(const Problem& p, const Place& at) {
  return (at.batch * p.scores.queries * p.heads + at.head) * p.width;
}
__device__ inline int64_t keys_at(const Problem& p, const Place& at) {
  return (at.batch * p.scores.keys * p.key_heads + at.key_head) * p.width;
}
__device__ inline Matrix queries_of(const Problem& p, const Place& at, const uint16_t* x) {
  return {x + queries_at(p, at), int64_t{p.heads} * p.width, static_cast<int>(p.scores.queries)};
}
__device__ inline Matrix keys_of(const Problem& p, const Place& at, const uint16_t* x) {
  return {x + keys_at(p, at), int64_t{p.key_heads} * p.width, at.length};
}

// Rows first .. first + rows - 1, on their way.
template <int width, int rows>
__device__ inline void load_rows(uint16_t* to, const Matrix& x, int first, int columns) {
  constexpr int chunks = width / 8;
  for (int i = static_cast<int>(threadIdx.x); i < rows * chunks; i += threads) {
    const int row = i / chunks, column = i % chunks * 8;
    const bool inside = first + row < x.rows && column < columns;
    copy_16_async(to + row * pitch<width> + column, x.data + (inside ? (first + row) * x.row + column : 0), inside);
  }
}

// 16 rows and columns as factor a.
template <int width>
__device__ inline void load_square(uint32_t (&words)[4], const uint16_t* x, int column) {
  const int lane = lane_now();
  load_matrices<false>(words, x + lane % 16 * pitch<width> + column + lane / 16 * 8);
}

// sums = a b^T for 8 * pieces rows of b; square(step, words) gives columns 16 step .. + 15 of the 16 rows of a.
template <bool Bf16, int width, int pieces, class Square>
__device__ inline void multiply_rows(float (&sums)[pieces][4], const Square& square, const uint16_t* b) {
  const int lane = lane_now();
  const uint16_t* const own = b + (lane % 8 + lane / 16 * 8) * pitch<width> + lane / 8 % 2 * 8;
#pragma unroll
  for (int j = 0; j < pieces; ++j) sums[j][0] = sums[j][1] = sums[j][2] = sums[j][3] = 0.0f;
#pragma unroll
  for (int step = 0; step < width / 16; ++step) {
    uint32_t a[4];
    square(step, a);
#pragma unroll
    for (int j = 0; j < pieces; j += 2) {
      uint32_t words[4];
      load_matrices<false>(words, own + j * 8 * pitch<width> + step * 16);
      multiply_add_one<Bf16, 0>(sums[j], a, words);
      multiply_add_one<Bf16, 1>(sums[j + 1], a, words);
    }
  }
}

// sums += w x, over the 8 * pieces rows of x.
template <bool Bf16, int width, int pieces, int columns>
__device__ inline void add_weighted(float (&sums)[columns][4], const float (&w)[pieces][4], const uint16_t* x) {
  const int lane = lane_now();
  const uint16_t* const own = x + lane % 16 * pitch<width> + lane / 16 * 8;
#pragma unroll
  for (int j = 0; j < pieces; j += 2) {
    const uint32_t a[4] = {pack<Bf16>(w[j][0], w[j][1]), pack<Bf16>(w[j][2], w[j][3]),
                           pack<Bf16>(w[j + 1][0], w[j + 1][1]), pack<Bf16>(w[j + 1][2], w[j + 1][3])};
#pragma unroll
    for (int c = 0; c < columns; c += 2) {
      uint32_t words[4];
      load_matrices<true>(words, own + j * 8 * pitch<width> + c * 8);
      multiply_add_one<Bf16, 0>(sums[c], a, words);
      multiply_add_one<Bf16, 1>(sums[c + 1], a, words);
    }
  }
}

// The lane's own pairs of one of its two rows of sums, times factor, from column `first` of the row at `to` on.
template <bool Bf16, int columns>
__device__ inline void store_row(const float (&sums)[columns][4], int half, float factor, uint16_t* to, int first,
                                 int width) {
#pragma unroll
  for (int c = 0; c < columns; ++c) {
    const int column = first + c * 8 + lane_now() % 4 * 2;
    if (column < width)
      *reinterpret_cast<uint32_t*>(to + column) =
          pack<Bf16>(sums[c][half * 2] * factor, sums[c][half * 2 + 1] * factor);
  }
}

// Whether each of `queries` from `query` on sees each of `keys` from `key` on.
__device__ inline bool all_seen(const Scores& s, const Place& at, int query, int queries, int key, int keys) {
  return s.key_mask == nullptr && query + queries <= s.queries && key + keys <= at.length &&
         (!s.causal || key + keys - 1 <= query);
}

// Scores that are the product times the scale alone.
__device__ inline bool is_plain(const Scores& s) { return s.bias.data == nullptr && !(s.soft_cap > 0.0f); }

// Why these kernels do not take a call, or nullptr.
template <class Params>
const char* unsuitable(const Cuda& cuda, const Params& p, std::initializer_list<const lk_tensor*> tensors) {
  if (p.q.dtype != LK_BF16 && p.q.dtype != LK_F16) return "neither bf16 nor f16";
  if (cuda.capability() < (p.q.dtype == LK_BF16 ? 80 : 75)) return "no such instructions for its type";
  if (p.q.dims[3] % 8 != 0 || p.q.dims[3] > 256) return "width of heads";
  // Rows are numbered by int.
  if (std::max(p.q.dims[1], p.k.dims[1]) > (1 << 30)) return "too many rows";
  for (const lk_tensor* t : tensors) {
    if (t->dtype != p.q.dtype) return "mixed types";
    if (!cuda.measuring() && reinterpret_cast<uintptr_t>(t->data) % 16 != 0) return "not aligned to 16 bytes";
  }
  return nullptr;
}

template <class Params>
Problem problem_of(const Params& p) {
  return {.scores = scores_of(p),
          .q = static_cast<const uint16_t*>(p.q.data),
          .k = static_cast<const uint16_t*>(p.k.data),
          .v = static_cast<const uint16_t*>(p.v.data),
          .heads = static_cast<int>(p.q.dims[2]),
          .key_heads = static_cast<int>(p.k.dims[2]),
          .width = static_cast<int>(p.q.dims[3])};
}

// Calls run.operator()<Bf16, width>() with the width in shared memory that heads of `columns` take.
template <class Run>
void by_width(bool bf16, int64_t columns, const Run& run) {
  const auto typed = [&]<int width>() {
    bf16 ? run.template operator()<true, width>() : run.template operator()<false, width>();
  };
  if (columns <= 64) return typed.template operator()<64>();
  if (columns <= 128) return typed.template operator()<128>();
  if (columns <= 160) return typed.template operator()<160>();
  typed.template operator()<256>();
}

}  // namespace lk::cuda::by_fragments
