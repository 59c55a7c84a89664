// y = condition != 0 ? a : b with broadcasting: along the inner axis each input either advances by one or stands still.
#include "cpu/broadcast.h"
#include "cpu/convert.h"

namespace lk::cpu {

namespace {

template <class C, class T>
void select(const Cpu& cpu, const Walk<3>& walk, const C* condition, const T* a, const T* b, T* y) {
  const int64_t inner = walk.inner();
  const int64_t step_c = walk.inner_stride(0), step_a = walk.inner_stride(1), step_b = walk.inner_stride(2);
  const auto row = [=](const C* c, const T* from_a, const T* from_b, int64_t n, T* to) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) to[i] = c[i * step_c] != C{0} ? from_a[i * step_a] : from_b[i * step_b];
  };
  if (walk.rank == 1) {
    parallel_for(cpu, inner, 1, [=](int64_t begin, int64_t end) {
      row(condition + begin * step_c, a + begin * step_a, b + begin * step_b, end - begin, y + begin);
    });
    return;
  }
  parallel_for(cpu, walk.rows(), inner, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      row(condition + walk.offset(0, i), a + walk.offset(1, i), b + walk.offset(2, i), inner, y + i * inner);
    }
  });
}

template <class T>
void choose(Cpu& cpu, const lk_where_params& p, const T* a, const T* b, T* y) {
  const Walk<3> walk(p.y, {&p.condition, &p.a, &p.b});
  switch (p.condition.dtype) {
    case LK_I32: return select(cpu, walk, static_cast<const int32_t*>(p.condition.data), a, b, y);
    case LK_I64: return select(cpu, walk, static_cast<const int64_t*>(p.condition.data), a, b, y);
    case LK_U8: return select(cpu, walk, static_cast<const uint8_t*>(p.condition.data), a, b, y);
    default: {
      const FloatIn condition(cpu, p.condition);
      return select(cpu, walk, condition.data(), a, b, y);
    }
  }
}

}  // namespace

void where(Cpu& cpu, const lk_where_params& p) {
  if (p.y.dtype == LK_I32) {
    return choose(cpu, p, static_cast<const int32_t*>(p.a.data), static_cast<const int32_t*>(p.b.data),
                  static_cast<int32_t*>(p.y.data));
  }
  const FloatIn a(cpu, p.a), b(cpu, p.b);
  const FloatOut y(cpu, p.y);
  choose(cpu, p, a.data(), b.data(), y.data());
}

}  // namespace lk::cpu
