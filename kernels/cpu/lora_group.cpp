// Layers with adapters that read one x. Their shares of dx are added up in float32, the last layer's first: in float32
// to the bits that layer after layer, each with the one behind it as `added`, would have.
#include <cstring>

#include "activated.h"
#include "cpu/convert.h"
#include "cpu/lora.h"

namespace lk::cpu {

void lora_group_forward(Cpu& cpu, const lk_lora_group_forward_params& p) {
  const std::span layers(p.layers, static_cast<size_t>(p.count));
  for (const lk_lora_forward_params& layer : layers) lora_forward(cpu, layer);
  if (present(p.activated)) activate(cpu, layers, activated_of(p));
}

void lora_group_backward(Cpu& cpu, const lk_lora_group_backward_params& p) {
  const FloatOut dx(cpu, p.dx);
  float so_far = 0.0f;
  if (present(p.added)) {
    const FloatIn added(cpu, p.added);
    std::memcpy(dx, added, static_cast<size_t>(numel(p.dx)) * sizeof(float));
    so_far = 1.0f;
  }
  for (int32_t i = p.count - 1; i >= 0; --i) {
    lora_backward(cpu, p.layers[i], dx, so_far);
    so_far = 1.0f;
  }
}

}  // namespace lk::cpu
