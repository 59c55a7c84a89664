// The graph and its passes, up to the memory plan: errors that a plugin author reads, gradients of shared and broadcast
// values, LoRA adapters, pruning.
#include <gmock/gmock.h>

#include "graph/print.h"
#include "ops/ops.h"
#include "passes/adapt.h"
#include "passes/differentiate.h"
#include "passes/layout.h"
#include "passes/prune.h"
#include "plugin/services.h"
#include "support/device.h"
#include "support/graph_run.h"
#include "support/io_files.h"

namespace lh::graph_test {
namespace {

using namespace test;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A graph under construction through the C ABI, over a checkpoint with one tensor.
struct Building {
  std::map<std::string, Desc> weights{{"w.weight", {DType::f16, {4, 8}}}};
  PluginHost host{{&host_api()}, "test", {}};
  Graph graph{DType::bf16};
  ModelHandle model = open_context(host, weights);
  GraphHandle opened = open_graph(host, graph, model.get());
  GraphContext& handle = *opened;
  const lh_host_api& api = host_api();

  Building() { handle.gate.open(); }
  ~Building() { handle.gate.close(); }
  std::string error() const { return handle.error ? handle.error->what() : ""; }
  static lh_desc desc(std::initializer_list<int64_t> dims, lh_dtype dtype = LH_FLOAT) {
    lh_desc d{dtype, static_cast<uint32_t>(dims.size()), {}};
    std::copy(dims.begin(), dims.end(), d.dims);
    return d;
  }
  lh_value input(const char* name, std::initializer_list<int64_t> dims) {
    const lh_desc d = desc(dims);
    return api.input(&handle, name, &d);
  }
  lh_status op(const char* name, std::vector<lh_value> in, const std::vector<lh_attr>& attrs = {},
               uint32_t results = 1) {
    lh_value out[8] = {};
    return api.op(&handle, name, in.data(), static_cast<uint32_t>(in.size()), attrs.data(),
                  static_cast<uint32_t>(attrs.size()), out, results);
  }
  static lh_attr integer(const char* name, int64_t value) {
    lh_attr a{name, LH_ATTR_I64, 1, {}};
    a.v.i = value;
    return a;
  }
  static lh_attr real(const char* name, double value) {
    lh_attr a{name, LH_ATTR_F64, 1, {}};
    a.v.f = value;
    return a;
  }
};

TEST(Graph, ShapeRuleErrorsNameOpScopeAndShapes) {
  Building b;
  const lh_value x = b.input("x", {2, 7});
  b.api.scope(&b.handle, "denoiser", 0);
  b.api.scope(&b.handle, "blocks.3", LH_SCOPE_CHECKPOINT);
  EXPECT_EQ(b.op("linear/1", {x, b.api.param(&b.handle, "w.weight")}), LH_E_GRAPH);
  EXPECT_THAT(b.error(), AllOf(HasSubstr("linear/1"), HasSubstr("'denoiser/blocks.3'"), HasSubstr("[2, 7]"),
                               HasSubstr("w.weight"), HasSubstr("[4, 8]")));
}

TEST(Graph, WrongUseOfTheAbiIsAGraphError) {
  struct Row {
    std::function<void(Building&, lh_value)> use;
    std::vector<std::string> named;
  };
  const int64_t sizes[] = {1, 1};
  lh_attr list{"sizes", LH_ATTR_I64_LIST, 2, {}};
  list.v.is = sizes;
  const std::vector<Row> rows = {
      {[](Building& b, lh_value x) { b.op("frobnicate/1", {x}); }, {"frobnicate/1", "ABI"}},
      {[](Building& b, lh_value x) { b.op("silu/1", {x}, {Building::real("colour", 1)}); }, {"silu/1", "'colour'"}},
      {[](Building& b, lh_value x) { b.op("layer_norm/1", {x}); }, {"layer_norm/1", "'eps'"}},
      {[](Building& b, lh_value x) { b.op("slice/1", {x}, {Building::real("axis", 1)}); }, {"slice/1", "'axis'"}},
      {[](Building& b, lh_value x) {
         b.op("silu/1", {x, x});
       },
       {"silu/1", "1", "2"}},
      {[](Building& b, lh_value x) { b.op("silu/1", {x}, {}, 2); }, {"silu/1", "2"}},
      {[&](Building& b, lh_value x) {
         b.op("split/1", {x}, {Building::integer("axis", 0), list}, 3);
       },
       {"split/1", "2", "3"}},
      {[](Building& b, lh_value) { b.op("silu/1", {{77}}); }, {"77"}},
      {[](Building& b, lh_value) { b.op("silu/1", {{0}}); }, {"silu/1", "input 0"}},
      {[](Building& b, lh_value) { b.api.param(&b.handle, "absent.weight"); }, {"'absent.weight'"}},
      {[](Building& b, lh_value) { b.input("x", {1}); }, {"'x'", "twice"}},
      {[](Building& b, lh_value) {
         b.input("negative", {2, -1});
       },
       {"negative"}},
      {[](Building& b, lh_value) { b.api.output(&b.handle, "y", {0}); }, {"'y'"}},
      {[](Building& b, lh_value) { b.api.scope(&b.handle, nullptr, 0); }, {"scope"}},
      {[](Building& b, lh_value) {
         lh_desc d = Building::desc({1});
         d.rank = LH_MAX_RANK + 1;
         b.api.input(&b.handle, "deep", &d);
       },
       {"rank 9", "8"}},
      {[](Building& b, lh_value) {
         const lh_desc d = Building::desc({1}, 55);
         b.api.input(&b.handle, "odd", &d);
       },
       {"dtype 55"}},
  };
  for (size_t i = 0; i < rows.size(); ++i) {
    SCOPED_TRACE(i);
    Building b;
    const lh_value x = b.input("x", {2, 8});
    rows[i].use(b, x);
    const std::string first = b.error();
    for (const std::string& word : rows[i].named) EXPECT_THAT(first, HasSubstr(word));
    // Sticky: later calls fail, add nothing, and keep the first text.
    EXPECT_EQ(b.op("silu/1", {x}), LH_E_GRAPH);
    EXPECT_EQ(b.op("another/1", {x}), LH_E_GRAPH);
    EXPECT_EQ(b.input("later", {1}).id, 0u);
    EXPECT_EQ(b.error(), first);
    EXPECT_THAT(b.graph.nodes, IsEmpty());
  }
}

TEST(Graph, StringsAreCopiedBeforeTheCallReturns) {
  Building b;
  char name[] = "x", mode[] = "erf", scope[] = "blocks.0", output[] = "y";
  b.api.scope(&b.handle, scope, 0);
  const lh_value x = b.input(name, {3});
  lh_attr attr{"mode", LH_ATTR_STRING, 1, {}};
  attr.v.s = mode;
  EXPECT_EQ(b.op("gelu/1", {x}, {attr}), LH_OK);
  b.api.output(&b.handle, output, x);
  name[0] = mode[0] = scope[0] = output[0] = '!';
  EXPECT_TRUE(b.graph.inputs.contains("x") && b.graph.outputs.contains("y"));
  EXPECT_EQ(b.graph.nodes.at(0).attrs.s("mode"), "erf");
  EXPECT_THAT(print(b.graph), AllOf(HasSubstr("gelu/1"), HasSubstr("blocks.0")));
}

HostTensor one() { return floats({1}, {1}); }

// loss = sum of weight * y over everything; the gradient of y is then the weight.
Value loss_of(Graph& g, Value y, const HostTensor& weight) {
  const Value product = g.add(mul_op, {y, g.add_constant(weight)}, {}, 0)[0];
  std::vector<int64_t> axes(static_cast<size_t>(g.desc(product).shape.rank()));
  for (size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<int64_t>(i);
  const Value sum = g.add(sum_op, {product}, {{"axes", axes}}, 0)[0];
  return g.add(reshape_op, {sum}, {{"shape", std::vector<int64_t>{1}}}, 0)[0];
}

TEST(Differentiate, AddsUpAValueThatIsUsedTwice) {
  Device device(tested_device());
  Graph g(DType::f32);
  const Value x = g.add_input("x", {DType::f32, {5}});
  const Value square = g.add(mul_op, {x, x}, {}, 0)[0];
  const Value y = g.add(add_op, {square, x}, {}, 0)[0];
  const HostTensor weight = ramp({5}, 1), at = ramp({5}, 2);
  g.outputs["dx"] = differentiate(g, loss_of(g, y, weight), g.add_constant(one()), {x}).at(x);
  const HostTensor dx = run_graph(device, g, {{"x", at}}).at("dx");
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(dx.as<float>()[i], weight.as<float>()[i] * (2 * at.as<float>()[i] + 1));
}

// Layers with adapters add what the others of their input have left to their own gradient: no op of its own does. A
// reader in between, which changes nothing, makes that of the reference graph.
TEST(Differentiate, LayersOfOneInputAddUpItsGradient) {
  Device device(tested_device());
  constexpr int64_t rows = 3, width = 8, rank = 2, layers = 3;
  Tensors given{{"x", ramp({rows, width}, 1)}};
  const auto gradient = [&](bool apart, int64_t& adds) {
    Graph g(DType::f32);
    const Value x = g.add_input("x", {DType::f32, {rows, width}});
    Value y;
    for (int64_t i = 0; i < layers; ++i) {
      const auto tensor = [&](const std::string& name, Shape shape) {
        given[name + std::to_string(i)] = ramp(shape, i + 2);
        return g.add_input(name + std::to_string(i), {DType::f32, std::move(shape)});
      };
      const Value in = apart ? g.add(affine_op, {x}, {{"scale", 1.0}, {"shift", 0.0}}, 0)[0] : x;
      const Value weight = tensor("weight", {width, width}), down = tensor("down", {rank, width});
      const Value one_of =
          g.add(lora_op, {in, weight, {}, down, tensor("up", {width, rank}), {}, {}}, {{"scale", 0.5}}, 0)[0];
      y = y ? g.add(add_op, {y, one_of}, {}, 0)[0] : one_of;
    }
    const size_t forward = g.nodes.size();
    g.outputs["dx"] = differentiate(g, loss_of(g, y, ramp({rows, width}, 9)), g.add_constant(one()), {x}).at(x);
    adds = std::count_if(g.nodes.begin() + static_cast<int64_t>(forward), g.nodes.end(),
                         [](const Node& node) { return node.op == &add_op; });
    return run_graph(device, g, given).at("dx");
  };
  int64_t adds = 0, adds_apart = 0;
  const HostTensor dx = gradient(false, adds), apart = gradient(true, adds_apart);
  EXPECT_EQ(adds, 0);
  EXPECT_EQ(adds_apart, layers - 1);
  for (size_t i = 0; i < static_cast<size_t>(rows * width); ++i)  // sums of about 30 terms of order 1 in float32
    EXPECT_NEAR(dx.as<float>()[i], apart.as<float>()[i], 1e-5);
}

TEST(Differentiate, SumsOverBroadcastAxes) {
  Device device(tested_device());
  Graph g(DType::f32);
  const Value a = g.add_input("a", {DType::f32, {3, 1}}), b = g.add_input("b", {DType::f32, {2, 1, 4}});
  const Value y = g.add(mul_op, {a, b}, {}, 0)[0];
  ASSERT_EQ(g.desc(y).shape, (Shape{2, 3, 4}));
  const HostTensor weight = ramp({2, 3, 4}, 1);
  for (const auto& [value, gradient] : differentiate(g, loss_of(g, y, weight), g.add_constant(one()), {a, b})) {
    EXPECT_EQ(g.desc(gradient), g.desc(value));
    g.outputs["d" + g.info(value).name] = gradient;
  }
  const Tensors given{{"a", ramp({3, 1}, 2)}, {"b", ramp({2, 1, 4}, 3)}};
  const Tensors got = run_graph(device, g, given);
  std::vector<float> da(3), db(8);
  for (size_t i = 0; i < 2; ++i)
    for (size_t j = 0; j < 3; ++j)
      for (size_t k = 0; k < 4; ++k) {
        const float w = weight.as<float>()[(i * 3 + j) * 4 + k];
        da[j] += w * given.at("b").as<float>()[i * 4 + k];
        db[i * 4 + k] += w * given.at("a").as<float>()[j];
      }
  EXPECT_EQ(got.at("da").data, floats({3}, da).data);  // exact: products and sums of small binary fractions
  EXPECT_EQ(got.at("db").data, floats({8}, db).data);
}

TEST(Differentiate, FrozenWeightsCostNothing) {
  Graph g(DType::f32);
  const Value x = g.add_input("x", {DType::f32, {3, 5}}), trained = g.add_param("t", {DType::f32, {5}});
  const Value w = g.add_param("w", {DType::f32, {7, 5}});
  const Value before = g.add(linear_op, {x, g.add_param("v", {DType::f32, {5, 5}})}, {}, 0)[0];
  const Value y = g.add(linear_op, {g.add(mul_op, {before, trained}, {}, 0)[0], w}, {}, 0)[0];
  const size_t forward = g.nodes.size();
  differentiate(g, loss_of(g, y, ramp({3, 7}, 1)), g.add_constant(one()), {trained});
  size_t linears = 0;
  for (size_t n = forward; n < g.nodes.size(); ++n)
    if (g.nodes[n].op == &linear_backward_op) {
      ++linears;
      EXPECT_EQ(g.nodes[n].outputs.size(), 1u) << "the frozen weight has a gradient";
    }
  EXPECT_EQ(linears, 1u) << "the first linear has no trained tensor behind it";
}

TEST(Differentiate, RefusalsNameEveryOpOnThePath) {
  Graph g(DType::f32);
  const Value table = g.add_param("table", {DType::f32, {9, 5}}), ids = g.add_input("ids", {DType::i32, {3}});
  g.scopes.push_back({"text/blocks.1", 0, false});
  const Value a = g.add(embedding_op, {ids, table}, {}, 1)[0], b = g.add(embedding_op, {ids, table}, {}, 0)[0];
  const Value loss = loss_of(g, g.add(add_op, {a, b}, {}, 0)[0], ramp({3, 5}, 1)), seed = g.add_constant(one());
  const std::string text = error_of([&] { differentiate(g, loss, seed, {table}); });
  EXPECT_THAT(text, AllOf(HasSubstr("embedding/1 in 'text/blocks.1'"), HasSubstr("embedding/1 in ''"),
                          HasSubstr("table float32 [9, 5]")));
}

// An op that has a rule, but not for this input.
TEST(Differentiate, InputsWithoutARuleAreRefusedByName) {
  Graph g(DType::f32);
  const Value target = g.add_param("target", {DType::f32, {3, 5}}), x = g.add_input("x", {DType::f32, {3, 5}});
  const Value loss = g.add(mse_op, {x, target}, {}, 0)[0], seed = g.add_constant(one());
  EXPECT_THAT(error_of([&] { differentiate(g, loss, seed, {target}); }),
              AllOf(HasSubstr("mse/1"), HasSubstr("target")));
}

// Behind a detach any op may stand: no gradient gets there.
// A trained value may be compared: what the comparison gives is an integer, which no gradient passes.
TEST(Differentiate, GoesAroundIntegers) {
  Device device(tested_device());
  Graph g(DType::f32);
  const Value x = g.add_input("x", {DType::f32, {5}}), slope = g.add_constant(floats({1}, {0.25f}));
  const Value zero = g.add_constant(floats({1}, {0}));
  const Value leaky = g.add(mul_op, {x, slope}, {}, 0)[0], positive = g.add(greater_op, {x, zero}, {}, 0)[0];
  const Value y = g.add(where_op, {positive, x, leaky}, {}, 0)[0];
  const HostTensor weight = ramp({5}, 1), at = floats({5}, {-2, -1, 0.5, 1, 3});
  g.outputs["dx"] = differentiate(g, loss_of(g, y, weight), g.add_constant(one()), {x}).at(x);
  const HostTensor dx = run_graph(device, g, {{"x", at}}).at("dx");
  for (size_t i = 0; i < 5; ++i)
    EXPECT_EQ(dx.as<float>()[i], weight.as<float>()[i] * (at.as<float>()[i] > 0 ? 1 : 0.25f));
}

TEST(Differentiate, StopsAtADetach) {
  Graph g(DType::f32);
  const Value table = g.add_param("table", {DType::f32, {9, 5}}), ids = g.add_input("ids", {DType::i32, {3}});
  const Value rows = g.add(embedding_op, {ids, table}, {}, 0)[0];
  const Value loss = loss_of(g, g.add(detach_op, {rows}, {}, 0)[0], ramp({3, 5}, 1));
  EXPECT_FALSE(differentiate(g, loss, g.add_constant(one()), {table}).at(table));
}

// Two linears, the first one used twice: y = W1 (W0 a), z = W0 b.
struct TwoLinears {
  static constexpr int64_t rows = 3, width = 8, rank = 2;
  Graph graph{DType::f32};
  AdapterSpec spec{rank, 6, 0, 5};
  std::vector<AdaptedModule> modules;

  TwoLinears(double dropout, bool training) {
    spec.dropout = dropout;
    const Value a = graph.add_input("a", {DType::f32, {rows, width}}),
                b = graph.add_input("b", {DType::f32, {rows, width}});
    const Value w0 = graph.add_param("m.0.weight", {DType::f32, {width, width}});
    const Value w1 = graph.add_param("m.1.weight", {DType::f32, {width, width}});
    const Value bias = graph.add_param("m.0.bias", {DType::f32, {width}});
    const Value h = graph.add(linear_op, {a, w0, bias}, {}, 0)[0];
    graph.outputs["h"] = h;
    graph.outputs["z"] = graph.add(linear_op, {b, w0, bias}, {}, 0)[0];
    graph.outputs["y"] = graph.add(linear_op, {h, w1}, {}, 0)[0];
    modules = adapt(
        graph, [&](const std::string&) { return &spec; }, training);
    for (const Node& node : graph.nodes)
      if (node.op == &dropout_mask_op) graph.outputs["mask" + std::to_string(masks++)] = node.outputs[0];
  }
  int masks = 0;

  static Tensors values(int32_t step = 0) {
    Tensors v{{"a", ramp({rows, width}, 1)},           {"b", ramp({rows, width}, 2)},
              {"m.0.weight", ramp({width, width}, 3)}, {"m.1.weight", ramp({width, width}, 4)},
              {"m.0.bias", ramp({width}, 5)},          {"step", HostTensor::from_ints({1}, std::span(&step, 1))}};
    for (const char* m : {"m.0", "m.1"}) {
      v[down_name(m)] = ramp({rank, width}, 6 + m[2]);
      v[up_name(m)] = ramp({width, rank}, 9 + m[2]);
    }
    return v;
  }
};

// x W^T in float64, W [out, in].
std::vector<double> product(std::span<const double> x, const HostTensor& w) {
  const auto out = static_cast<size_t>(w.desc.shape[0]), in = static_cast<size_t>(w.desc.shape[1]);
  std::vector<double> y;
  for (size_t r = 0; r < x.size() / in; ++r)
    for (size_t o = 0; o < out; ++o) {
      double sum = 0;
      for (size_t i = 0; i < in; ++i) sum += x[r * in + i] * double{w.as<float>()[o * in + i]};
      y.push_back(sum);
    }
  return y;
}

TEST(Adapt, AddsScaledUpDown) {
  Device device(tested_device());
  const TwoLinears t(0, true);
  const Tensors given = TwoLinears::values();
  const Tensors got = run_graph(device, t.graph, given);
  for (const auto& [x, y] : {std::pair{"a", "h"}, std::pair{"b", "z"}}) {
    const auto floats = given.at(x).as<float>();
    const std::vector<double> in(floats.begin(), floats.end()), base = product(in, given.at("m.0.weight"));
    const std::vector<double> branch = product(product(in, given.at(down_name("m.0"))), given.at(up_name("m.0")));
    for (size_t i = 0; i < base.size(); ++i) {
      const double want = base[i] + given.at("m.0.bias").as<float>()[i % TwoLinears::width] + 6.0 / 2 * branch[i];
      EXPECT_NEAR(got.at(y).as<float>()[i], want, 1e-5);  // sums of about 20 terms of order 1 in float32
    }
  }
}

TEST(Adapt, ASharedModuleIsOneAdapter) {
  const TwoLinears t(0, true);
  ASSERT_EQ(t.modules.size(), 2u);
  EXPECT_EQ(t.modules[0].name, "m.0");
  EXPECT_EQ(t.modules[1].name, "m.1");
  EXPECT_EQ(t.modules[0].alpha, 6);
  EXPECT_EQ(t.graph.desc(t.modules[0].value(down_key)), (Desc{DType::f32, {2, 8}}));
  EXPECT_EQ(t.graph.desc(t.modules[0].value(up_key)), (Desc{DType::f32, {8, 2}}));
  std::vector<Value> downs;
  for (const Node& node : t.graph.nodes)
    if (node.op == &lora_op) downs.push_back(node.inputs[3]);
  EXPECT_THAT(downs,
              ElementsAre(t.modules[0].value(down_key), t.modules[0].value(down_key), t.modules[1].value(down_key)));
}

// The gradient of a shared module's adapter is the sum over its uses.
TEST(Adapt, ASharedModuleGetsBothGradients) {
  Device device(tested_device());
  const auto gradient = [&](bool first, bool second) {
    TwoLinears t(0, true);
    Graph& g = t.graph;
    const HostTensor w = ramp({3, 8}, 1), zero(Desc{DType::f32, {3, 8}});
    const Value l1 = loss_of(g, g.outputs.at("h"), first ? w : zero),
                l2 = loss_of(g, g.outputs.at("z"), second ? w : zero);
    const Value loss = g.add(add_op, {l1, l2}, {}, 0)[0], up = t.modules[0].value(up_key);
    g.outputs = {{"g", differentiate(g, loss, g.add_constant(one()), {up}).at(up)}};
    prune(g);
    return run_graph(device, g, TwoLinears::values()).at("g");
  };
  const HostTensor a = gradient(true, false), b = gradient(false, true), both = gradient(true, true);
  for (size_t i = 0; i < both.as<float>().size(); ++i)
    EXPECT_NEAR(both.as<float>()[i], a.as<float>()[i] + b.as<float>()[i], 1e-5);
}

TEST(Adapt, DropoutMasksAreAFunctionOfTheStep) {
  Device device(tested_device());
  const TwoLinears t(0.25, true);
  ASSERT_EQ(t.masks, 3);
  ASSERT_TRUE(t.graph.inputs.contains("step"));
  const Tensors first = run_graph(device, t.graph, TwoLinears::values(7));
  const Tensors again = run_graph(device, t.graph, TwoLinears::values(7));
  const Tensors later = run_graph(device, t.graph, TwoLinears::values(8));
  for (const auto& [name, tensor] : first) EXPECT_EQ(tensor.data, again.at(name).data) << name;
  EXPECT_NE(first.at("y").data, later.at("y").data);
  std::string patterns[3];
  for (int m = 0; m < 3; ++m)
    for (const Tensors* run : {&first, &later}) {
      const HostTensor& mask = run->at("mask" + std::to_string(m));
      EXPECT_EQ(mask.desc.shape, (Shape{TwoLinears::rows, TwoLinears::rank}));
      for (const float v : mask.as<float>()) {
        EXPECT_TRUE(v == 0 || v == 1 / 0.75f) << v;
        patterns[m] += v == 0 ? '.' : 'x';
      }
    }
  EXPECT_NE(patterns[0], patterns[1]) << "two uses of a module share a mask";
  EXPECT_NE(patterns[1], patterns[2]) << "two modules share a mask";
}

TEST(Adapt, SamplingHasNoDropout) {
  Device device(tested_device());
  const TwoLinears sampling(0.25, false), plain(0, true);
  EXPECT_EQ(sampling.masks, 0);
  EXPECT_FALSE(sampling.graph.inputs.contains("step"));
  const Tensors given = TwoLinears::values();
  EXPECT_EQ(run_graph(device, sampling.graph, given).at("y").data, run_graph(device, plain.graph, given).at("y").data);
}

TEST(Adapt, LeavesUnselectedLinearsAlone) {
  TwoLinears t(0, true);
  Graph g(DType::f32);
  const Value x = g.add_input("x", {DType::f32, {2, 4}});
  g.add(linear_op, {x, g.add_param("chosen.weight", {DType::f32, {4, 4}})}, {}, 0);
  g.add(linear_op, {x, g.add_param("other.weight", {DType::f32, {4, 4}})}, {}, 0);
  g.add(linear_op, {x, g.add_input("weight", {DType::f32, {4, 4}})}, {}, 0);  // no parameter: it has no name
  const auto made = adapt(
      g, [&](const std::string& m) { return m == "chosen" ? &t.spec : nullptr; }, true);
  ASSERT_EQ(made.size(), 1u);
  std::vector<const OpDef*> ops;
  for (const Node& node : g.nodes) ops.push_back(node.op);
  EXPECT_THAT(ops, ElementsAre(&lora_op, &linear_op, &linear_op));
}

// A convolution with its adapter gives what one with the merged weight W + alpha / rank * up down gives.
TEST(Adapt, AConvolutionEqualsItsMergedWeight) {
  struct Case {
    int64_t kernel, stride, pad;
  };
  constexpr int64_t in = 3, out = 4, rank = 2;
  const AdapterSpec spec{rank, 6, 0, 0};
  Device device(tested_device());
  for (const Case c : {Case{3, 1, 1}, Case{3, 2, 1}, Case{1, 1, 0}}) {
    const auto build = [&](bool adapted) {
      Graph g(DType::f32);
      const Value x = g.add_input("x", {DType::f32, {2, 5, 4, in}});
      const Value w = g.add_param("m.weight", {DType::f32, {out, in, c.kernel, c.kernel}});
      const Value b = g.add_param("m.bias", {DType::f32, {out}});
      const std::vector<int64_t> pad(4, c.pad);
      g.outputs["y"] = g.add(conv2d_op, {x, w, b}, {{"stride", c.stride}, {"pad", pad}, {"groups", int64_t{1}}}, 0)[0];
      if (adapted)
        adapt(
            g, [&](const std::string&) { return &spec; }, true);
      return g;
    };
    const HostTensor weight = ramp({out, in, c.kernel, c.kernel}, 1), down = ramp({rank, in, c.kernel, c.kernel}, 2),
                     up = ramp({out, rank, 1, 1}, 3);
    HostTensor merged = weight;
    const int64_t inner = in * c.kernel * c.kernel;
    for (int64_t o = 0; o < out; ++o)
      for (int64_t i = 0; i < inner; ++i)
        for (int64_t r = 0; r < rank; ++r)
          merged.as<float>()[static_cast<size_t>(o * inner + i)] +=
              3 * up.as<float>()[static_cast<size_t>(o * rank + r)] *
              down.as<float>()[static_cast<size_t>(r * inner + i)];
    Tensors given{{"x", ramp({2, 5, 4, in}, 4)},
                  {"m.bias", ramp({out}, 5)},
                  {"m.weight", nchw_to_nhwc(weight)},
                  {down_name("m"), nchw_to_nhwc(down)},
                  {up_name("m"), up}};
    const HostTensor got = run_graph(device, build(true), given).at("y");
    given["m.weight"] = nchw_to_nhwc(merged);
    // Two sums of at most 27 terms in float32.
    EXPECT_LT(relative_error(got, run_graph(device, build(false), given).at("y")), 27 * 6e-8) << "kernel " << c.kernel;
  }
}

Attrs window(int64_t pad) {
  return {{"stride", int64_t{1}}, {"pad", std::vector<int64_t>(4, pad)}, {"groups", int64_t{1}}};
}

TEST(Layout, AWeightThatOnlyConvolutionsReadIsStoredChannelsLast) {
  Graph g(DType::f32);
  const Value x = g.add_input("x", {DType::f32, {1, 4, 4, 3}}), w = g.add_param("w", {DType::f32, {3, 3, 3, 3}});
  const Value once = g.add(conv2d_op, {x, w, {}}, window(1), 0)[0];
  g.outputs["y"] = g.add(conv2d_op, {once, w, {}}, window(1), 0)[0];
  settle_layouts(g);
  EXPECT_TRUE(g.info(w).channels_last);
  EXPECT_EQ(g.nodes.size(), 2u);
}

// A weight with another reader keeps the order of its file, a computed one has it: both are permuted, once.
TEST(Layout, OtherWeightsArePermuted) {
  const HostTensor weight = ramp({4, 3, 3, 3}, 1), x = ramp({2, 5, 4, 3}, 2);
  Device device(tested_device());
  const auto build = [](bool computed, bool shared) {
    Graph g(DType::f32);
    const Value image = g.add_input("x", {DType::f32, {2, 5, 4, 3}});
    const Value w = g.add_param("m.weight", {DType::f32, {4, 3, 3, 3}});
    const Value used = computed ? g.add(affine_op, {w}, {{"scale", 1.0}, {"shift", 0.0}}, 0)[0] : w;
    const Value a = g.add(conv2d_op, {image, used, {}}, window(1), 0)[0];
    const Value b = g.add(conv2d_op, {image, used, {}}, window(1), 0)[0];
    g.outputs["y"] = g.add(add_op, {a, b}, {}, 0)[0];
    if (shared) g.outputs["weight"] = g.add(abs_op, {w}, {}, 0)[0];
    settle_layouts(g);
    settle_layouts(g);  // which changes nothing
    return g;
  };
  const HostTensor want =
      run_graph(device, build(false, false), {{"x", x}, {"m.weight", nchw_to_nhwc(weight)}}).at("y");
  for (const auto& [computed, shared] : {std::pair{true, false}, {false, true}, {true, true}}) {
    const Graph g = build(computed, shared);
    EXPECT_FALSE(g.info(g.params.at("m.weight")).channels_last);
    EXPECT_EQ(std::ranges::count(g.nodes, &to_channels_last_op, &Node::op), 1);
    const Tensors got = run_graph(device, g, {{"x", x}, {"m.weight", weight}});
    EXPECT_EQ(relative_error(got.at("y"), want), 0) << computed << shared;
  }
}

TEST(Layout, ASharedWeightHasItsAdapter) {
  const AdapterSpec spec{2, 6, 0, 0};
  Graph g(DType::f32);
  const Value x = g.add_input("x", {DType::f32, {2, 5, 4, 3}});
  const Value w = g.add_param("m.weight", {DType::f32, {4, 3, 3, 3}});
  g.outputs["y"] = g.add(conv2d_op, {x, w, {}}, window(1), 0)[0];
  g.outputs["weight"] = g.add(abs_op, {w}, {}, 0)[0];
  settle_layouts(g);
  const auto modules = adapt(
      g, [&](const std::string&) { return &spec; }, true);
  ASSERT_EQ(modules.size(), 1u);
  EXPECT_EQ(modules[0].name, "m");
  EXPECT_TRUE(g.info(modules[0].value(down_key)).channels_last);
}

TEST(Prune, DropsWhatNothingReads) {
  Graph g(DType::f32);
  const Value x = g.add_input("x", {DType::f32, {4}});
  const Value used = g.add(mul_op, {x, g.add_param("used", {DType::f32, {4}})}, {}, 0)[0];
  const Value unread = g.add(mul_op, {used, g.add_param("unread", {DType::f32, {4}})}, {}, 0)[0];
  g.add(silu_op, {unread}, {}, 0);
  const Value halves = g.add(split_op, {used}, {{"axis", int64_t{0}}, {"sizes", std::vector<int64_t>{1, 3}}}, 0)[1];
  g.outputs["y"] = halves;
  prune(g);
  std::vector<const OpDef*> ops;
  for (const Node& node : g.nodes) ops.push_back(node.op);
  EXPECT_THAT(ops, ElementsAre(&mul_op, &split_op));
  EXPECT_TRUE(g.params.contains("used"));
  EXPECT_FALSE(g.params.contains("unread"));
}

}  // namespace
}  // namespace lh::graph_test
