// Adapter plugins in the host: how adapters begin, what they drop, half precision, mistakes of authors and of users.
// What they compute: adapter_golden_test.cpp; whole runs: family_test.cpp.
#include "plugin/adapter.h"

#include <gmock/gmock.h>

#include <cmath>
#include <fstream>

#include "compile/adapter_selection.h"
#include "compile/adapters.h"
#include "compile/left_out.h"
#include "compile/norm_limit.h"
#include "config/load.h"
#include "ops/ops.h"
#include "passes/layout.h"
#include "support/device.h"
#include "support/given_options.h"
#include "support/golden.h"
#include "support/graph_run.h"
#include "support/model_files.h"
#include "support/paths.h"

namespace lh::test::adapter_test {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int64_t out = 12, in = 8;

// A layer "m" of its input "x" to "y", linear or 3x3, with an adapter.
struct Layer {
  Graph graph;
  std::vector<AdaptedModule> modules;

  Layer(const AdapterRule& rule, bool conv, DType compute = DType::f32, AdapterSpec spec = {.rank = 3, .alpha = 6},
        bool training = true)
      : graph(compute) {
    const Value x = graph.add_input("x", {compute, conv ? Shape{2, 5, 4, in} : Shape{2, 3, in}});
    const Value w = graph.add_param("m.weight", {compute, conv ? Shape{out, in, 3, 3} : Shape{out, in}});
    const Attrs window{{"stride", int64_t{1}}, {"pad", std::vector<int64_t>(4, 1)}, {"groups", int64_t{1}}};
    graph.outputs["y"] = graph.add(conv ? conv2d_op : linear_op, {x, w, {}}, conv ? window : Attrs{}, 0)[0];
    settle_layouts(graph);
    spec.rule = &rule;
    modules = adapt(
        graph, [&](const std::string&) { return &spec; }, training);
  }

  static HostTensor weight(const Graph& g) { return ramp(g.desc(g.params.at("m.weight")).shape, 4); }

  // y with these trained tensors; without any, that of the layer alone.
  HostTensor run(Device& device, const Tensors& trained, int32_t step = 0) const {
    Tensors given{{"x", converted(ramp(graph.desc(graph.inputs.at("x")).shape, 1), graph.compute)},
                  {"step", HostTensor::from_ints({1}, std::span(&step, 1))}};
    for (const auto& [name, value] : graph.params) {
      const auto found = trained.find(name);
      HostTensor t = found != trained.end() ? found->second : weight(graph);
      if (graph.info(value).channels_last) {
        const Shape shape = t.desc.shape;
        t = nchw_to_nhwc(t);
        t.desc.shape = shape;
      }
      given[name] = converted(t, graph.desc(value).dtype);
    }
    return converted(run_graph(device, graph, given).at("y"), DType::f32);
  }
};

// As a run starts them.
Tensors started(Device& device, const Layer& layer) {
  Adapters adapters(layer.graph, layer.modules);
  adapters.allocate(device);
  adapters.initialise(7, {.read = [&](const std::string& name) {
                        EXPECT_EQ(name, "m.weight");
                        return Layer::weight(layer.graph);
                      }});
  Tensors all;
  for (const AdapterTensor& t : adapters.tensors()) {
    all[t.name] = adapters.download("p", t);
    if (layer.graph.params.contains(start_name(t.name))) all[start_name(t.name)] = adapters.download("start", t);
  }
  return all;
}

struct Kind {
  const char *adapter, *options;
};
void PrintTo(const Kind& kind, std::ostream* stream) { *stream << kind.adapter << kind.options; }
const Kind kinds[] = {{"lora", "{}"},
                      {"lora", "{init: gaussian, rs_lora: true}"},
                      {"lora", "{init: pissa}"},
                      {"lora", "{init: pissa_niter_4}"},
                      {"locon", "{init: olora}"},
                      {"locon", "{use_tucker: true}"},
                      {"dora", "{}"},
                      {"dora", "{wd_on_out: true}"},
                      {"loha", "{}"},
                      {"loha", "{use_tucker: true, weight_decompose: true}"},
                      {"lokr", "{}"},
                      {"lokr", "{factor: 2, decompose_both: true, use_tucker: true}"},
                      {"lokr", "{full_matrix: true, weight_decompose: true, wd_on_out: true}"},
                      {"full", "{}"}};

class AdapterKinds : public testing::TestWithParam<Kind> {
 protected:
  Device device{tested_device()};
  const Adapter rule{built_plugins(), GetParam().adapter, given_options(GetParam().options)};
  const SelectAdapter none = [](const std::string&) -> const AdapterSpec* { return nullptr; };
};

HostTensor base_output(Device& device, bool conv, DType compute = DType::f32) {
  struct Alone : AdapterRule {
    AdapterForm form(const AdapterLayer&) const override { return {}; }
    std::vector<AdapterTensorSpec> tensors(const AdapterLayer&) const override { return {}; }
    Value build_output(Graph&, const AdapterLayer&, const Values&, int32_t) const override { return {}; }
    Value build_weight(Graph&, const AdapterLayer&, const Values&, int32_t) const override { return {}; }
    Graph initial_values(const AdapterLayer&) const override { return Graph(DType::f32); }
  };
  const Alone rule;
  const Layer layer(rule, conv, compute);
  EXPECT_TRUE(layer.modules.empty()) << "the rule leaves the layer alone";
  return layer.run(device, {});
}

TEST_P(AdapterKinds, BeginWithTheLayerAsItIs) {
  for (const bool conv : {false, true}) {
    const Layer layer(rule, conv);
    const HostTensor base = base_output(device, conv);
    EXPECT_LE(relative_error(layer.run(device, started(device, layer)), base), 1e-6) << conv;
  }
}

// base + strength (adapted - base), as files are merged at a strength.
TEST_P(AdapterKinds, ChangeALayerInProportionToAStrength) {
  for (const bool conv : {false, true}) {
    const HostTensor base = base_output(device, conv);
    const Layer whole(rule, conv);
    Tensors trained = started(device, whole);
    for (auto& [name, tensor] : trained)
      if (!name.ends_with(".start"))
        for (float& v : tensor.as<float>()) v += 0.25f;
    const HostTensor adapted = whole.run(device, trained);
    EXPECT_GT(relative_error(adapted, base), 0.01) << "else the test says nothing";
    for (const double strength : {-1.0, 0.0, 2.0}) {
      const Layer layer(rule, conv, DType::f32, {.rank = 3, .alpha = 6, .strength = strength});
      HostTensor wanted = base;
      for (size_t i = 0; i < wanted.as<float>().size(); ++i)
        wanted.as<float>()[i] +=
            static_cast<float>(strength * (double{adapted.as<float>()[i]} - double{base.as<float>()[i]}));
      // Rounding of the larger of both, of each of some dozens of products.
      const double larger = std::max(1.0, relative_error(adapted, base));
      EXPECT_LE(relative_error(layer.run(device, trained), wanted), 64 * 0x1p-24 * larger * larger)
          << conv << " " << strength;
    }
  }
}

// A part of a step is left out of the whole module in its share of the steps, which the step alone decides.
TEST_P(AdapterKinds, ModuleDropoutLeavesTheLayerAlone) {
  const HostTensor base = base_output(device, false);
  const Layer layer(rule, false, DType::f32, {.rank = 3, .alpha = 6, .seed = 5, .module_dropout = 0.5});
  Tensors trained = started(device, layer);
  for (auto& [name, tensor] : trained)
    if (!name.ends_with(".start"))
      for (float& v : tensor.as<float>()) v += 0.5f;
  int left = 0;
  for (int32_t step = 0; step < 40; ++step) {
    const double moved = relative_error(layer.run(device, trained, step), base);
    EXPECT_EQ(moved, relative_error(layer.run(device, trained, step), base)) << "step " << step;
    left += moved < 1e-6 ? 1 : 0;
  }
  EXPECT_GE(left, 8);  // of 40 with probability 1/2: 3.8 deviations
  EXPECT_LE(left, 32);
  const Layer shown(rule, false, DType::f32, {.rank = 3, .alpha = 6, .seed = 5, .module_dropout = 0.5}, false);
  EXPECT_FALSE(shown.graph.inputs.contains("step")) << "samples are made with all of it";
}

INSTANTIATE_TEST_SUITE_P(All, AdapterKinds, testing::ValuesIn(kinds));

// All weights are 1 and inputs alternate, so that the layer gives 0; the change of the weight is a sixteenth of the
// step of bfloat16 at 1, and the whole output.
TEST(AdapterPrecision, ASmallChangeOfAWeightIsNotLostInHalfPrecision) {
  Device device(tested_device());
  const Adapter rule(built_plugins(), "full", {});
  const Layer layer(rule, false, DType::bf16);
  const float step = 1.0f / 128 / 16;
  HostTensor x(Desc{DType::f32, {2, 3, in}}), weight(Desc{DType::f32, {out, in}}), diff(Desc{DType::f32, {out, in}});
  for (size_t i = 0; i < x.as<float>().size(); ++i) x.as<float>()[i] = i % 2 == 0 ? 1.0f : -1.0f;
  std::ranges::fill(weight.as<float>(), 1.0f);
  for (size_t i = 0; i < diff.as<float>().size(); ++i) diff.as<float>()[i] = i % 2 == 0 ? step : 0.0f;
  const Tensors got =
      run_graph(device, layer.graph,
                {{"x", converted(x, DType::bf16)}, {"m.weight", converted(weight, DType::bf16)}, {"m.diff", diff}});
  const HostTensor y = converted(got.at("y"), DType::f32);
  for (const float v : y.as<float>()) ASSERT_EQ(v, 4 * step);
}

// Rows of the change are dropped in their share, the same ones wherever the step is the same.
TEST(AdapterDropout, RowsOfTheChange) {
  Device device(tested_device());
  for (const auto& [adapter, options, factor] : {std::tuple{"loha", "{}", 1.0}, std::tuple{"lokr", "{}", 1.0},
                                                 std::tuple{"loha", "{rank_dropout_scale: true}", 0.0}}) {
    const Adapter rule(built_plugins(), adapter, given_options(options));
    const Layer plain(rule, false),
        dropped(rule, false, DType::f32, {.rank = 3, .alpha = 6, .seed = 1, .rank_dropout = 0.4});
    Tensors trained = started(device, plain);
    for (auto& [name, tensor] : trained)
      for (float& v : tensor.as<float>()) v += 0.25f;
    const HostTensor base = base_output(device, false), whole = plain.run(device, trained);
    int kept = 0;
    for (int32_t step = 0; step < 20; ++step) {
      const HostTensor got = dropped.run(device, trained, step);
      ASSERT_EQ(got.data, dropped.run(device, trained, step).data);
      int here = 0;
      std::vector<double> shares;
      for (size_t row = 0; row < out; ++row) {  // of the first token
        const double full = whole.as<float>()[row] - base.as<float>()[row],
                     part = got.as<float>()[row] - base.as<float>()[row];
        if (std::abs(part) > 1e-3 * std::abs(full)) ++here, shares.push_back(part / full);
      }
      const double want = factor != 0 ? factor : here == 0 ? 0 : static_cast<double>(out) / here;
      for (const double share : shares) EXPECT_NEAR(share, want, 1e-3) << adapter << options;
      kept += here;
    }
    EXPECT_NEAR(kept, 0.6 * 20 * out, 4 * std::sqrt(0.24 * 20 * out)) << adapter << options;
  }
}

TEST(AdapterDropout, WhatAnAdapterCannotDropIsRefused) {
  for (const char* adapter : {"dora", "loha", "lokr", "full"}) {
    const Adapter rule(built_plugins(), adapter, {});
    EXPECT_THAT(error_of([&] { Layer(rule, false, DType::f32, {.rank = 2, .alpha = 2, .dropout = 0.1}); }),
                HasSubstr("network.module_dropout"))
        << adapter;
  }
}

// The factors of a dimension, for each number that a user may give (LyCORIS' columns of the table).
TEST(Lokr, DividesDimensionsAsLycorisDoes) {
  std::ifstream file(fs::path(test_data()) / "golden" / "adapters" / "lokr_factorization.json");
  const auto table = nlohmann::json::parse(file).at("rows").get<std::vector<std::vector<int64_t>>>();
  ASSERT_GT(table.size(), 200u);
  std::map<int64_t, std::unique_ptr<Adapter>> rules;
  for (const auto& row : table) {
    auto& rule = rules[row[1]];
    if (!rule)
      rule = std::make_unique<Adapter>(built_plugins(), "lokr",
                                       given_options(fmt::format("{{factor: {}, full_matrix: true}}", row[1])));
    const auto tensors = rule->tensors({.module = "m", .weight = {row[0], row[0]}, .rank = 1, .alpha = 1});
    ASSERT_EQ(tensors.size(), 2u);
    EXPECT_EQ(tensors[0].shape, (Shape{row[2], row[2]})) << row[0] << " by " << row[1];
    EXPECT_EQ(tensors[1].shape, (Shape{row[3], row[3]})) << row[0] << " by " << row[1];
  }
}

// A change with a larger norm is brought to the limit, both matrices by the same factor; a smaller one stays.
TEST(NormLimit, BringsLargeChangesToTheLimit) {
  Device device(tested_device());
  const Adapter rule(built_plugins(), "locon", {});
  for (const bool conv : {false, true}) {
    const Layer layer(rule, conv);
    Adapters adapters(layer.graph, layer.modules);
    adapters.allocate(device);
    const auto values = [&](size_t t) { return adapters.download("p", adapters.tensors()[t]); };
    for (size_t t = 0; t < 2; ++t)
      adapters.upload("p", adapters.tensors()[t], ramp(adapters.tensors()[t].shape, static_cast<int64_t>(t) + 1));
    const HostTensor down = values(0), up = values(1);
    const size_t rank = 3, columns = down.as<float>().size() / rank;
    double square = 0;
    for (size_t o = 0; o < out; ++o)
      for (size_t c = 0; c < columns; ++c) {
        double sum = 0;
        for (size_t r = 0; r < rank; ++r)
          sum += double{up.as<float>()[o * rank + r]} * down.as<float>()[r * columns + c];
        square += 4 * sum * sum;  // alpha / rank = 2
      }
    const double norm = std::sqrt(square);
    for (const double share : {2.0, 0.25}) {
      NormLimit limit(adapters, share * norm);
      const DeviceMemory arena(device, limit.graphs()[0].plan->bytes, "limit");
      limit.bind(device, adapters, arena.data());
      limit.run();
      const double factor = std::sqrt(std::min(1.0, share));
      for (size_t t = 0; t < 2; ++t) {
        const HostTensor got = values(t), &began = t == 0 ? down : up;
        for (size_t i = 0; i < got.as<float>().size(); ++i)
          ASSERT_NEAR(got.as<float>()[i], factor * began.as<float>()[i], 1e-5) << conv << share;
      }
    }
  }
  const Adapter loha(built_plugins(), "loha", {});
  const Layer other(loha, false);
  const Adapter pissa(built_plugins(), "lora", given_options("{init: pissa}"));
  const Layer counted(pissa, false);
  for (const Layer* refused : {&other, &counted})
    EXPECT_THAT(error_of([&] { NormLimit(Adapters(refused->graph, refused->modules), 1); }),
                StartsWith("network.scale_weight_norms"));
}

TEST(AdapterMistakes, OfUsers) {
  EXPECT_THAT(error_of([] { Adapter(built_plugins(), "lohra", {}); }),
              AllOf(HasSubstr("adapter 'lohra'"), HasSubstr("Did you mean lo")));
  const std::string error = error_of([] { Adapter(built_plugins(), "lokr", given_options("{factr: 4}")); });
  EXPECT_THAT(error, StartsWith("c.yaml:1:"));
  EXPECT_THAT(error, AllOf(HasSubstr("network.network_kwargs.factr"), HasSubstr("factor")));
  EXPECT_THAT(error_of([] { Adapter(built_plugins(), "lokr", given_options("{factor: 0}")); }),
              HasSubstr("factor is 0"));
  EXPECT_THAT(error_of([] { Adapter(built_plugins(), "dora", given_options("{weight_decompose: true}")); }),
              HasSubstr("weight_decompose"));
}

TEST(AdapterMistakes, OfAuthors) {
  const fs::path plugin = fs::path(binary_dir()) / "lib" / "lora-host-test" / "wrong_adapters.so";
  const Registry registry({}, {plugin});
  const std::map<std::string, const char*> said{
      {"no_output", "build_weight of m: gives no 'weight'"},
      {"shape", "gives 'weight' as float32 [12, 1], expected float32 [12, 8]"},
      {"input", "asks for an input 'shifts', which there is not"},
      {"endless", "used twice"},
      {"no_tensor", "there is no tensor to train"},
      {"twice", "the name 'shift' of tensor number 1 is empty or used twice"},
      {"no_build", "the adapter has no build_output"},
      {"pair", "LH_FORM_PAIR has two tensors"},
      {"scale", "gives scale nan"},
      {"factors", "LH_INIT_SINGULAR and LH_INIT_QR are of both tensors of an LH_FORM_PAIR"},
      {"from_start", "gives from_start, which is of LH_FORM_PAIR"},
      {"keep", "asks for an input 'keep.rank', which it has none of here"}};
  for (const auto& [mistake, text] : said) {
    const Adapter rule(registry, "wrong", given_options("{mistake: " + mistake + "}"));
    EXPECT_THAT(error_of([&] { Layer(rule, false); }), HasSubstr(text)) << mistake;
  }
  const Adapter fine(registry, "wrong", {}), initial(registry, "wrong", given_options("{mistake: initial}"));
  EXPECT_EQ(Layer(fine, false).modules.size(), 1u);
  Device device(tested_device());
  EXPECT_THAT(error_of([&] { started(device, Layer(initial, false)); }), HasSubstr("the adapter has no build_initial"));
}

// Ranks and alphas by name: the longest pattern counts, and an alpha is the rank unless it is given.
TEST(AdapterSelection, RanksByName) {
  NetworkConfig network{.linear = 8, .linear_alpha = 2};
  network.module_ranks = {{"a\\..*", 4}, {"a\\.long\\..*", 16}};
  network.module_alphas = {{"a\\.long\\.x", 3}};
  network.target_modules = {"[ab]\\..*"};
  Recipe recipe;
  recipe.lora_targets = {"nothing"};
  const AdapterSelection selection(network, recipe, 1);
  const auto pair = [&](const char* module) {
    const AdapterSpec* spec = selection(module);
    return spec == nullptr ? std::pair<int64_t, double>() : std::pair(spec->rank, spec->alpha);
  };
  EXPECT_EQ(pair("b.x"), (std::pair<int64_t, double>(8, 2)));
  EXPECT_EQ(pair("a.x"), (std::pair<int64_t, double>(4, 4)));
  EXPECT_EQ(pair("a.long.y"), (std::pair<int64_t, double>(16, 16)));
  EXPECT_EQ(pair("a.long.x"), (std::pair<int64_t, double>(16, 3)));
  EXPECT_EQ(selection("nothing"), nullptr);
  network.module_ranks = {{"a(", 4}};
  EXPECT_THAT(error_of([&] { AdapterSelection(network, recipe, 1); }), StartsWith("network.module_ranks: 'a('"));
}

// Convolutions that no adapter can be beside are named, where they were chosen, and the others are adapted.
TEST(LeftOut, ConvolutionsInGroupsAndInThreeDimensions) {
  Graph graph(DType::f32);
  Value x = graph.add_input("x", {DType::f32, {1, 6, 6, 8}});
  const auto conv = [&](const std::string& module, int64_t groups) {
    const Value w = graph.add_param(module + ".weight", {DType::f32, {8, 8 / groups, 3, 3}});
    x = graph.add(conv2d_op, {x, w, {}},
                  {{"stride", int64_t{1}}, {"pad", std::vector<int64_t>(4, 1)}, {"groups", groups}}, 0)[0];
  };
  for (const char* block : {"a", "b", "c", "d", "skipped"}) conv(block + std::string(".depthwise"), 8);
  conv("a.pairs", 4);
  conv("a.whole", 1);
  const Value volume = graph.add_input("volume", {DType::f32, {1, 3, 4, 4, 8}});
  graph.outputs["z"] =
      graph.add(conv3d_op, {volume, graph.add_param("a.volume.weight", {DType::f32, {8, 8, 3, 3, 3}}), {}},
                {{"stride", std::vector<int64_t>(3, 1)}, {"pad", std::vector<int64_t>(6, 1)}}, 0)[0];
  graph.outputs["y"] = x;
  settle_layouts(graph);
  const AdapterSpec spec{.rank = 2, .alpha = 2};
  const auto select = [&](const std::string& module) { return module.starts_with("skipped") ? nullptr : &spec; };
  const std::vector<LeftOut> before = left_out(graph, select);
  const std::vector<AdaptedModule> adapted = adapt(graph, select, true);
  ASSERT_EQ(adapted.size(), 1u);
  EXPECT_EQ(adapted[0].name, "a.whole");
  EXPECT_EQ(left_out(graph, select), before);
  EXPECT_THAT(left_out_lines(before, false),
              ElementsAre("1 module has no adapter: a.pairs (a convolution in 4 groups)",
                          "4 modules have no adapter: a.depthwise, b.depthwise, c.depthwise, ... (a convolution in 8 "
                          "groups)",
                          "1 module has no adapter: a.volume (a convolution in three dimensions)"));
  EXPECT_THAT(left_out_lines(before, true), Contains(HasSubstr("c.depthwise, d.depthwise (")));
}

// ai-toolkit's keys of LoKr are options here, and mean nothing for other adapters, beside which its files have them.
TEST(AdapterConfig, SpellingsOfPeers) {
  const auto network = [](const std::string& flow) {
    return parse_config("network: " + flow + "\n", "c.yaml", {.model = false, .datasets = false}).network;
  };
  const NetworkConfig lokr =
      network("{type: LoKr, lokr_factor: 8, lokr_full_rank: false, network_kwargs: {rank_dropout: 0.1}}");
  EXPECT_EQ(lokr.type, "lokr");
  EXPECT_EQ(lokr.rank_dropout, 0.1);
  const Adapter rule(built_plugins(), lokr.type, lokr.network_kwargs);
  EXPECT_THAT(rule.options_text(), AllOf(HasSubstr("factor=8"), HasSubstr("full_matrix=false")));
  EXPECT_TRUE(network("{type: lora, lokr_factor: 8}").network_kwargs.empty());
  EXPECT_EQ(network("{network_kwargs: {algo: loha, conv_dim: 4}}").conv, 4);
  EXPECT_EQ(network("{type: fullrank}").type, "full");
  for (const auto& [given, init] : std::map<std::string, std::string>{
           {"gaussian", "gaussian"}, {"pissa_niter_16", "pissa_niter_16"}, {"olora", "olora"}, {"true", "kaiming"}})
    for (const std::string& flow :
         {"{init_lora_weights: " + given + "}", "{network_kwargs: {init_lora_weights: " + given + "}}"}) {
      const NetworkConfig peft = network(flow);
      EXPECT_THAT(Adapter(built_plugins(), peft.type, peft.network_kwargs).options_text(), HasSubstr("init=" + init));
    }
}

}  // namespace
}  // namespace lh::test::adapter_test
