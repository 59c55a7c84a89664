// What a flow model says that gives the picture itself.
#pragma once

#include "lora_host/lora_host.hpp"

namespace lora_host::nn {

// noise - x0 = (x_t - x0) / sigma of noisy f32 [B, H, W, C], picture, which is x0, and sigma f32 [B]. In float32: near
// sigma 0 it is a small difference of large numbers.
inline Value velocity(Graph& g, Value noisy, Value picture, Value sigma) {
  return g.div(g.sub(noisy, g.cast(picture, LH_F32)), g.reshape(sigma, {g.shape(noisy)[0], 1, 1, 1}));
}

}  // namespace lora_host::nn
