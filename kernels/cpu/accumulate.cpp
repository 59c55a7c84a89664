// total (+)= alpha x.
#include "cpu/convert.h"

namespace lk::cpu {

void accumulate(Cpu& cpu, const lk_accumulate_params& p) {
  const FloatIn input(cpu, p.x);
  const float* const x = input;
  float* const total = static_cast<float*>(p.total.data);
  const float alpha = p.alpha;
  const bool add = p.accumulate != 0;
  parallel_for(cpu, numel(p.x), 1, [=](int64_t begin, int64_t end) {
    if (add) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) total[i] += alpha * x[i];
    } else {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) total[i] = alpha * x[i];
    }
  });
}

}  // namespace lk::cpu
