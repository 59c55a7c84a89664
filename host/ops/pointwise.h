// The attributes of the op `pointwise`: a program of elementwise operations (lk_pointwise) over the inputs and results
// of a node.
#pragma once

#include <optional>
#include <vector>

#include "graph/graph.h"
#include "lora_kernels.h"

namespace lh {

struct PointwiseAttrs {
  struct Input {
    size_t x;                      // place among the node's inputs
    std::optional<size_t> scales;  // of codes
    bool is_signed = false;
  };
  struct Output {
    int32_t value;
    size_t y;                      // place among the node's results
    std::optional<size_t> scales;  // of codes
    bool is_signed = false;
    lk_pointwise_reduction reduction = LK_POINTWISE_STORE;
    float scale = 1;   // of a sum
    int64_t axes = 0;  // that are reduced, as bits
  };
  Shape shape;  // that the program runs over
  std::vector<Input> inputs;
  std::vector<lk_pointwise_instruction> instructions;
  std::vector<Output> outputs;
  std::vector<DType> dtypes;  // of the node's results

  Attrs encoded() const;
  static PointwiseAttrs decoded(const Attrs& attrs);
};

}  // namespace lh
