// Every op of the catalogue, as the host runs it (shape rule, launch, gradient rule, planned memory), against the
// float64 loops of support/op_cases.h.
//
// Forward, in every storage type: inputs are rounded to the type first, so the float64 loop followed by one rounding of
// the result is the naive computation in that type; its error is half a unit in the last place. Kernels may add the
// error of float32 sums: the tolerance is lk_test::tolerance (kernel_tensors.h), which says why its k is 8. Gradients,
// in float32: of loss = sum of weight * result, against central differences of the float64 loop.
#include "ops/ops.h"

#include <gmock/gmock.h>

#include <set>

#include "core/error.h"
#include "graph/catalogue.h"
#include "graph/op.h"
#include "lora_host/abi.h"
#include "passes/differentiate.h"
#include "passes/layout.h"
#include "run/program.h"
#include "support/device.h"
#include "support/kernel_tensors.h"
#include "support/op_cases.h"

namespace lh::test::ops_test {
namespace {

using ::testing::HasSubstr;

// Values on a grid of 4096 places, off its ends and middle: no kink (relu, abs, clamp) is within a difference step.
Values draw(std::mt19937& random, const OpInput& in) {
  Values values(static_cast<size_t>(count_of(in.dims)));
  for (double& v : values) {
    const double unit = (static_cast<double>(random() >> 20) + 0.5) / 4096;
    const bool whole = in.storage == Storage::i32 || in.storage == Storage::u8;
    v = whole ? in.low + std::floor(unit * (in.high - in.low + 1)) : in.low + unit * (in.high - in.low);
  }
  return values;
}

DType dtype_of(const OpInput& in, DType tested) {
  if (in.storage == Storage::i32) return DType::i32;
  if (in.storage == Storage::u8) return DType::u8;
  return in.storage == Storage::f32 ? DType::f32 : tested;
}

// `values` in a storage type; they become what is stored.
HostTensor stored(Values& values, const Desc& desc) {
  if (desc.dtype == DType::i32) {
    const std::vector<int32_t> ints(values.begin(), values.end());
    return HostTensor::from_ints(desc.shape, ints);
  }
  HostTensor tensor(desc);
  if (desc.dtype == DType::u8) {
    std::ranges::copy(values, tensor.as<uint8_t>().begin());
    return tensor;
  }
  std::vector<float> floats(values.begin(), values.end());
  convert(DType::f32, floats.data(), desc.dtype, tensor.data.data(), desc.shape.numel());
  convert(desc.dtype, tensor.data.data(), DType::f32, floats.data(), desc.shape.numel());
  values.assign(floats.begin(), floats.end());
  return tensor;
}

Values loaded(const HostTensor& tensor) {
  if (tensor.desc.dtype == DType::i32) return {tensor.as<int32_t>().begin(), tensor.as<int32_t>().end()};
  if (tensor.desc.dtype == DType::u8) return {tensor.as<uint8_t>().begin(), tensor.as<uint8_t>().end()};
  std::vector<float> floats(static_cast<size_t>(tensor.desc.shape.numel()));
  convert(tensor.desc.dtype, tensor.data.data(), DType::f32, floats.data(), tensor.desc.shape.numel());
  return {floats.begin(), floats.end()};
}

// One op of a case in a graph: inputs "x0", "x1", ..., and the results that the catalogue gives it.
struct OpGraph {
  Graph graph;
  std::vector<Value> inputs, results;

  OpGraph(const OpCase& c, DType tested) : graph(tested) {
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      const OpInput& in = c.inputs[i];
      inputs.push_back(in.storage == Storage::absent
                           ? Value{}
                           : graph.add_input(fmt::format("x{}", i), {dtype_of(in, tested), Shape(in.dims)}));
    }
    const CatalogueEntry& entry = *find_in_catalogue(c.op);
    const Attrs attrs = checked_attrs(entry, c.attrs, inputs.size(), c.results);
    results = graph.add(*find_op(c.op), inputs, attrs, 0);
    settle_layouts(graph);
    results.resize(c.results);  // attention has a second one for its own gradient
  }
  // A float32 [1] that depends on every result.
  Value weighted_sum(const std::vector<Values>& weights) {
    Value total;
    for (size_t i = 0; i < results.size(); ++i) {
      const Desc desc = graph.desc(results[i]);
      Values w = weights[i];
      const Value weight = graph.add_constant(stored(w, {DType::f32, desc.shape}));
      std::vector<int64_t> axes(static_cast<size_t>(desc.shape.rank()));
      std::iota(axes.begin(), axes.end(), 0);
      Value result = results[i];
      if (!is_float(desc.dtype)) result = graph.add(cast_op, {result}, {{"dtype", int64_t{LH_F32}}}, 0)[0];
      const Value product = graph.add(mul_op, {result, weight}, {}, 0)[0];
      const Value sum = graph.add(sum_op, {product}, {{"axes", axes}}, 0)[0];
      const Value flat = graph.add(reshape_op, {sum}, {{"shape", std::vector<int64_t>{1}}}, 0)[0];
      total = total ? graph.add(add_op, {total, flat}, {}, 0)[0] : flat;
    }
    return total;
  }
};

// Runs a graph in memory where every byte was 0xFF: a NaN in every float type, so what is read before it is written
// shows.
std::map<std::string, HostTensor> run_poisoned(Device& device, const Graph& graph, const OpCase& c, Inputs& values) {
  Plan plan = plan_memory(graph, {});
  const DeviceMemory arena(device, plan.bytes, "test");
  const std::vector<unsigned char> poison(static_cast<size_t>(plan.bytes), 0xFF);
  arena.upload(0, poison.data(), plan.bytes);
  Program program(device, graph, std::move(plan), arena.data(), {});
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    if (c.inputs[i].storage == Storage::absent) continue;
    const std::string name = fmt::format("x{}", i);
    program.set_input(name, stored(values[i], graph.desc(graph.inputs.at(name))));
  }
  program.run();
  std::map<std::string, HostTensor> outputs;
  for (const auto& [name, value] : graph.outputs) outputs[name] = program.output(name);
  return outputs;
}

void expect_forward(Device& device, const OpCase& c, DType dtype, std::mt19937& random) {
  SCOPED_TRACE(std::string(dtype_name(dtype)));
  OpGraph op(c, dtype);
  for (size_t i = 0; i < c.results; ++i) op.graph.outputs[fmt::format("y{}", i)] = op.results[i];
  Inputs values;
  for (const OpInput& in : c.inputs) values.push_back(draw(random, in));
  const auto outputs = run_poisoned(device, op.graph, c, values);
  const std::vector<Values> want = c.reference(values);
  for (size_t i = 0; i < c.results; ++i) {
    const HostTensor& got = outputs.at(fmt::format("y{}", i));
    if (!is_float(got.desc.dtype))
      EXPECT_EQ(loaded(got), want[i]) << "result " << i;
    else
      lk_test::expect_near(fmt::format("result {}", i), loaded(got), want[i], static_cast<lk_dtype>(got.desc.dtype),
                           c.depth, c.inner);
  }
}

double dot(const std::vector<Values>& a, const std::vector<Values>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::inner_product(a[i].begin(), a[i].end(), b[i].begin(), 0.0);
  return sum;
}

// Elements of a gradient against differences of the loss; about 40 of each input, spread over it.
void expect_differences(const OpCase& c, Inputs values, const std::vector<Values>& weights, size_t input,
                        const Values& gradient) {
  constexpr double step = 1e-4;  // truncation: step^2 / 6 times a third derivative of order 10, 2e-8
  ASSERT_EQ(gradient.size(), values[input].size());
  const double largest = std::max(lk_test::largest_of(gradient), 1e-3);
  const auto work = static_cast<double>(std::max<int64_t>(c.depth, static_cast<int64_t>(weights[0].size())));
  // 8 eps32 sqrt(n) as for the results, n the longest sum of the backward pass, and the truncation.
  const double allowed = (8 * std::ldexp(1.0, -24) * std::sqrt(work) + 1e-6) * largest;
  const size_t stride = std::max<size_t>(1, gradient.size() / 40) | 1;
  for (size_t i = 0; i < gradient.size(); i += stride) {
    const double at = values[input][i];
    values[input][i] = at + step;
    const double above = dot(weights, c.reference(values));
    values[input][i] = at - step;
    const double below = dot(weights, c.reference(values));
    values[input][i] = at;
    ASSERT_NEAR(gradient[i], (above - below) / (2 * step), allowed) << "input " << input << " element " << i;
  }
}

std::vector<OpCase> cases_with(bool grad) {
  std::vector<OpCase> chosen;
  for (const OpCase& c : op_cases())
    if (const CatalogueEntry* entry = find_in_catalogue(c.op); entry != nullptr && entry->grad == grad)
      chosen.push_back(c);
  return chosen;
}

std::string name_of(const testing::TestParamInfo<OpCase>& info) {
  std::string name = std::to_string(info.index) + "_" + info.param.op.substr(0, info.param.op.find('/'));
  return info.param.note.empty() ? name : name + "_" + info.param.note;
}

class OpForward : public testing::TestWithParam<OpCase> {};

TEST_P(OpForward, EqualsTheFloat64Loop) {
  std::mt19937 random(11);
  Device device(tested_device());
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) expect_forward(device, GetParam(), dtype, random);
}

INSTANTIATE_TEST_SUITE_P(Ops, OpForward, testing::ValuesIn(op_cases()), name_of);

class OpGradient : public testing::TestWithParam<OpCase> {};

TEST_P(OpGradient, EqualsDifferences) {
  const OpCase& c = GetParam();
  std::mt19937 random(12);
  Device device(tested_device());
  OpGraph op(c, DType::f32);
  std::vector<Values> weights;
  for (const Value r : op.results) {
    const auto dims = op.graph.desc(r).shape.dims();
    weights.push_back(draw(random, {Dims(dims.begin(), dims.end())}));
    stored(weights.back(), op.graph.desc(r));  // rounded, where a cast gives a narrower type: its gradient is exact
  }
  const Value loss = op.weighted_sum(weights);
  const float one = 1;
  const Value seed = op.graph.add_constant(HostTensor::from_floats({1}, std::span(&one, 1)));
  std::vector<Value> trained;
  for (size_t i = 0; i < c.inputs.size(); ++i)
    if (c.inputs[i].gradient) trained.push_back(op.inputs[i]);
  for (const auto& [value, gradient] : differentiate(op.graph, loss, seed, trained)) {
    ASSERT_TRUE(gradient);
    EXPECT_EQ(op.graph.desc(gradient), op.graph.desc(value));
    op.graph.outputs["d" + op.graph.info(value).name] = gradient;
  }
  Inputs values;
  for (const OpInput& in : c.inputs) values.push_back(draw(random, in));
  const auto outputs = run_poisoned(device, op.graph, c, values);
  for (size_t i = 0; i < c.inputs.size(); ++i)
    if (c.inputs[i].gradient) expect_differences(c, values, weights, i, loaded(outputs.at(fmt::format("dx{}", i))));
}

INSTANTIATE_TEST_SUITE_P(Ops, OpGradient, testing::ValuesIn(cases_with(true)), name_of);

TEST(Ops, EveryOpOfTheCatalogueHasACase) {
  std::set<std::string> tested;
  for (const OpCase& c : op_cases()) tested.insert(c.op);
  for (const CatalogueEntry& entry : op_catalogue()) {
    EXPECT_TRUE(tested.erase(entry.name) == 1) << entry.name << " has no row in support/op_cases_*.cpp";
    ASSERT_NE(find_op(entry.name), nullptr) << entry.name;
    EXPECT_EQ(find_op(entry.name)->gradient != nullptr, entry.grad) << entry.name;
  }
  EXPECT_THAT(tested, testing::IsEmpty()) << "cases of ops that are in no catalogue";
}

// What ops.yaml marks `grad: false` must not swallow a gradient unseen; only detach is there to do that. Integers have
// no gradient that could be.
TEST(Ops, WithoutGradientRuleAreRefusedOnATrainedPath) {
  for (const OpCase& c : cases_with(false)) {
    OpGraph op(c, DType::f32);
    std::vector<Values> weights;
    for (const Value r : op.results) weights.emplace_back(static_cast<size_t>(op.graph.desc(r).shape.numel()), 1.0);
    const auto floating = [&](Value v) { return v && is_float(op.graph.desc(v).dtype); };
    const auto last = std::ranges::find_if(op.inputs.rbegin(), op.inputs.rend(), floating);
    const Value loss = op.weighted_sum(weights), trained = last != op.inputs.rend() ? *last : op.inputs.back();
    const Value seed = op.graph.add_constant(HostTensor::from_floats({1}, std::vector<float>{1}));
    const bool integer = std::ranges::none_of(op.results, [&](Value r) { return is_float(op.graph.desc(r).dtype); });
    if (c.op == "detach/1" || integer) {
      EXPECT_FALSE(differentiate(op.graph, loss, seed, {trained}).at(trained));
      continue;
    }
    try {
      differentiate(op.graph, loss, seed, {trained});
      ADD_FAILURE() << c.op << " was differentiated";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::plugin);
      EXPECT_THAT(e.what(), HasSubstr(c.op));
    }
  }
}

}  // namespace
}  // namespace lh::test::ops_test
