// y [B, D] = x [B, index[b], D], and the gradient, which is zero elsewhere.
#include <cstring>

#include "cpu/convert.h"

namespace lk::cpu {

namespace {

const int32_t* checked_index(const char* op, const lk_tensor& index, int64_t length) {
  const auto* const values = static_cast<const int32_t*>(index.data);
  for (int64_t b = 0; b < index.dims[0]; ++b) {
    if (values[b] < 0 || values[b] >= length) {
      throw Error(LK_E_INVALID, std::string(op) + ": index[" + std::to_string(b) + "]: expected 0 to " +
                                    std::to_string(length - 1) + ", found " + std::to_string(values[b]));
    }
  }
  return values;
}

}  // namespace

void gather(Cpu& cpu, const lk_gather_params& p) {
  const int64_t batch = p.x.dims[0], length = p.x.dims[1], depth = p.x.dims[2];
  const int32_t* const index = checked_index("gather", p.index, length);
  const FloatOut y(cpu, p.y);
  const auto* const x = static_cast<const char*>(p.x.data);
  for (int64_t b = 0; b < batch; ++b) {
    widen(cpu, x + (b * length + index[b]) * depth * lk_dtype_size(p.x.dtype), p.x.dtype, y + b * depth, depth);
  }
}

void gather_backward(Cpu& cpu, const lk_gather_backward_params& p) {
  const int64_t batch = p.dx.dims[0], length = p.dx.dims[1], depth = p.dx.dims[2];
  const int32_t* const index = checked_index("gather_backward", p.index, length);
  const FloatIn dy(cpu, p.dy);
  const FloatOut dx(cpu, p.dx);
  std::memset(dx.data(), 0, static_cast<size_t>(batch * length * depth) * sizeof(float));
  for (int64_t b = 0; b < batch; ++b) {
    std::memcpy(dx + (b * length + index[b]) * depth, dy + b * depth, static_cast<size_t>(depth) * sizeof(float));
  }
}

}  // namespace lk::cpu
