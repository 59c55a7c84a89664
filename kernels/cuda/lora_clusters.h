// The backward pass of an adapter in one kernel, by clusters of blocks.
#pragma once

#include "cuda/lora.h"
#include "cuda/types.cuh"

namespace lk::cuda {

// As lk_lora_backward without a weight, on devices of capability 9.0:
//   ds = scale (dy up) mask,  ddown = ds^T x,  dup = scale dy^T s,  dx = added + ds down
// for 16-bit numbers, ranks up to 32 and a ddown.
// False, and nothing done, where it does not take the call: by addresses, too, which are taken for suitable while
// measuring.
bool lora_clusters(Cuda& cuda, const lk_lora_backward_params& p, const Dx& d);

}  // namespace lk::cuda
