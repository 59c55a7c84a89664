// y = max of x over the axes where y has 1.
#include <algorithm>
#include <limits>

#include "cpu/broadcast.h"
#include "cpu/convert.h"

namespace lk::cpu {

void reduce_max(Cpu& cpu, const lk_reduce_max_params& p) {
  const FloatIn x(cpu, p.x);
  const FloatOut y(cpu, p.y);
  const Walk<1> walk(p.x, {&p.y});
  for (int64_t i = 0; i < numel(p.y); ++i) y[i] = -std::numeric_limits<float>::infinity();
  const int64_t inner = walk.inner(), step = walk.inner_stride(0);
  for (int64_t row = 0; row < walk.rows(); ++row) {
    const int64_t to = walk.offset(0, row);
    for (int64_t i = 0; i < inner; ++i) {
      const float v = x[row * inner + i];
      float& most = y[to + i * step];
      if (v > most || v != v) most = v;
    }
  }
}

}  // namespace lk::cpu
