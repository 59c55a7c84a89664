// y = condition != 0 ? a : b.
#include "cpu/convert.h"

namespace lk::cpu {

namespace {

template <class T>
void select(const Cpu& cpu, const T* condition, const float* a, const float* b, int64_t n, float* y) {
  parallel_for(cpu, n, 1, [=](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) y[i] = condition[i] != T{0} ? a[i] : b[i];
  });
}

}  // namespace

void where(Cpu& cpu, const lk_where_params& p) {
  const FloatIn a(cpu, p.a), b(cpu, p.b);
  const FloatOut y(cpu, p.y);
  const int64_t n = numel(p.y);
  switch (p.condition.dtype) {
    case LK_I32: return select(cpu, static_cast<const int32_t*>(p.condition.data), a, b, n, y);
    case LK_I64: return select(cpu, static_cast<const int64_t*>(p.condition.data), a, b, n, y);
    case LK_U8: return select(cpu, static_cast<const uint8_t*>(p.condition.data), a, b, n, y);
    default: {
      const FloatIn condition(cpu, p.condition);
      return select(cpu, condition.data(), a, b, n, y);
    }
  }
}

}  // namespace lk::cpu
