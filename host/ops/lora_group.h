// lora_group: layers with adapters that read one x, each as the op lora. Made by passes/group_layers.h.
//   inputs   x, then of each layer those of LoraGroup::Input, as lora has them; absent ones are 0
//   outputs  of each layer y and s
//   attrs    lora_scale_attr(i), and products where all layers have it
// lora_group_backward: the same of lora_backward.
//   inputs   x, added (optional), then of each layer those of LoraGroup::BackwardInput
//   outputs  of each layer ds; dx where the attribute of that name says so
#pragma once

#include <string>

#include "graph/op.h"

namespace lh {

extern const OpDef lora_group_op, lora_group_backward_op;

struct LoraGroup {
  enum Input : size_t { WEIGHT, BIAS, DOWN, UP, MASK, WEIGHT_SCALE, inputs };
  enum BackwardInput : size_t { DY, B_WEIGHT, B_DOWN, B_UP, B_MASK, B_WEIGHT_SCALE, backward_inputs };
  static constexpr size_t before = 1, before_backward = 2;  // inputs that all layers share

  // Of a node with so many inputs.
  static size_t layers(size_t count) { return (count - before) / inputs; }
  static size_t backward_layers(size_t count) { return (count - before_backward) / backward_inputs; }
  // Where an input of a layer is among the node's.
  static size_t at(size_t layer, Input input) { return before + layer * inputs + input; }
  static size_t at(size_t layer, BackwardInput input) { return before_backward + layer * backward_inputs + input; }
};

std::string lora_scale_attr(size_t layer);  // "scale.0"

}  // namespace lh
