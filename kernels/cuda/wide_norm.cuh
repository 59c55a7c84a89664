// Norms of rows [rows, columns] of 16-bit values that are wide enough for a warp or several each, and their gradients,
// in one pass:
//   y = xh weight (unit + factor) + shift, xh = (x - mean) / sqrt(variance + eps), or x / sqrt(mean(x^2) + eps)
// where factor and shift have a row for every `rows_per_factor` rows.
//
// What makes no sums down the columns has a few threads for each row (norm_rows.cu); what does has threads that keep to
// their columns (norm_slabs.cu).
#pragma once

#include "cuda/column_sums.cuh"
#include "cuda/fragments.cuh"

namespace lk::cuda {

struct WideNorm {
  lk_tensor x;
  lk_tensor weight, factor;  // optional: [width] and [rows / rows_per_factor, width]
  float unit;                // 1 where the factor is absent
  int64_t rows_per_factor;
  float eps;
  bool centered;  // the mean is taken off
};

// Whether it can be done so: x and `rows`, which are read or written beside it, of one 16-bit type, capability 8.0,
// neither few nor too many columns, `others` aligned. While measuring, addresses say nothing and it may.
bool wide_norm_fits(const Cuda& cuda, const WideNorm& norm, std::initializer_list<const lk_tensor*> rows,
                    std::initializer_list<const lk_tensor*> others = {});

// `added` is the shift, or, `by_row`, is like x; it may be absent.
void norm_rows(Cuda& cuda, const WideNorm& norm, const lk_tensor& added, bool by_row, const lk_tensor& y);

// The gradient of x; what it is added to is optional and may be dx itself.
void norm_rows_dx(Cuda& cuda, const WideNorm& norm, const lk_tensor& dy, const lk_tensor& added, const lk_tensor& dx);

// The same, where dx is optional, and sums[0] = weight sum dy xh and sums[1] = sum dy, or either of them. Without
// `centered` there is no sums[1].
void norm_slabs(Cuda& cuda, const WideNorm& norm, const lk_tensor& dy, const lk_tensor& added, const lk_tensor& dx,
                const Sums& sums);

// Whichever of the two it takes.
inline void wide_norm_backward(Cuda& cuda, const WideNorm& norm, const lk_tensor& dy, const lk_tensor& added,
                               const lk_tensor& dx, const Sums& sums) {
  const bool summed = sums.y[0].data != nullptr || sums.y[1].data != nullptr;
  summed ? norm_slabs(cuda, norm, dy, added, dx, sums) : norm_rows_dx(cuda, norm, dy, added, dx);
}

namespace wide_norm {

constexpr int width = vector_width, most_columns = 8192;

template <bool Bf16>
__device__ inline void unpack(const uint4& packed, float (&v)[width]) {
  unpack16(packed, Bf16 ? LK_BF16 : LK_F16, v);
}

template <bool Bf16>
__device__ inline uint4 packed(const float (&v)[width]) {
  return make_uint4(pack<Bf16>(v[0], v[1]), pack<Bf16>(v[2], v[3]), pack<Bf16>(v[4], v[5]), pack<Bf16>(v[6], v[7]));
}

// Four times a lane's share of the sum of what the lanes of a warp have of a row, each eight values of 16 bits: the
// matrix instruction adds up those of four lanes, which all get them (fragments.cuh).
template <bool Bf16>
__device__ inline float sum_of_four_lanes(const uint4& packed) {
  constexpr uint32_t ones = Bf16 ? 0x3f803f80u : 0x3c003c00u;
  float sums[4] = {};
  multiply_add<Bf16>(sums, {packed.x, packed.y, packed.z, packed.w}, {ones, ones});
  return sums[0] + sums[2];
}

}  // namespace wide_norm

}  // namespace lk::cuda
