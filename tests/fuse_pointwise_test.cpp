// The fuse_pointwise pass: updates of optimizers become one launch, results keep their bits, and what may not become
// part of a program stays outside.
#include "passes/fuse_pointwise.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "lora_host/abi.h"
#include "ops/ops.h"
#include "run/update.h"
#include "support/device.h"
#include "support/golden.h"
#include "support/graph_run.h"

namespace lh::fuse_pointwise_test {
namespace {

using namespace test;

constexpr int64_t count = 3001;

// A graph of an update over [n], with the usual inputs.
struct Rule {
  Graph g{DType::f32};
  std::map<Value, Value> replaces;
  Value p = input("p"), gradient = input("g"), lr = g.add_input("lr", {DType::f32, {1}});
  Value step = g.add_input("step", {DType::f32, {1}});

  Value input(const std::string& name, DType dtype = DType::f32, int64_t n = count) {
    return g.add_input(name, {dtype, {n}});
  }
  std::vector<Value> all(const OpDef& op, std::vector<Value> in, Attrs attrs = {}) {
    return g.add(op, std::move(in), std::move(attrs), 0);
  }
  Value one(const OpDef& op, std::vector<Value> in, Attrs attrs = {}) {
    return all(op, std::move(in), std::move(attrs))[0];
  }
  Value affine(Value x, double scale, double shift = 0) {
    return one(affine_op, {x}, {{"scale", scale}, {"shift", shift}});
  }
  Value mix(Value a, double keep, Value b) { return one(add_op, {affine(a, keep), affine(b, 1 - keep)}); }
  // 1 - beta^step
  Value correction(double beta) { return affine(one(exp_op, {affine(step, std::log(beta))}), -1, 1); }
  void result(const std::string& name, Value v) {
    g.outputs[name] = v;
    if (g.inputs.contains(name)) replaces[v] = g.inputs.at(name);
  }
  // p (1 - 0.1 lr) - lr m' / c1 / (sqrt(v') / sqrt(c2) + eps)
  void adam_step(Value m, Value v) {
    const Value root = one(div_op, {one(sqrt_op, {v}), one(sqrt_op, {correction(0.99)})});
    const Value direction = one(div_op, {m, affine(root, 1, 1e-8)});
    const Value rate = one(div_op, {lr, correction(0.9)});
    result("p", one(sub_op, {one(mul_op, {p, affine(lr, -0.1, 1)}), one(mul_op, {rate, direction})}));
  }
};

Rule adamw() {
  Rule r;
  const Value m = r.mix(r.input("m"), 0.9, r.gradient);
  const Value v = r.mix(r.input("v"), 0.99, r.one(square_op, {r.gradient}));
  r.result("m", m);
  r.result("v", v);
  r.adam_step(m, v);
  return r;
}

Rule adamw8bit() {
  Rule r;
  const auto state = [&](const std::string& name, bool is_signed, double beta, Value x) {
    const Attrs map{{"is_signed", int64_t{is_signed}}};
    const Value codes = r.input(name, DType::u8), scales = r.input(name + ".scales", DType::f32, (count + 255) / 256);
    const Value next = r.mix(r.one(dequantize_blockwise_op, {codes, scales}, map), beta, x);
    const auto stored = r.all(quantize_blockwise_op, {next}, map);
    r.result(name, stored[0]);
    r.result(name + ".scales", stored[1]);
    return next;
  };
  const Value m = state("m", true, 0.9, r.gradient);
  r.adam_step(m, state("v", false, 0.99, r.one(square_op, {r.gradient})));
  return r;
}

Rule lion() {
  Rule r;
  const Value m = r.input("m", DType::bf16);
  const Value wide = r.one(cast_op, {m}, {{"dtype", int64_t{LH_F32}}});
  const Value direction = r.one(sign_op, {r.mix(wide, 0.9, r.gradient)});
  r.result("p", r.one(sub_op, {r.one(mul_op, {r.p, r.affine(r.lr, -0.1, 1)}), r.one(mul_op, {direction, r.lr})}));
  const Value turn = r.g.add_input("turn", {DType::i32, {1}});
  r.result("m", r.one(round_stochastic_op, {r.mix(wide, 0.99, r.gradient), turn},
                      {{"seed", int64_t{4}}, {"stream", int64_t{0}}}));
  return r;
}

// A rule with a sum over all elements between two parts, of which the second writes what the first reads.
Rule normed() {
  Rule r;
  const Value m = r.mix(r.input("m"), 0.9, r.gradient);
  const Value sum = r.one(sum_op, {r.one(square_op, {m})}, {{"axes", std::vector<int64_t>{0}}});
  const Value norm = r.one(sqrt_op, {r.affine(sum, 1.0 / count)});
  const Value large = r.one(greater_op, {norm, r.lr});
  const Value scaled = r.one(where_op, {large, r.one(div_op, {m, norm}), m});
  r.result("m", m);
  r.result("p", r.one(sub_op, {r.p, r.one(mul_op, {r.lr, scaled})}));
  return r;
}

Tensors inputs_of(const Graph& graph) {
  Tensors given;
  int64_t seed = 1;
  for (const auto& [name, value] : graph.inputs) {
    const Desc& desc = graph.desc(value);
    HostTensor floats = ramp(desc.shape, ++seed), tensor(desc);
    if (name == "v.scales" || name == "v" || name == "lr" || name == "step")
      for (float& v : floats.as<float>()) v = v * v + 0.25f;
    if (desc.dtype == DType::u8)
      for (size_t i = 0; i < floats.as<float>().size(); ++i) tensor.as<uint8_t>()[i] = static_cast<uint8_t>(7 * i);
    else if (desc.dtype == DType::i32)
      tensor.as<int32_t>()[0] = 11;
    else
      convert(DType::f32, floats.data.data(), desc.dtype, tensor.data.data(), desc.shape.numel());
    given[name] = std::move(tensor);
  }
  return given;
}

void expect_same_results(const Graph& plain, const Graph& fused) {
  Device device(tested_device());
  const Tensors given = inputs_of(plain), want = run_graph(device, plain, given), got = run_graph(device, fused, given);
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, tensor] : want) {
    EXPECT_EQ(got.at(name).desc, tensor.desc) << name;
    EXPECT_EQ(got.at(name).data, tensor.data) << name;
  }
}

// Sums on a GPU have another order within a program.
void expect_near_results(const Graph& plain, const Graph& fused) {
  Device device(tested_device());
  const Tensors given = inputs_of(plain), want = run_graph(device, plain, given), got = run_graph(device, fused, given);
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, tensor] : want) {
    ASSERT_EQ(got.at(name).desc, tensor.desc) << name;
    if (tensor.desc.dtype != DType::f32)
      EXPECT_EQ(got.at(name).data, tensor.data) << name;
    else
      EXPECT_LE(golden::relative_error(got.at(name).as<float>(), tensor.as<float>()), 1e-6) << name;
  }
}

struct Expected {
  const char* name;
  Rule (*rule)();
  size_t nodes;
  int64_t programs;
  bool reduces;
};

class FusePointwise : public testing::TestWithParam<Expected> {};

TEST_P(FusePointwise, KeepsBitsInFewLaunches) {
  const Rule plain = GetParam().rule();
  Rule fused = GetParam().rule();
  fuse_pointwise(fused.g, fused.replaces);
  EXPECT_EQ(fused.g.nodes.size(), GetParam().nodes) << "of " << plain.g.nodes.size();
  EXPECT_EQ(count_nodes(fused.g, pointwise_op), GetParam().programs);
  EXPECT_LT(fused.g.nodes.size(), plain.g.nodes.size());
  GetParam().reduces ? expect_near_results(plain.g, fused.g) : expect_same_results(plain.g, fused.g);
}

// Whatever a rule writes over its input stands at the input's place of the op, which then says so.
TEST_P(FusePointwise, ResultsStandAtThePlaceOfWhatTheyReplace) {
  Rule fused = GetParam().rule();
  fuse_pointwise(fused.g, fused.replaces);
  size_t found = 0;
  for (const Node& node : fused.g.nodes) {
    if (node.op != &pointwise_op) continue;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const auto over = fused.replaces.find(node.outputs[i]);
      if (over == fused.replaces.end()) continue;
      EXPECT_EQ(node.inputs.at(node.op->in_place.at(i)), over->second);
      ++found;
    }
  }
  EXPECT_EQ(found, fused.replaces.size());
}

// normed: m with the sum of its square, and the rest, whose norm is computed inside.
INSTANTIATE_TEST_SUITE_P(Rules, FusePointwise,
                         testing::Values(Expected{"adamw", adamw, 1, 1, false},
                                         Expected{"adamw8bit", adamw8bit, 1, 1, false},
                                         Expected{"lion", lion, 1, 1, false}, Expected{"normed", normed, 2, 2, true}),
                         [](const auto& info) { return info.param.name; });

// A value that a program reads again after a reduction of it: the two parts must stay two.
TEST(FusePointwiseLimits, AWayOutAndBackIsNoProgram) {
  Rule r;
  const Value a = r.one(abs_op, {r.p});
  const Value mean = r.one(mean_op, {a}, {{"axes", std::vector<int64_t>{0}}});
  r.g.outputs["y"] = r.one(sub_op, {r.affine(a, 2), mean});
  Rule fused = r;
  fuse_pointwise(fused.g);
  EXPECT_EQ(fused.g.nodes.size(), 2u);
  EXPECT_EQ(count_nodes(fused.g, pointwise_op), 2);
  expect_near_results(r.g, fused.g);
}

const std::vector<int64_t> whole{0};

// What a reduction is made of is not stored where reading its operands again costs less, and is where it does not.
TEST(FusePointwiseLimits, ComputesAgainWhatReadsFewerBytes) {
  for (const bool costly : {false, true}) {
    SCOPED_TRACE(costly);
    Rule r;
    Value x = r.one(mul_op, {r.gradient, r.affine(r.p, 2, 1)});
    if (costly) x = r.one(add_op, {x, r.input("m")});
    const Value mean = r.one(mean_op, {r.one(square_op, {x})}, {{"axes", whole}});
    r.g.outputs["y"] = r.one(div_op, {x, r.affine(mean, 1, 1)});
    Rule fused = r;
    fuse_pointwise(fused.g);
    ASSERT_EQ(fused.g.nodes.size(), 2u);
    EXPECT_EQ(fused.g.nodes[0].outputs.size(), costly ? 2u : 1u);
    EXPECT_EQ(std::ranges::find(fused.g.nodes[1].inputs, r.p) == fused.g.nodes[1].inputs.end(), costly);
    expect_near_results(r.g, fused.g);
  }
}

// A result that is stored over what a later program reads again belongs to that program.
TEST(FusePointwiseLimits, WritesOverAnInputWhereItIsReadLast) {
  Rule r;
  const auto as = [&](Value v, int64_t dtype) { return r.one(cast_op, {v}, {{"dtype", dtype}}); };
  const Value now = as(r.one(greater_op, {r.gradient, r.lr}), LH_F32), before = as(r.input("large", DType::u8), LH_F32);
  const Value rate = r.one(where_op, {r.one(equal_op, {now, before}), r.gradient, r.affine(r.gradient, 0.5)});
  r.result("large", as(now, LH_U8));
  const Value most = r.one(amax_op, {rate}, {{"axes", whole}});
  r.result("p", r.one(sub_op, {r.p, r.one(div_op, {rate, most})}));
  Rule fused = r;
  fuse_pointwise(fused.g, fused.replaces);
  ASSERT_EQ(fused.g.nodes.size(), 2u);
  EXPECT_EQ(fused.g.nodes[0].outputs.size(), 1u);  // the largest
  EXPECT_EQ(fused.g.nodes[1].outputs.size(), 2u);
  expect_near_results(r.g, fused.g);
}

// Means over rows and columns of one tensor, and over all of another, are made in one reading of both.
TEST(FusePointwiseLimits, ReductionsOfOneShapeShareAProgram) {
  Rule r;
  const Value x = r.g.add_input("x", {DType::f32, {3, 31, 33}}), y = r.g.add_input("y", {DType::f32, {3, 31, 33}});
  const Value square = r.affine(r.one(square_op, {x}), 1, 1e-3);
  const auto mean = [&](Value v, std::vector<int64_t> axes) {
    return r.one(mean_op, {v}, {{"axes", std::move(axes)}});
  };
  r.g.outputs["row"] = mean(square, {2});
  r.g.outputs["column"] = mean(square, {1});
  r.g.outputs["whole"] = mean(r.one(square_op, {y}), {1, 2});
  Rule fused = r;
  fuse_pointwise(fused.g);
  EXPECT_EQ(fused.g.nodes.size(), 1u);
  expect_near_results(r.g, fused.g);
}

// Results are rounded where the ops store them; integers that a cast makes are read from memory.
TEST(FusePointwiseLimits, StorageTypesAreKept) {
  Rule r;
  const Value half = r.one(cast_op, {r.p}, {{"dtype", int64_t{LH_BF16}}});
  const Value twice = r.one(mul_op, {r.affine(half, 1.3), r.gradient});
  const Value whole = r.one(cast_op, {r.affine(twice, 40)}, {{"dtype", int64_t{LH_I32}}});
  const Value odd = r.one(add_op, {whole, whole});  // int32 arithmetic: outside
  const Value back = r.one(cast_op, {odd}, {{"dtype", int64_t{LH_F32}}});
  const Value flag = r.one(less_op, {back, r.gradient});
  r.g.outputs["y"] = r.one(where_op, {flag, r.affine(back, 0.5), twice});
  r.g.outputs["flag"] = r.one(cast_op, {flag}, {{"dtype", int64_t{LH_U8}}});
  Rule fused = r;
  fuse_pointwise(fused.g);
  EXPECT_EQ(count_nodes(fused.g, add_op), 1);
  EXPECT_EQ(count_nodes(fused.g, pointwise_op), 2);
  EXPECT_EQ(fused.g.nodes.size(), 4u);  // a cast between integers is outside, too
  expect_same_results(r.g, fused.g);
}

// Stacks [N, rows, columns] with a factor for each row and each column.
TEST(FusePointwiseLimits, RowsAndColumnsAreRepeated) {
  Rule r;
  const Value x = r.g.add_input("x", {DType::f32, {3, 31, 33}}), row = r.g.add_input("row", {DType::f32, {3, 31, 1}});
  const Value column = r.g.add_input("column", {DType::f32, {3, 1, 33}}),
              each = r.g.add_input("each", {DType::f32, {3, 1, 1}});
  const Value outer = r.one(mul_op, {r.affine(row, 2, 1), column});
  r.g.outputs["y"] = r.one(add_op, {r.one(mul_op, {outer, x}), r.one(mul_op, {each, r.lr})});
  Rule fused = r;
  fuse_pointwise(fused.g);
  EXPECT_EQ(count_nodes(fused.g, pointwise_op), 1);
  expect_same_results(r.g, fused.g);
}

TEST(FusePointwiseLimits, ALongRuleBecomesSeveralPrograms) {
  Rule r;
  Value y = r.p;
  for (int i = 0; i < 150; ++i) y = i % 2 == 0 ? r.one(add_op, {y, r.gradient}) : r.affine(y, 0.5, 0.25);
  r.g.outputs["y"] = y;
  Rule fused = r;
  fuse_pointwise(fused.g);
  EXPECT_EQ(fused.g.nodes.size(), 3u);  // of 64, 64 and 22 instructions
  expect_same_results(r.g, fused.g);
}

}  // namespace
}  // namespace lh::fuse_pointwise_test
