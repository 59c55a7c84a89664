// The backward pass of a layer with an adapter: for several that add to one dx, and the gradients of the adapter alone.
#pragma once

#include "cpu/cpu.h"

namespace lk::cpu {

// lora_backward with dx [M, in] = its share + so_far dx, with so_far 0 or 1, in the place of p's; nullptr: none.
void lora_backward(Cpu& cpu, const lk_lora_backward_params& p, float* dx, float so_far);

// ddown [r, in] = ds^T x and dup [out, r] = scale dy^T s, each where it has data.
struct AdapterGradients {
  int64_t rows, in, out, rank;
  const float *x, *dy, *s, *ds;
  float scale;
  bool accumulate;
  const lk_tensor &ddown, &dup;
};
void adapter_gradients(Cpu& cpu, const AdapterGradients& g);

}  // namespace lk::cpu
