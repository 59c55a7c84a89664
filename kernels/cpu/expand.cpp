// y = x repeated along the axes where x has 1: along the inner axis of the walk x either advances or stands still.
#include <cstring>

#include "cpu/broadcast.h"
#include "cpu/convert.h"

namespace lk::cpu {

void expand(Cpu& cpu, const lk_expand_params& p) {
  const Walk<1> walk(p.y, {&p.x});
  const FloatIn x(cpu, p.x);
  const FloatOut y(cpu, p.y);
  const int64_t inner = walk.inner();
  parallel_for(cpu, walk.rows(), inner, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* const from = x + walk.offset(0, row);
      float* const to = y + row * inner;
      if (walk.inner_stride(0) != 0) {
        std::memcpy(to, from, static_cast<size_t>(inner) * sizeof(float));
      } else {
        std::fill_n(to, inner, *from);
      }
    }
  });
}

}  // namespace lk::cpu
