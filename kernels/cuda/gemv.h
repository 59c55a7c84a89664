// Products with at most 8 rows. They are bound by reading the weight: it is streamed once, in its own type.
#pragma once

#include "cuda/nf4.cuh"
#include "cuda/types.cuh"

namespace lk::cuda {

constexpr int64_t gemv_rows = LK_FEW_ROWS;

// A weight [out, in] of any type that weights have. scale: one factor, one per row, or none; of nf4 the factors are
// those of its blocks.
struct Weight {
  In values;
  const float* scale;
  bool scale_per_row;
  int64_t out, in;
  Nf4Factors nf4;
};

Weight weight_of(const lk_tensor& weight, const lk_tensor& scale = {});

// y [rows, out] = (x weight^T + bias + branch_scale left right^T) mask. Optional: bias [out]; left [rows, rank] with
// right [out, rank]; mask [rows, out]. A weight without values counts as zero.
struct Gemv {
  int64_t rows = 0;
  In x{};
  Weight weight{};
  In bias{};
  In left{}, right{};
  int64_t rank = 0;
  bool left_comes = false;  // from the kernel in front, which does not touch anything else that is read here
  float branch_scale = 1;
  In mask{};
  Out y{};
};
void gemv(Cuda& cuda, const Gemv& p);

// dx [rows, in] = alpha mask (dy weight + left right). Optional: left [rows, rank] with right [rank, in]; mask.
// A weight without values counts as zero.
struct GemvTransposed {
  int64_t rows = 0;
  In dy{};
  Weight weight{};
  In left{}, right{};
  int64_t rank = 0;
  float alpha = 1;
  In mask{};
  Out dx{};
};
void gemv_transposed(Cuda& cuda, const GemvTransposed& p);

// d [m, n] = alpha a^T b, added to d with `add`; a [rows, m], b [rows, n].
void outer(Cuda& cuda, int64_t rows, int64_t m, int64_t n, float alpha, In a, In b, Out d, bool add);

}  // namespace lk::cuda
