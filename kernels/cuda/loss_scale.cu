// state = {scale, clean steps}. A step whose gradient norm is not finite lowers the scale; growth_interval clean
// steps in a row raise it, up to `largest`.
#include "cuda/await_previous.cuh"
#include "cuda/cuda.h"

namespace lk::cuda {

namespace {

__global__ void update_kernel(const float* norm, float* state, float growth, float backoff, float largest,
                              float growth_interval) {
  await_previous();
  if (!isfinite(*norm)) {
    state[0] *= backoff;
    state[1] = 0.0f;
    return;
  }
  state[1] += 1.0f;
  if (state[1] < growth_interval) return;
  state[0] = fminf(state[0] * growth, largest);
  state[1] = 0.0f;
}

}  // namespace

void loss_scale_update(Cuda& cuda, const lk_loss_scale_update_params& p) {
  cuda.launch(update_kernel, 1, 1, 0, static_cast<const float*>(p.norm.data), static_cast<float*>(p.state.data),
              p.growth, p.backoff, p.largest, static_cast<float>(p.growth_interval));
}

}  // namespace lk::cuda
