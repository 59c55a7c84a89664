// y = x repeated along the axes where x has 1: along the inner axis of the walk x either advances or stands still.
#include <cstring>

#include "cpu/broadcast.h"
#include "cpu/convert.h"

namespace lk::cpu {

namespace {

template <class T>
void repeat(const Cpu& cpu, const Walk<1>& walk, const T* x, T* y) {
  const int64_t inner = walk.inner();
  parallel_for(cpu, walk.rows(), inner, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const T* const from = x + walk.offset(0, row);
      T* const to = y + row * inner;
      if (walk.inner_stride(0) != 0) {
        std::memcpy(to, from, static_cast<size_t>(inner) * sizeof(T));
      } else {
        std::fill_n(to, inner, *from);
      }
    }
  });
}

}  // namespace

void expand(Cpu& cpu, const lk_expand_params& p) {
  const Walk<1> walk(p.y, {&p.x});
  if (p.x.dtype == LK_I32) {
    return repeat(cpu, walk, static_cast<const int32_t*>(p.x.data), static_cast<int32_t*>(p.y.data));
  }
  const FloatIn x(cpu, p.x);
  const FloatOut y(cpu, p.y);
  repeat(cpu, walk, x.data(), y.data());
}

}  // namespace lk::cpu
