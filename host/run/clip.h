// Unscaling and clipping of all gradients together.
#pragma once

#include "run/device.h"

namespace lh {

// gradients f32, in place; loss_scale and norm f32 [1]. max_norm 0: no clipping.
void clip_gradients(Device& device, lk_tensor gradients, double max_norm, const lk_tensor& loss_scale,
                    const lk_tensor& norm);

}  // namespace lh
