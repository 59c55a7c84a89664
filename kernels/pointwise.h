// What both backends ask about the program of an lk_pointwise.
#pragma once

#include <span>

#include "lora_kernels.h"

namespace lk {

struct PointwiseProgram {
  explicit PointwiseProgram(const lk_pointwise_params& p);

  std::span<const lk_pointwise_input> inputs;
  std::span<const lk_pointwise_instruction> instructions;
  std::span<const lk_pointwise_output> outputs;
  const lk_tensor& domain;  // a tensor of the shape that the program runs over
  int64_t count;            // its elements

  int32_t value_count() const { return static_cast<int32_t>(inputs.size() + instructions.size()); }
  int32_t value_of(size_t instruction) const { return static_cast<int32_t>(inputs.size() + instruction); }
};

constexpr int32_t pointwise_max_values = LK_POINTWISE_MAX_INPUTS + LK_POINTWISE_MAX_INSTRUCTIONS;

// How many operands an instruction has that are values to compute with; the step of a stochastic rounding is none.
int32_t pointwise_operands(lk_pointwise_code code);
// By value: the same for all elements, so that it need be computed once only. Rounding at random never is.
struct PointwiseScalars {
  explicit PointwiseScalars(const PointwiseProgram& program);
  bool operator[](int32_t value) const { return scalar_[value]; }

 private:
  bool scalar_[pointwise_max_values] = {};
};

inline bool pointwise_codes(const lk_pointwise_input& input) { return input.scales.data != nullptr; }
inline bool pointwise_codes(const lk_pointwise_output& output) { return output.scales.data != nullptr; }

}  // namespace lk
