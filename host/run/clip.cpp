#include "run/clip.h"

namespace lh {

void clip_gradients(Device& device, lk_tensor gradients, double max_norm, const lk_tensor& loss_scale,
                    const lk_tensor& norm) {
  const lk_clip_grad_norm_params params{.gradients = &gradients,
                                        .count = 1,
                                        .max_norm = static_cast<float>(max_norm),
                                        .loss_scale = loss_scale,
                                        .norm = norm};
  device.check(lk_clip_grad_norm(device.context(), &params), "gradient clipping");
}

}  // namespace lh
