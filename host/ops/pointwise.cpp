// pointwise: a program of elementwise operations in one launch. Made by the pass fuse_pointwise, which puts an input
// that result i may be stored over at place i, or leaves that place empty.
#include "ops/pointwise.h"

#include <algorithm>
#include <bit>

#include "ops/ops.h"

namespace lh {
namespace {

using List = std::vector<int64_t>;

int64_t number_of(std::optional<size_t> place) { return place ? static_cast<int64_t>(*place) : -1; }
std::optional<size_t> place_of(int64_t number) {
  return number < 0 ? std::nullopt : std::optional(static_cast<size_t>(number));
}

int64_t bits(float value) { return std::bit_cast<uint32_t>(value); }
float number(int64_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits)); }

std::vector<Desc> infer(const Infer& a) {
  const PointwiseAttrs p = PointwiseAttrs::decoded(a.attrs);
  std::vector<Desc> results;
  for (const DType dtype : p.dtypes) results.push_back({dtype, p.shape});
  for (const PointwiseAttrs::Output& output : p.outputs) {
    if (output.scales) results[*output.scales].shape = Shape{(p.shape.numel() + 255) / 256};
    for (int64_t axis = 0; axis < p.shape.rank(); ++axis)
      if ((output.axes >> axis & 1) != 0) results[output.y].shape = results[output.y].shape.with(axis, 1);
  }
  return results;
}

lk_status launch(const Launch& l) {
  const PointwiseAttrs p = PointwiseAttrs::decoded(l.attrs);
  std::vector<lk_pointwise_input> inputs;
  for (const PointwiseAttrs::Input& in : p.inputs)
    inputs.push_back({l.in[in.x], in.scales ? l.in[*in.scales] : lk_tensor{}, in.is_signed});
  std::vector<lk_pointwise_output> outputs;
  for (const PointwiseAttrs::Output& out : p.outputs)
    outputs.push_back({out.value, l.out[out.y], out.scales ? l.out[*out.scales] : lk_tensor{}, out.is_signed,
                       out.reduction, out.scale});
  lk_pointwise_params params{.inputs = inputs.data(),
                             .instructions = p.instructions.data(),
                             .outputs = outputs.data(),
                             .input_count = static_cast<int32_t>(inputs.size()),
                             .instruction_count = static_cast<int32_t>(p.instructions.size()),
                             .output_count = static_cast<int32_t>(outputs.size()),
                             .rank = static_cast<int32_t>(p.shape.rank()),
                             .dims = {}};
  std::ranges::copy(p.shape.dims(), params.dims);
  return lk_pointwise(l.context, &params);
}

// Codes and their scales are two results.
std::vector<size_t> every_place() {
  std::vector<size_t> places;
  for (size_t i = 0; i < size_t{2} * LK_POINTWISE_MAX_OUTPUTS; ++i) places.push_back(i);
  return places;
}

}  // namespace

Attrs PointwiseAttrs::encoded() const {
  List in, program, out, types;
  for (const Input& i : inputs) in.insert(in.end(), {number_of(i.x), number_of(i.scales), i.is_signed});
  for (const lk_pointwise_instruction& i : instructions)
    program.insert(program.end(), {i.code, i.kind, i.operands[0], i.operands[1], i.operands[2], bits(i.a), bits(i.b),
                                   static_cast<int64_t>(i.seed), static_cast<int64_t>(i.stream)});
  for (const Output& o : outputs)
    out.insert(out.end(),
               {o.value, number_of(o.y), number_of(o.scales), o.is_signed, o.reduction, bits(o.scale), o.axes});
  for (const DType dtype : dtypes) types.push_back(static_cast<int64_t>(dtype));
  return {{"shape", List(shape.dims().begin(), shape.dims().end())},
          {"inputs", in},
          {"instructions", program},
          {"outputs", out},
          {"dtypes", types}};
}

PointwiseAttrs PointwiseAttrs::decoded(const Attrs& attrs) {
  PointwiseAttrs p;
  p.shape = Shape(attrs.list("shape"));
  const List &in = attrs.list("inputs"), &program = attrs.list("instructions"), &out = attrs.list("outputs");
  for (size_t i = 0; i < in.size(); i += 3) p.inputs.push_back({*place_of(in[i]), place_of(in[i + 1]), in[i + 2] != 0});
  for (size_t i = 0; i < program.size(); i += 9) {
    const auto whole = [&](size_t k) { return static_cast<int32_t>(program[i + k]); };
    p.instructions.push_back({whole(0),
                              whole(1),
                              {whole(2), whole(3), whole(4)},
                              number(program[i + 5]),
                              number(program[i + 6]),
                              static_cast<uint64_t>(program[i + 7]),
                              static_cast<uint64_t>(program[i + 8])});
  }
  for (size_t i = 0; i < out.size(); i += 7)
    p.outputs.push_back({static_cast<int32_t>(out[i]), *place_of(out[i + 1]), place_of(out[i + 2]), out[i + 3] != 0,
                         static_cast<lk_pointwise_reduction>(out[i + 4]), number(out[i + 5]), out[i + 6]});
  for (const int64_t dtype : attrs.list("dtypes")) p.dtypes.push_back(static_cast<DType>(dtype));
  return p;
}

const OpDef pointwise_op{.name = "pointwise", .infer = infer, .launch = launch, .in_place = every_place()};

}  // namespace lh
