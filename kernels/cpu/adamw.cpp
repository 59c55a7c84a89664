// Adam with decoupled weight decay (Loshchilov & Hutter 2019), step t from 1:
//   p *= 1 - lr wd;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
//   p -= lr / (1 - b1^t) m / (sqrt(v) / sqrt(1 - b2^t) + eps)
// The per-step factors are computed in double.
#include <cmath>

#include "cpu/convert.h"

namespace lk::cpu {

void adamw_update(Cpu& cpu, const lk_adamw_update_params& p) {
  const double lr = static_cast<double>(*static_cast<const float*>(p.lr.data));
  const double step = static_cast<double>(*static_cast<const float*>(p.step.data));
  const double b1 = static_cast<double>(p.beta1), b2 = static_cast<double>(p.beta2);
  const float keep = static_cast<float>(1.0 - lr * static_cast<double>(p.weight_decay));
  const float rate = static_cast<float>(lr / (1.0 - std::pow(b1, step)));
  const float root = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(b2, step)));
  const float beta1 = p.beta1, beta2 = p.beta2, eps = p.eps;
  const float new1 = static_cast<float>(1.0 - b1), new2 = static_cast<float>(1.0 - b2);
  float *const value = static_cast<float*>(p.p.data), *const m = static_cast<float*>(p.m.data);
  float* const v = static_cast<float*>(p.v.data);
  const float* const g = static_cast<const float*>(p.g.data);
  parallel_for(cpu, numel(p.p), 2, [=](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) {
      const float first = beta1 * m[i] + new1 * g[i];
      const float second = beta2 * v[i] + new2 * g[i] * g[i];
      m[i] = first;
      v[i] = second;
      value[i] = value[i] * keep - rate * first / (std::sqrt(second) * root + eps);
    }
  });
}

}  // namespace lk::cpu
