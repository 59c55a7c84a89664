// Layers with adapters that read one x: at once where the kernels of lora.cu take them so, else one after the other,
// each adding to the dx of the one before.
#include "cuda/lora.h"

namespace lk::cuda {

void lora_group_forward(Cuda& cuda, const lk_lora_group_forward_params& p) {
  const std::span layers(p.layers, static_cast<size_t>(p.count));
  void* const workspace = lora_workspace(cuda, layers.front().x);
  const Activated activated = activated_of(p);
  if (lora_at_once(cuda, layers)) return lora_forward(cuda, layers, activated, workspace);
  for (const lk_lora_forward_params& layer : layers) lora_forward(cuda, {&layer, 1}, Activated{}, workspace);
  if (activated.wanted()) activate(cuda, layers, activated);
}

void lora_group_backward(Cuda& cuda, const lk_lora_group_backward_params& p) {
  const std::span layers(p.layers, static_cast<size_t>(p.count));
  void* workspace = lora_workspace(cuda, layers.front().x);
  if (lora_at_once(cuda, layers, p.dx)) {
    lora_backward(cuda, layers, {p.dx, p.added}, workspace);
    if (!cuda.measuring()) return;
    cuda.begin_operation();  // addresses may decide otherwise: the larger of both ways
    workspace = lora_workspace(cuda, layers.front().x);
  }
  // Two places by turns, as dx may not lie where it is added to; the last is p's.
  lk_tensor between = p.dx;
  if (present(p.dx) && p.count > 1) between.data = cuda.scratch<std::byte>(bytes_of(p.dx));
  const lk_tensor* so_far = &p.added;
  for (int32_t left = p.count - 1; left >= 0; --left) {
    const lk_tensor& to = left % 2 == 0 ? p.dx : between;
    lora_backward(cuda, layers.subspan(static_cast<size_t>(left), 1), {to, *so_far}, workspace);
    so_far = &to;
  }
}

}  // namespace lk::cuda
