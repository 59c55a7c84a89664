// lora_gradients: what a layer with an adapter leaves to its down and up matrices, from the ds of lora_backward. One
// layer as ops emit it; passes/group_gradients.h makes one of several.
//   inputs   of each layer those of LoraGradients::Input
//   outputs  of each layer ddown = ds^T x and dup = scale dy^T s
//   attrs    lora_scale_attr(i)
#pragma once

#include <utility>

#include "graph/op.h"

namespace lh {

extern const OpDef lora_gradients_op;

struct LoraGradients {
  // The gradients are like down and up, which are not read.
  enum Input : size_t { X, DY, S, DS, DOWN, UP, inputs };

  static size_t layers(size_t count) { return count / inputs; }  // of a node with so many inputs
  static size_t at(size_t layer, Input input) { return layer * inputs + input; }
};

// Of one layer: ddown and dup.
std::pair<Value, Value> emit_lora_gradients(Gradient& g, std::vector<Value> inputs, double scale);

}  // namespace lh
