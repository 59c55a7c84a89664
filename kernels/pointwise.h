// What both backends ask about the program of an lk_pointwise. LK_API: for those that are modules.
#pragma once

#include <span>
#include <vector>

#include "lora_kernels.h"

namespace lk {

struct LK_API PointwiseProgram {
  explicit PointwiseProgram(const lk_pointwise_params& p);

  std::span<const lk_pointwise_input> inputs;
  std::span<const lk_pointwise_instruction> instructions;
  std::span<const lk_pointwise_output> outputs;
  lk_tensor domain;  // the shape that the program runs over, without data
  int64_t count;     // its elements
  bool reduces;      // any output

  int32_t value_count() const { return static_cast<int32_t>(inputs.size() + instructions.size()); }
  int32_t value_of(size_t instruction) const { return static_cast<int32_t>(inputs.size() + instruction); }
};

constexpr int32_t pointwise_max_values = LK_POINTWISE_MAX_INPUTS + LK_POINTWISE_MAX_INSTRUCTIONS;

// How many operands an instruction has that are values to compute with; the step of a stochastic rounding is none.
LK_API int32_t pointwise_operands(lk_pointwise_code code);
// What a program that reduces stores before anything is reduced: its outputs, of which those that are reduced are
// float32 of the program's shape at the address that `place` gives for their number.
template <class Place>
std::vector<lk_pointwise_output> stored_outputs(const PointwiseProgram& program, const Place& place) {
  std::vector<lk_pointwise_output> outputs(program.outputs.begin(), program.outputs.end());
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].reduction == LK_POINTWISE_STORE) continue;
    outputs[i].y = program.domain;
    outputs[i].y.data = place(i);
    outputs[i].reduction = LK_POINTWISE_STORE;
  }
  return outputs;
}

// By value: the same for all elements, so that it need be computed once only. Rounding at random never is.
struct LK_API PointwiseScalars {
  explicit PointwiseScalars(const PointwiseProgram& program);
  bool operator[](int32_t value) const { return scalar_[value]; }

 private:
  bool scalar_[pointwise_max_values] = {};
};

inline bool pointwise_codes(const lk_pointwise_input& input) { return input.scales.data != nullptr; }
inline bool pointwise_codes(const lk_pointwise_output& output) { return output.scales.data != nullptr; }

}  // namespace lk
