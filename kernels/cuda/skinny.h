// The products of an adapter, where one side is its rank. They are bound by reading and writing the wide operands, so
// what can be computed in one pass over them is.
#pragma once

#include <span>
#include <type_traits>

#include "cuda/types.cuh"

namespace lk::cuda {

constexpr int64_t skinny_rank = 128;  // the largest

// Elements from one row of s, or ds, to the next where every row begins at a multiple of 16 bytes.
__host__ __device__ constexpr int64_t even_pitch(int64_t rank) { return (rank + 7) / 8 * 8; }

// An adapter from end to end: projected [rows, rank] = alpha mask (a w), and where `spread` has data
// spread [rows, out] = base + gain projected v^T. a [rows, in] and the products' other operands are of `type`, f16 or
// bf16: w and v are rounded to it, and projected before it is spread. Sums are float32.
struct Through {
  int64_t rows = 0, in = 0, out = 0, rank = 0;
  lk_dtype type = LK_BF16;
  const void* a = nullptr;
  const float *w = nullptr, *v = nullptr;
  bool by_rank = false;  // w [in, rank] and v [rank, out]; else w [rank, in] and v [out, rank]
  float alpha = 1, gain = 1;
  In mask{};
  Out projected{};
  int64_t pitch = 0;  // elements from one row of projected to the next; what is beyond the rank becomes zero
  Out spread{};
  In base{};  // may be absent, may be `spread`; only where takes_base
  // Without `spread`, for a product that spreads: where gain v in `type` is left, and, where `pitch` is not even,
  // `projected` once more. Rows of as many numbers as the rank are even_pitch apart, with zeros in between.
  void *narrow = nullptr, *again = nullptr;
};
// As many at once as a group has layers, with the same rows, padded rank, type and by_rank.
void skinny_through(Cuda& cuda, std::span<const Through> jobs);
inline void skinny_through(Cuda& cuda, const Through& p) { skinny_through(cuda, std::span(&p, 1)); }
// Whether what is spread can be added to `base` on the way: both are of `type`, in pieces of 16 bytes.
bool takes_base(const Cuda& cuda, const Through& p, const In& base);

// out [cols, rank] = alpha a^T z ([rank, cols] if transposed), added to with `add`. a [rows, cols] is of `type`, z
// [rows, rank] is rounded to it.
struct Gather {
  int64_t rows = 0, cols = 0, rank = 0;
  lk_dtype type = LK_BF16;
  const void* a = nullptr;
  In z{};
  int64_t pitch = 0;  // elements from one row of z to the next: the rank, or its even_pitch
  float alpha = 1;
  Out out{};
  bool transposed = false, add = false;
};
// As many at once as lk_lora_gradients takes layers, two of each, with the same padded rank and type.
void skinny_gather(Cuda& cuda, std::span<const Gather> jobs);

// What kernels multiply by, and the sums in memory between two of them are padded to: 16, 32, 64 or 128.
constexpr int64_t padded_rank(int64_t rank) {
  int64_t padded = 16;
  while (padded < rank) padded *= 2;
  return padded;
}
// `body` for a padded rank as a number known to the compiler.
template <class Body>
auto with_padded_rank(int64_t padded, const Body& body) {
  switch (padded) {
    case 16: return body(std::integral_constant<int, 16>());
    case 32: return body(std::integral_constant<int, 32>());
    case 64: return body(std::integral_constant<int, 64>());
    default: return body(std::integral_constant<int, skinny_rank>());
  }
}

// Whether rows of `width` numbers from `data` on can be taken in pieces of 16 bytes, `piece` numbers each.
inline bool in_pieces(const void* data, int64_t width, int64_t piece) {
  return width % piece == 0 && reinterpret_cast<uintptr_t>(data) % 16 == 0;
}

// Whether they take less time than cuBLASLt's products: those come nearer to what tensor cores do the higher the rank,
// but each needs its matrix in 16 bits first and goes alone. Measured on whole steps of models of 2.6 to 12 billion
// parameters at ranks of 64 and 128 (docs/performance_log.md). `width` is that of both wide operands.
constexpr bool skinny_pays(int64_t rows, int64_t width, int64_t rank) {
  const auto padded = static_cast<double>(padded_rank(rank));
  return rank <= 32 || static_cast<double>(rows) * static_cast<double>(width) * padded * padded <= 1e11;
}
// On tensor cores, for 16-bit types.
bool skinny_fits(const Cuda& cuda, lk_dtype type, int64_t rank);

}  // namespace lk::cuda
