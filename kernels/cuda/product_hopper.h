// Products of 16-bit numbers with the matrix instructions of capability 9.0, to whose sums an adapter's share is added,
// and beside which an activation of what they store may be made, or what the adapter projects on the way.
#pragma once

#include <span>

#include "cuda/gemm.h"
#include "cuda/types.cuh"

namespace lk::cuda {

// gelu by tanh of the last columns of d, as they are stored, beside d: of d's type, rows `pitch` elements apart. Or
// silu of `gates` columns times as many behind them, or those of the second layer.
struct Activation {
  lk_dtype type = LK_F32;
  int64_t from = 0;  // the first of the columns
  int64_t gates = 0;
  void* data = nullptr;
  int64_t pitch = 0;  // 0: no activation

  bool wanted() const { return pitch > 0; }
};

// How z comes about, where the product makes it: alpha a op(w) without a mask, with w [rank, k], or [k, rank] where b
// is [k, n]; and v, which is multiplied by `gain`.
struct Projection {
  const float *w = nullptr, *v = nullptr;  // w absent: the product cannot
  float alpha = 1, gain = 1;
};

// d = a op(b) + z op(v) + bias + c: `product` as in gemm.h, with alpha 1, beta 0 and one batch; z [m, rank], and v [n,
// rank], or [rank, n] where b is [k, n]. The share is one or two more steps of the sum: nothing of d's size is read or
// written for it. Where they are given, rows of z and of v [n, rank] are even_pitch (skinny.h) apart, with zeros behind
// the rank.
struct SharedProduct {
  GemmCall product;
  Out z{};                // where it is, or is left
  int64_t z_pitch = 0;    // elements from one row of z to the next
  void* again = nullptr;  // z as it is given, where z_pitch is another
  int64_t rank = 0;
  void* v = nullptr;        // of z's type, where z is given
  const void* c = nullptr;  // optional, as d, and may be d
  Activation activation{};  // of b [n, k] without c; a group's is its first layer's, where that gates the second
  Projection projection{};
};

// The products of a group's layers, at most LK_LORA_GROUP_MAX: with b transposed they have one a and a d each,
// otherwise one d, the sum of all, with the first's bias and c.
using SharedProducts = std::span<const SharedProduct>;

// What is quickest: passes that write the shares and products of cuBLASLt's that add to them, one product that is given
// z and v in 16 bits, or one that makes z.
enum class Shares { apart, given, made };
Shares shares_of(const Cuda& cuda, SharedProducts layers);
void product_on_hopper(Cuda& cuda, SharedProducts layers, Shares shares);

}  // namespace lk::cuda
