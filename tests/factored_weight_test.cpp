// Adapters that give a layer's weight are applied factor by factor where the weight is made of factors
// (passes/factored_weight.h): what the graph does then, and how exact it is. Against other packages:
// adapter_golden_test.cpp.
#include "passes/factored_weight.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/ops.h"
#include "passes/adapt.h"
#include "passes/differentiate.h"
#include "passes/prune.h"
#include "plugin/adapter.h"
#include "support/device.h"
#include "support/given_options.h"
#include "support/graph_run.h"
#include "support/model_files.h"
#include "support/paths.h"

namespace lh::test::factored_weight_test {
namespace {

constexpr int64_t rows = 24, in = 40, out = 48;

struct Kind {
  const char *adapter, *options;
  int64_t rank;
  bool factored;
  double rank_dropout = 0, module_dropout = 0;
};
void PrintTo(const Kind& kind, std::ostream* stream) {
  *stream << kind.adapter << kind.options << " of rank " << kind.rank;
}

const Kind kinds[] = {
    {"dora", "{}", 4, true},
    {"dora", "{wd_on_out: true}", 4, true},
    {"dora", "{detach_norm: true}", 4, true},
    {"dora", "{wd_on_out: true, detach_norm: true, rs_lora: true}", 3, true},
    {"dora", "{}", 4, true, 0.3},
    {"dora", "{wd_on_out: true, rank_dropout_scale: true}", 4, true, 0.3},
    {"dora", "{}", 4, true, 0, 0.5},
    {"dora", "{}", 20, false},  // 20 (48 + 40) products for 48 x 40
    {"loha", "{}", 3, true},
    {"loha", "{}", 3, true, 0.3},
    {"loha", "{weight_decompose: true}", 3, true},
    {"loha", "{weight_decompose: true, wd_on_out: true}", 4, true},
    {"loha", "{}", 5, false},  // a rank of 25
    {"lokr", "{weight_decompose: true}", 4, false},
    {"full", "{}", 4, false},
};

// A layer with an adapter, its mean square distance from a target, and the gradients of x and the trained tensors.
class Trained {
 public:
  Trained(const AdapterRule& rule, const Kind& kind, DType compute) : graph_(compute) {
    const Value x = graph_.add_input("x", {compute, {2, rows / 2, in}});
    const Value weight = graph_.add_param("m.weight", {compute, {out, in}});
    const Value bias = graph_.add_param("m.bias", {compute, {out}});
    graph_.outputs["y"] = graph_.add(linear_op, {x, weight, bias}, {}, 0)[0];
    const AdapterSpec spec{.rank = kind.rank,
                           .alpha = 2 * static_cast<double>(kind.rank),
                           .seed = 3,
                           .rank_dropout = kind.rank_dropout,
                           .module_dropout = kind.module_dropout,
                           .rule = &rule};
    modules_ = adapt(
        graph_, [&](const std::string&) { return &spec; }, true);
    prune(graph_);
    forward_ = graph_.nodes;
    add_gradients(x);
  }

  // As `Trained`, with the weight made whole and stored in the type of computation.
  struct Whole {};
  Trained(const AdapterRule& rule, const Kind& kind, DType compute, Whole) : graph_(compute) {
    const Value x = graph_.add_input("x", {compute, {2, rows / 2, in}});
    const AdapterLayer layer{
        .module = "m", .weight = {out, in}, .rank = kind.rank, .alpha = 2 * static_cast<double>(kind.rank)};
    AdapterRule::Values given{{"weight", cast(graph_.add_param("m.weight", {compute, {out, in}}), DType::f32)}};
    AdaptedModule module{.name = "m"};
    for (const AdapterTensorSpec& tensor : rule.tensors(layer)) {
      const Value v = graph_.add_param("m." + tensor.key, {DType::f32, tensor.shape});
      given[tensor.key] = v;
      module.tensors.push_back({v, tensor.key});
    }
    modules_ = {module};
    const auto inputs = std::exchange(graph_.inputs, {});
    const Value weight = rule.build_weight(graph_, layer, given, 0);
    graph_.inputs = inputs;
    graph_.outputs = {};
    const Value bias = graph_.add_param("m.bias", {compute, {out}});
    graph_.outputs["y"] = graph_.add(linear_op, {x, cast(weight, compute), bias}, {}, 0)[0];
    add_gradients(x);
  }

  const std::vector<Node>& forward() const { return forward_; }
  const Graph& graph() const { return graph_; }

  // Of tensors at random, the norms near those of the weight; all that the graph gives, in float32.
  Tensors run(Device& device) const {
    const int32_t step = 1;
    Tensors given{{"step", HostTensor::from_ints({1}, std::span(&step, 1))},
                  {"loss_scale", HostTensor::from_floats({1}, std::vector<float>{1})}};
    int64_t seed = 1;
    for (const char* name : {"x", "target", "m.weight", "m.bias"}) {
      const Value v = graph_.inputs.contains(name) ? graph_.inputs.at(name) : graph_.params.at(name);
      given[name] = converted(converted(ramp(graph_.desc(v).shape, seed++), DType::bf16), graph_.desc(v).dtype);
    }
    for (const AdaptedTensor& tensor : modules_[0].tensors) {
      const bool norm = tensor.key == "dora_scale";
      HostTensor t = ramp(graph_.desc(tensor.value).shape, seed++);
      for (float& v : t.as<float>()) v = norm ? 4 + v : v / 4;
      given["m." + tensor.key] = t;
    }
    Tensors got;
    for (auto& [name, tensor] : run_graph(device, graph_, given)) got[name] = converted(tensor, DType::f32);
    return got;
  }

 private:
  Value cast(Value v, DType dtype) {
    if (graph_.desc(v).dtype == dtype) return v;
    return graph_.add(cast_op, {v}, {{"dtype", static_cast<int64_t>(dtype)}}, 0)[0];
  }

  void add_gradients(Value x) {
    const Value y = graph_.outputs.at("y"), target = graph_.add_input("target", {DType::f32, graph_.desc(y).shape});
    const Value loss = graph_.add(mse_op, {y, target, {}}, {}, 0)[0];
    std::vector<Value> wanted{x};
    for (const AdaptedTensor& tensor : modules_[0].tensors) wanted.push_back(tensor.value);
    const Value loss_scale = graph_.add_input("loss_scale", {DType::f32, {1}});
    for (const auto& [value, gradient] : differentiate(graph_, loss, loss_scale, wanted))
      graph_.outputs["grad." + graph_.info(value).name] = gradient;
    prune(graph_);
  }

  Graph graph_;
  std::vector<AdaptedModule> modules_;
  std::vector<Node> forward_;
};

class FactoredWeights : public testing::TestWithParam<Kind> {
 protected:
  const Adapter rule{built_plugins(), GetParam().adapter, given_options(GetParam().options)};
};

// Nothing but the base weight, and its squares where norms of it are taken, has the size of the weight.
TEST_P(FactoredWeights, NoChangeOfTheWeightIsMade) {
  for (const DType compute : {DType::f32, DType::bf16}) {
    const Trained trained(rule, GetParam(), compute);
    const bool layer = std::ranges::any_of(trained.forward(), [](const Node& node) { return node.op == &lora_op; });
    EXPECT_EQ(layer, GetParam().factored);
    if (!GetParam().factored) continue;
    for (const Node& node : trained.graph().nodes)
      for (const Value v : node.outputs)
        EXPECT_TRUE(trained.graph().desc(v).shape != (Shape{out, in}) || node.op == &cast_op || node.op == &square_op)
            << trained.graph().describe(node);
  }
}

// Beside the weight made whole in the same type, whose change is rounded with it, errors are the smaller ones, up to
// some roundings of the type for where both are exact.
TEST_P(FactoredWeights, AreNoLessExactThanTheWholeWeight) {
  if (!GetParam().factored || GetParam().rank_dropout != 0 || GetParam().module_dropout != 0) return;
  Device device(tested_device());
  const Tensors want = Trained(rule, GetParam(), DType::f32, Trained::Whole{}).run(device);
  for (const DType compute : {DType::f32, DType::bf16, DType::f16}) {
    // Of float32 what the sums' other order leaves of the reference, which is float32 itself.
    const double step = compute == DType::f32 ? 0x1p-22 : compute == DType::bf16 ? 0x1p-9 : 0x1p-12;
    const Tensors got = Trained(rule, GetParam(), compute).run(device),
                  naive = Trained(rule, GetParam(), compute, Trained::Whole{}).run(device);
    ASSERT_EQ(got.size(), want.size());
    for (const auto& [name, value] : want)
      EXPECT_LE(relative_error(got.at(name), value), 2 * relative_error(naive.at(name), value) + 4 * step)
          << name << " in " << dtype_name(compute);
  }
}

INSTANTIATE_TEST_SUITE_P(All, FactoredWeights, testing::ValuesIn(kinds));

// A weight that the change takes away leaves no norm to divide by: a share of the weight's own stays.
TEST(FactoredWeight, NormsOfWhatIsTakenAwayStayAboveZero) {
  Graph graph(DType::f32);
  const auto add = [&](const OpDef& op, std::vector<Value> of, Attrs attrs = {}) {
    return graph.add(op, std::move(of), std::move(attrs), 0)[0];
  };
  const Value w = graph.add_input("weight", {DType::f32, {8, 8}});
  const Value up = graph.add_input("up", {DType::f32, {8, 1}}), down = graph.add_input("down", {DType::f32, {1, 8}});
  const Value change = add(matmul_op, {up, down}, {{"transpose_a", int64_t{0}}, {"transpose_b", int64_t{0}}});
  const Value moved = add(add_op, {w, change});
  const Value norm = add(sum_op, {add(square_op, {moved})}, {{"axes", std::vector<int64_t>{0}}});
  const Value result = add(mul_op, {moved, norm});
  const auto factored = factor_weight(graph, 0, result, {.weight = w, .computed = [&] { return w; }}, 0);
  ASSERT_TRUE(factored);
  graph.outputs["norm"] = factored->columns;
  prune(graph);
  const auto all = [](Shape shape, float value) {
    HostTensor t(Desc{DType::f32, std::move(shape)});
    std::ranges::fill(t.as<float>(), value);
    return t;
  };
  Device device(tested_device());
  const Tensors got =
      run_graph(device, graph, {{"weight", all({8, 8}, 1)}, {"up", all({8, 1}, -1)}, {"down", all({1, 8}, 1)}});
  for (const float v : got.at("norm").as<float>()) EXPECT_EQ(v, 8.0f / 1024);
}

}  // namespace
}  // namespace lh::test::factored_weight_test
