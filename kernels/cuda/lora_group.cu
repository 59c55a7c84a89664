// Layers with adapters that read one x, one after the other: each adds to the dx of the one before.
#include "cuda/cuda.h"

namespace lk::cuda {

void lora_group_forward(Cuda& cuda, const lk_lora_group_forward_params& p) {
  for (int32_t i = 0; i < p.count; ++i) lora_forward(cuda, p.layers[i]);
}

void lora_group_backward(Cuda& cuda, const lk_lora_group_backward_params& p) {
  // Two places by turns, as dx may not lie where it is added to; the last is p's.
  lk_tensor between = p.dx;
  if (present(p.dx) && p.count > 1) between.data = cuda.scratch<std::byte>(bytes_of(p.dx));
  lk_tensor so_far = p.added;
  for (int32_t left = p.count - 1; left >= 0; --left) {
    lk_lora_backward_params layer = p.layers[left];
    layer.dx = left % 2 == 0 ? p.dx : between;
    layer.added = so_far;
    lora_backward(cuda, layer);
    so_far = layer.dx;
  }
}

}  // namespace lk::cuda
