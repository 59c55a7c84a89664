// y [B, dim] = [cos(a), sin(a)], a_k = scale t exp(-ln(max_period) k / (dim / 2)). Angles reach thousands of radians,
// where float has lost the fraction of a turn: they are computed in double.
#include <cmath>

#include "cpu/convert.h"

namespace lk::cpu {

void timestep_embedding(Cpu& cpu, const lk_timestep_embedding_params& p) {
  const int64_t batch = p.y.dims[0], dim = p.y.dims[1], half = dim / 2;
  const FloatIn t(cpu, p.t);
  const FloatOut y(cpu, p.y);
  for (int64_t k = 0; k < half; ++k) {
    const double frequency = std::exp(-std::log(p.max_period) * static_cast<double>(k) / static_cast<double>(half));
    for (int64_t b = 0; b < batch; ++b) {
      const double angle = p.scale * static_cast<double>(t[b]) * frequency;
      y[b * dim + (p.sin_first ? half : 0) + k] = static_cast<float>(std::cos(angle));
      y[b * dim + (p.sin_first ? 0 : half) + k] = static_cast<float>(std::sin(angle));
    }
  }
}

}  // namespace lk::cpu
