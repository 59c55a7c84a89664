// Layers with adapters that read one x, at once or each by itself.
#pragma once

#include <span>

#include "activated.h"
#include "cuda/cuda.h"

namespace lk::cuda {

// What the layers have in common.
struct Dx {
  const lk_tensor &dx, &added;  // optional
};

// Whether several layers can be one call of what is below.
bool lora_at_once(const Cuda& cuda, std::span<const lk_lora_forward_params> layers);
bool lora_at_once(const Cuda& cuda, std::span<const lk_lora_backward_params> layers, const lk_tensor& dx);

// Scratch memory that calls of one operation share.
void* lora_workspace(Cuda& cuda, const lk_tensor& x);

// As lk_lora_forward and lk_lora_backward on each, but for what is activated and dx, which are of all.
void lora_forward(Cuda& cuda, std::span<const lk_lora_forward_params> layers, const Activated& activated,
                  void* workspace);
void lora_backward(Cuda& cuda, std::span<const lk_lora_backward_params> layers, const Dx& d, void* workspace);

}  // namespace lk::cuda
