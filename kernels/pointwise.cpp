// lk_pointwise: a program of elementwise operations in one pass over memory.
#include "pointwise.h"

#include <algorithm>

#include "blockwise_map.h"
#include "check.h"
#include "dispatch.h"

namespace lk {

PointwiseProgram::PointwiseProgram(const lk_pointwise_params& p)
    : inputs(p.inputs, static_cast<size_t>(p.input_count)),
      instructions(p.instructions, static_cast<size_t>(p.instruction_count)),
      outputs(p.outputs, static_cast<size_t>(p.output_count)),
      domain(p.outputs[0].y) {
  if (p.rank > 0) {
    domain.rank = p.rank;
    std::copy_n(p.dims, p.rank, domain.dims);
  }
  domain.data = nullptr;
  domain.dtype = LK_F32;
  count = lk_numel(&domain);
  reduces = std::ranges::any_of(outputs, [](const auto& output) { return output.reduction != LK_POINTWISE_STORE; });
}

int32_t pointwise_operands(lk_pointwise_code code) {
  return code == LK_POINTWISE_WHERE ? 3 : code == LK_POINTWISE_BINARY ? 2 : 1;
}

PointwiseScalars::PointwiseScalars(const PointwiseProgram& program) {
  for (size_t i = 0; i < program.inputs.size(); ++i)
    scalar_[i] = lk_numel(&program.inputs[i].x) == 1 && !pointwise_codes(program.inputs[i]);
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const lk_pointwise_instruction& instruction = program.instructions[i];
    bool scalar = instruction.code != LK_POINTWISE_STOCHASTIC;
    for (int32_t k = 0; k < pointwise_operands(instruction.code); ++k)
      scalar = scalar && scalar_[instruction.operands[k]];
    scalar_[program.value_of(i)] = scalar;
  }
}

}  // namespace lk

namespace {

using lk::PointwiseProgram;

std::string numbered(const char* name, size_t index, const char* field = "") {
  return std::string(name) + "[" + std::to_string(index) + "]" + field;
}

bool stored_type(lk_dtype dtype) {
  return dtype == LK_F32 || dtype == LK_F16 || dtype == LK_BF16 || dtype == LK_I32 || dtype == LK_U8;
}

void check_range(const lk::Check& check, const char* name, int64_t value, int64_t low, int64_t high) {
  check.require(
      value >= low && value <= high, name, [&] { return std::to_string(low) + " to " + std::to_string(high); }, value);
}

void check_stored(const lk::Check& check, const std::string& name, const lk_tensor& x) {
  check.tensor({name.c_str(), &x});
  check.require(stored_type(x.dtype), name.c_str(), "f32, f16, bf16, i32 or u8", lk_dtype_name(x.dtype));
}

void check_codes(const lk::Check& check, const std::string& name, const lk_tensor& codes, const lk_tensor& scales,
                 const PointwiseProgram& program) {
  check.dtype({name.c_str(), &codes}, LK_U8);
  check.shape({name.c_str(), &codes}, lk::shape_of(program.domain));
  const std::string scales_name = name + "'s scales";
  check.dtype({scales_name.c_str(), &scales}, LK_F32);
  check.shape({scales_name.c_str(), &scales}, {(program.count + lk::blockwise_size - 1) / lk::blockwise_size});
}

void check_input(const lk::Check& check, const std::string& name, const lk_pointwise_input& input,
                 const PointwiseProgram& program) {
  check_stored(check, name, input.x);
  if (lk::pointwise_codes(input)) return check_codes(check, name, input.x, input.scales, program);
  const lk::Shape shape = lk::shape_of(input.x), domain = lk::shape_of(program.domain);
  bool fits = shape.size() <= domain.size();
  for (size_t i = 0; fits && i < shape.size(); ++i)
    fits = shape[i] == 1 || shape[i] == domain[domain.size() - shape.size() + i];
  check.require(
      fits, name.c_str(), [&] { return "a shape that broadcasts to the outputs' " + lk::shape_text(domain); }, shape);
}

void check_instruction(const lk::Check& check, size_t index, const PointwiseProgram& program) {
  const lk_pointwise_instruction& instruction = program.instructions[index];
  check_range(check, numbered("instructions", index, ".code").c_str(), instruction.code, LK_POINTWISE_UNARY,
              LK_POINTWISE_STOCHASTIC);
  const std::string kind = numbered("instructions", index, ".kind");
  if (instruction.code == LK_POINTWISE_UNARY) check_range(check, kind.c_str(), instruction.kind, LK_SILU, LK_ROUND);
  if (instruction.code == LK_POINTWISE_BINARY) check_range(check, kind.c_str(), instruction.kind, LK_ADD, LK_GREATER);
  if (instruction.code == LK_POINTWISE_ROUND) check_range(check, kind.c_str(), instruction.kind, LK_F16, LK_BF16);
  const std::string operands = numbered("instructions", index, ".operands");
  for (int32_t k = 0; k < lk::pointwise_operands(instruction.code); ++k)
    check_range(check, operands.c_str(), instruction.operands[k], 0, program.value_of(index) - 1);
  if (instruction.code != LK_POINTWISE_STOCHASTIC) return;
  check_range(check, operands.c_str(), instruction.operands[1], 0, static_cast<int64_t>(program.inputs.size()) - 1);
  const lk_pointwise_input& step = program.inputs[static_cast<size_t>(instruction.operands[1])];
  check.require(step.x.dtype == LK_I32 && lk_numel(&step.x) == 1, operands.c_str(), "a step, i32 [1]",
                [&] { return std::string(lk_dtype_name(step.x.dtype)) + " " + lk::shape_text(lk::shape_of(step.x)); });
}

// An output may stand in the place of an input whose element i nothing but element i reads.
void check_memory(const lk::Check& check, const std::string& name, const lk_tensor& y, bool reduced,
                  const PointwiseProgram& program) {
  const lk::Arg output{name.c_str(), &y};
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    const lk_pointwise_input& input = program.inputs[i];
    const std::string x = numbered("inputs", i), scales = x + "'s scales";
    for (const lk::Arg from : {lk::Arg{x.c_str(), &input.x}, lk::Arg{scales.c_str(), &input.scales}}) {
      if (from.tensor->data == nullptr) continue;
      const lk::Shape shape = lk::shape_of(*from.tensor), own = lk::shape_of(y);
      const bool in_place = !reduced && from.tensor->data == y.data && from.tensor->dtype == y.dtype &&
                            lk_numel(from.tensor) == lk_numel(&y) &&
                            (shape.size() == own.size() ? std::ranges::equal(shape, own) : lk_numel(&y) == 1);
      if (!in_place) check.separate(output, {from});
    }
  }
}

// A reduced output has the program's shape, with 1 on some axes.
void check_reduced(const lk::Check& check, const std::string& name, const lk_pointwise_output& output,
                   const PointwiseProgram& program) {
  check_range(check, (name + ".reduction").c_str(), output.reduction, LK_POINTWISE_STORE, LK_POINTWISE_MAX);
  check.floating({name.c_str(), &output.y});
  bool fits = output.y.rank == program.domain.rank && program.count > 0;
  for (int32_t i = 0; fits && i < output.y.rank; ++i)
    fits = output.y.dims[i] == 1 || output.y.dims[i] == program.domain.dims[i];
  check.require(
      fits, name.c_str(),
      [&] { return "1 or the same size on every axis of " + lk::shape_text(lk::shape_of(program.domain)); },
      lk::shape_of(output.y));
}

void check_reduction(const lk::Check& check, const PointwiseProgram& program) {
  const auto codes = [](const auto& tensor) { return lk::pointwise_codes(tensor); };
  const bool stochastic = std::ranges::any_of(
      program.instructions, [](const auto& instruction) { return instruction.code == LK_POINTWISE_STOCHASTIC; });
  check.require(
      !stochastic && std::ranges::none_of(program.inputs, codes) && std::ranges::none_of(program.outputs, codes),
      "outputs", "no reduction in a program with codes or with rounding at random", "one");
}

void check_outputs(const lk::Check& check, const PointwiseProgram& program) {
  if (program.reduces) check_reduction(check, program);
  for (size_t i = 0; i < program.outputs.size(); ++i) {
    const lk_pointwise_output& output = program.outputs[i];
    const std::string name = numbered("outputs", i), scales = name + "'s scales";
    check_stored(check, name, output.y);
    if (output.reduction == LK_POINTWISE_STORE)
      check.shape({name.c_str(), &output.y}, lk::shape_of(program.domain));
    else
      check_reduced(check, name, output, program);
    check_range(check, (name + ".value").c_str(), output.value, 0, program.value_count() - 1);
    if (lk::pointwise_codes(output)) check_codes(check, name, output.y, output.scales, program);
    check_memory(check, name, output.y, output.reduction != LK_POINTWISE_STORE, program);
    if (lk::pointwise_codes(output)) check_memory(check, scales, output.scales, false, program);
    check.separate({name.c_str(), &output.y}, {{scales.c_str(), &output.scales}});
    for (size_t j = 0; j < i; ++j) {
      const std::string other = numbered("outputs", j), other_scales = other + "'s scales";
      const lk::Arg others[] = {{other.c_str(), &program.outputs[j].y},
                                {other_scales.c_str(), &program.outputs[j].scales}};
      for (const lk::Arg& from : others) {
        check.separate({name.c_str(), &output.y}, {from});
        check.separate({scales.c_str(), &output.scales}, {from});
      }
    }
  }
}

void check_pointwise(const lk_pointwise_params& p) {
  const lk::Check check("pointwise");
  check_range(check, "input_count", p.input_count, 1, LK_POINTWISE_MAX_INPUTS);
  check_range(check, "instruction_count", p.instruction_count, 0, LK_POINTWISE_MAX_INSTRUCTIONS);
  check_range(check, "output_count", p.output_count, 1, LK_POINTWISE_MAX_OUTPUTS);
  check.require(p.inputs != nullptr, "inputs", "an array", "NULL");
  check.require(p.instructions != nullptr || p.instruction_count == 0, "instructions", "an array", "NULL");
  check.require(p.outputs != nullptr, "outputs", "an array", "NULL");
  check_range(check, "rank", p.rank, 0, LK_MAX_RANK);
  check_stored(check, "outputs[0]", p.outputs[0].y);
  const PointwiseProgram program(p);
  for (size_t i = 0; i < program.inputs.size(); ++i)
    check_input(check, numbered("inputs", i), program.inputs[i], program);
  for (size_t i = 0; i < program.instructions.size(); ++i) check_instruction(check, i, program);
  check_outputs(check, program);
}

}  // namespace

LK_DEFINE_OP(pointwise, lk_pointwise_params)
