// Products of 16-bit numbers with the matrix instructions of capability 9.0, to whose sums an adapter's share is added,
// and which may go through an activation on their way out.
#pragma once

#include "cuda/gemm.h"
#include "cuda/types.cuh"

namespace lk::cuda {

// gelu by tanh of the last columns of d, those from `from` on; of d's type, rows `pitch` elements apart.
struct Activation {
  struct Columns {
    void* data = nullptr;
    int64_t pitch = 0;
  };
  lk_dtype type = LK_F32;
  int64_t from = 0;
  Columns out{};     // where data is, there is an activation: gelu of the columns, as d has them, beside d
  Columns before{};  // with it, out has gelu'(before) times the columns, which d is without: [m, from]
};

// d = a op(b) + z op(v) + bias + c: `product` as in gemm.h, with alpha 1, beta 0 and one batch; z [m, rank], and v [n,
// rank], or [rank, n] where b is [k, n]. The share is one more step of the sum: nothing of d's size is read or written
// for it.
struct SharedProduct {
  GemmCall product;
  In z{};
  int64_t z_pitch = 0;  // elements from one row of z to the next
  int64_t rank = 0;
  void* v = nullptr;        // of z's type
  const void* c = nullptr;  // optional, as d, and may be d
  Activation activation{};  // b [n, k] where it has no `before`, [k, n] and no c where it has
};

// Whether it applies, and takes less time than a pass that writes the share and a product of cuBLASLt's that adds to
// it.
bool product_suits_hopper(const Cuda& cuda, const SharedProduct& p);
void product_on_hopper(Cuda& cuda, const SharedProduct& p);

}  // namespace lk::cuda
