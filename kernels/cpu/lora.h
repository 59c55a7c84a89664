// The backward pass of a layer with an adapter, for several that add to one dx.
#pragma once

#include "cpu/cpu.h"

namespace lk::cpu {

// lora_backward with dx [M, in] = its share + so_far dx, with so_far 0 or 1, in the place of p's; nullptr: none.
void lora_backward(Cpu& cpu, const lk_lora_backward_params& p, float* dx, float so_far);

}  // namespace lk::cpu
