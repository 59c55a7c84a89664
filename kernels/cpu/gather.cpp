// y [B, K, D] = x [B, index[b, k], D], and the gradient: every row of dy is added to the row that it was taken from.
#include <cstring>

#include "cpu/convert.h"

namespace lk::cpu {

namespace {

// `taken` rows of each of `batch` samples of `length` rows of `depth` elements.
struct Rows {
  int64_t batch, length, taken, depth;
  Rows(const lk_tensor& x, const lk_tensor& index)
      : batch(x.dims[0]), length(x.dims[1]), taken(numel(index) / batch), depth(numel(x) / (batch * length)) {}
};

const int32_t* checked_index(const char* op, const lk_tensor& index, int64_t length) {
  const auto* const values = static_cast<const int32_t*>(index.data);
  for (int64_t i = 0; i < numel(index); ++i) {
    if (values[i] < 0 || values[i] >= length) {
      throw Error(LK_E_INVALID, std::string(op) + ": index[" + std::to_string(i) + "]: expected 0 to " +
                                    std::to_string(length - 1) + ", found " + std::to_string(values[i]));
    }
  }
  return values;
}

}  // namespace

void gather(Cpu& cpu, const lk_gather_params& p) {
  const Rows r(p.x, p.index);
  const int32_t* const index = checked_index("gather", p.index, r.length);
  if (p.x.dtype == LK_I32) {
    const auto* const x = static_cast<const int32_t*>(p.x.data);
    auto* const y = static_cast<int32_t*>(p.y.data);
    for (int64_t i = 0; i < r.batch * r.taken; ++i) {
      std::copy_n(x + (i / r.taken * r.length + index[i]) * r.depth, r.depth, y + i * r.depth);
    }
    return;
  }
  const FloatOut y(cpu, p.y);
  const auto* const x = static_cast<const char*>(p.x.data);
  for (int64_t i = 0; i < r.batch * r.taken; ++i) {
    const int64_t from = (i / r.taken * r.length + index[i]) * r.depth;
    widen(cpu, x + from * lk_dtype_size(p.x.dtype), p.x.dtype, y + i * r.depth, r.depth);
  }
}

void gather_backward(Cpu& cpu, const lk_gather_backward_params& p) {
  const Rows r(p.dx, p.index);
  const int32_t* const index = checked_index("gather_backward", p.index, r.length);
  const FloatIn dy(cpu, p.dy);
  const FloatOut dx(cpu, p.dx);
  std::memset(dx.data(), 0, static_cast<size_t>(r.batch * r.length * r.depth) * sizeof(float));
  for (int64_t i = 0; i < r.batch * r.taken; ++i) {
    const float* const from = dy + i * r.depth;
    float* const to = dx + (i / r.taken * r.length + index[i]) * r.depth;
#pragma omp simd
    for (int64_t d = 0; d < r.depth; ++d) to[d] += from[d];
  }
}

}  // namespace lk::cpu
