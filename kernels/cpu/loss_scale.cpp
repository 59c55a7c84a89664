// state = {scale, clean steps}. A step whose gradient norm is not finite lowers the scale; growth_interval clean
// steps in a row raise it, up to `largest`.
#include <cmath>

#include "cpu/convert.h"

namespace lk::cpu {

void loss_scale_update(Cpu&, const lk_loss_scale_update_params& p) {
  float* const state = static_cast<float*>(p.state.data);
  if (!std::isfinite(*static_cast<const float*>(p.norm.data))) {
    state[0] *= p.backoff;
    state[1] = 0.0f;
    return;
  }
  state[1] += 1.0f;
  if (state[1] < static_cast<float>(p.growth_interval)) return;
  state[0] = std::min(state[0] * p.growth, p.largest);
  state[1] = 0.0f;
}

}  // namespace lk::cpu
