// Layers with adapters that read one x as one op: the op's gradient, what the pass takes together and what it leaves,
// and that steps of the shipped families keep their bits and their memory.
#include "passes/group_layers.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "compile/adapter_selection.h"
#include "compile/compile.h"
#include "lora_kernels_group.h"
#include "ops/lora_activated.h"
#include "ops/lora_gradients.h"
#include "ops/lora_group.h"
#include "ops/ops.h"
#include "passes/differentiate.h"
#include "passes/fuse.h"
#include "passes/prune.h"
#include "run/flops.h"
#include "support/device.h"
#include "support/flux2_shapes.h"
#include "support/graph_run.h"
#include "support/ideogram4_shapes.h"
#include "support/krea2_shapes.h"
#include "support/model_shapes.h"
#include "support/qwen_image21_shapes.h"
#include "support/qwen_image_shapes.h"
#include "support/reference/products.h"
#include "support/toy_step.h"

namespace lh::test::group_layers_test {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::IsEmpty;

using Counts = std::map<size_t, int>;  // by the number of layers, how many groups

Counts groups_in(const Graph& graph) {
  Counts found;
  for (const Node& node : graph.nodes)
    if (node.op == &lora_group_op) ++found[LoraGroup::layers(node.inputs.size())];
  return found;
}

Value one_of(Graph& g, const OpDef& op, std::vector<Value> in, Attrs attrs = {}, int32_t scope = 0) {
  return g.add(op, std::move(in), std::move(attrs), scope)[0];
}

Value sum_of(Graph& g, Value v) {
  std::vector<int64_t> axes;
  for (int64_t i = 0; i < g.desc(v).shape.rank(); ++i) axes.push_back(i);
  return one_of(g, reshape_op, {one_of(g, sum_op, {v}, {{"axes", axes}})}, {{"shape", std::vector<int64_t>{1}}});
}

// On the CPU to the bit. A GPU adds up in another order, as far as a few times 2^-24 sqrt(terms) of a sum go.
void expect_equal(const Tensors& got, const Tensors& want) {
  const bool to_the_bit = tested_device() == "cpu";
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, tensor] : want) {
    EXPECT_TRUE(!to_the_bit || got.at(name).data == tensor.data) << name;
    EXPECT_LT(relative_error(got.at(name), tensor), 1e-4) << name;
  }
}

// ---- the op

constexpr int64_t rows = 9, width = 12;
struct OneLayer {
  int64_t out, rank;
  double scale;
  bool bias, mask;
};
constexpr OneLayer layers[] = {{8, 2, 0.5, true, false}, {12, 3, 2, false, true}, {4, 2, 1, false, false}};

// loss = sum of w_i y_i over some of the layers, and of x times 3 where it is read elsewhere.
struct GroupStep {
  Graph g{DType::f32};
  Tensors given;
  std::vector<Value> trained;
  std::map<Value, Value> gradients;

  GroupStep(const std::vector<size_t>& read, bool x_elsewhere) {
    const Value x = input("x", {rows, width}, 1);
    trained.push_back(x);
    std::vector<Value> in{x};
    Attrs attrs;
    for (size_t i = 0; i < std::size(layers); ++i) {
      const OneLayer& l = layers[i];
      const auto n = std::to_string(i);
      const auto seed = static_cast<int64_t>(10 * i);
      const Value weight = input("weight" + n, {l.out, width}, seed + 2);
      const Value bias = l.bias ? input("bias" + n, {l.out}, seed + 3) : Value{};
      const Value down = input("down" + n, {l.rank, width}, seed + 4), up = input("up" + n, {l.out, l.rank}, seed + 5);
      const Value mask = l.mask ? input("mask" + n, {rows, l.rank}, seed + 6) : Value{};
      in.insert(in.end(), {weight, bias, down, up, mask, Value{}});
      trained.insert(trained.end(), {down, up});
      attrs.set(lora_scale_attr(i), l.scale);
    }
    const std::vector<Value> out = g.add(lora_group_op, in, attrs, 0);
    Value loss;
    const auto add = [&](Value term) { loss = loss ? one_of(g, add_op, {loss, term}) : term; };
    for (const size_t i : read) {
      const Value w = g.add_constant(ramp({rows, layers[i].out}, static_cast<int64_t>(50 + i)));
      add(sum_of(g, one_of(g, mul_op, {out[2 * i], w})));
    }
    if (x_elsewhere) add(sum_of(g, one_of(g, affine_op, {x}, {{"scale", 3.0}, {"shift", 0.0}})));
    const float one = 1;
    gradients = differentiate(g, loss, g.add_constant(HostTensor::from_floats({1}, std::span(&one, 1))), trained);
    for (const auto& [v, gradient] : gradients)
      if (gradient) g.outputs[g.info(v).name] = gradient;
    prune(g);
  }
  Value input(const std::string& name, Shape shape, int64_t seed) {
    given[name] = ramp(shape, seed);
    return g.add_input(name, {DType::f32, std::move(shape)});
  }
};

// The same loss in float64.
double loss_of(std::map<std::string, reference::Values> v, const std::vector<size_t>& read, bool x_elsewhere) {
  double loss = 0;
  for (const size_t i : read) {
    const OneLayer& l = layers[i];
    const std::string n = std::to_string(i);
    const reference::Values mask = l.mask ? v["mask" + n] : reference::Values(static_cast<size_t>(rows * l.rank), 1.0);
    const reference::Values y =
        reference::lora({width, l.out, l.rank, l.scale}, v["x"], v["weight" + n], v["down" + n], v["up" + n], mask);
    const HostTensor w = ramp({rows, l.out}, static_cast<int64_t>(50 + i));
    for (size_t k = 0; k < y.size(); ++k)
      loss += w.as<float>()[k] * (y[k] + (l.bias ? v["bias" + n][k % static_cast<size_t>(l.out)] : 0));
  }
  if (x_elsewhere)
    for (const double x : v["x"]) loss += 3 * x;
  return loss;
}

TEST(LoraGroup, GradientsAreThoseOfDifferences) {
  Device device(tested_device());
  struct Case {
    std::vector<size_t> read;
    bool x_elsewhere;
  };
  for (const Case& c : {Case{{0, 1, 2}, false}, Case{{0, 1, 2}, true}, Case{{0, 2}, true}, Case{{1}, false}}) {
    const GroupStep step(c.read, c.x_elsewhere);
    EXPECT_EQ(count_nodes(step.g, lora_group_backward_op), 1);
    const Tensors got = run_graph(device, step.g, step.given);
    std::map<std::string, reference::Values> values;
    for (const auto& [name, tensor] : step.given) values[name] = {tensor.as<float>().begin(), tensor.as<float>().end()};
    for (const Value v : step.trained) {
      const std::string& name = step.g.info(v).name;
      SCOPED_TRACE(name);
      const bool reaches = name == "x" || std::ranges::count(c.read, static_cast<size_t>(name.back() - '0')) > 0;
      EXPECT_EQ(static_cast<bool>(step.gradients.at(v)), reaches);
      if (!reaches) continue;
      const HostTensor& gradient = got.at(name);
      for (size_t k = 0; k < values[name].size(); ++k) {
        constexpr double by = 1.0 / 1024;  // the loss is linear in each number
        auto more = values, less = values;
        more[name][k] += by, less[name][k] -= by;
        const double want = (loss_of(more, c.read, c.x_elsewhere) - loss_of(less, c.read, c.x_elsewhere)) / (2 * by);
        EXPECT_NEAR(gradient.as<float>()[k], want, 5e-5) << k;  // sums of up to 100 terms of order 1 in float32
      }
    }
  }
}

TEST(LoraGroup, CountsTheWorkOfItsLayers) {
  const GroupStep step({0, 1, 2}, false);
  double of_layers = 0, of_gradients = 0;  // multiply-adds twice
  for (const OneLayer& l : layers) {
    const auto m = static_cast<double>(rows), in = static_cast<double>(width), out = static_cast<double>(l.out),
               r = static_cast<double>(l.rank);
    of_layers += 2 * m * (in * out + in * r + out * r);
    of_gradients += 2 * m * (in + out) * r;
  }
  double gradients = 0;
  for (const Node& node : step.g.nodes) {
    if (node.op == &lora_group_op || node.op == &lora_group_backward_op) {
      EXPECT_EQ(flops(step.g, node), of_layers) << node.op->name;
    }
    if (node.op == &lora_gradients_op) gradients += flops(step.g, node);
  }
  EXPECT_EQ(gradients, of_gradients);
}

// ---- the pass

// Layers in blocks, each a parameter "<name>.weight" and, but for those called "plain", an adapter.
struct Layered {
  Graph g{DType::f32};
  AdapterSpec spec{.rank = 2, .alpha = 2, .seed = 5};
  Value x = input("x"), z = input("z");

  Value input(const std::string& name) { return g.add_input(name, {DType::f32, {rows, width}}); }
  int32_t block(bool checkpoint = true, int32_t parent = 0) {
    g.scopes.push_back({.path = "block", .parent = parent, .checkpoint = checkpoint});
    return static_cast<int32_t>(g.scopes.size()) - 1;
  }
  Value layer(const std::string& name, Value in, int32_t scope) {
    const Value w = g.add_param(name + ".weight", {DType::f32, {width, width}});
    const Value y = one_of(g, linear_op, {in, w, Value{}}, {}, scope);
    g.outputs[name] = y;
    return y;
  }
  void adapted() {
    adapt(
        g, [&](const std::string& m) { return m.starts_with("plain") ? nullptr : &spec; }, true);
  }
  std::vector<const OpDef*> ops() const {
    std::vector<const OpDef*> all;
    for (const Node& node : g.nodes) all.push_back(node.op);
    return all;
  }
  Tensors run(Device& device) const {
    const int32_t step = 7;
    Tensors given{{"step", HostTensor::from_ints({1}, std::span(&step, 1))}};
    for (const auto* all : {&g.inputs, &g.params})
      for (const auto& [name, v] : *all)
        if (name != "step") given[name] = ramp(g.desc(v).shape, static_cast<int64_t>(given.size()));
    return run_graph(device, g, given);
  }
};

TEST(GroupLayers, TakesThoseOfOneInput) {
  Device device(tested_device());
  for (const double dropout : {0.0, 0.25}) {
    Layered t;
    t.spec.dropout = dropout;
    const int32_t block = t.block();
    const Value q = t.layer("q", t.x, block);
    t.layer("plain", t.x, block);
    t.layer("k", t.x, t.block(false, block));  // a part of the block
    t.g.outputs["soft"] = one_of(t.g, tanh_op, {q}, {}, block);
    t.layer("other", t.z, block);
    t.layer("v", t.x, block);
    t.layer("after", q, block);
    t.adapted();
    Layered apart = t;
    group_layers(t.g);
    EXPECT_EQ(groups_in(t.g), (Counts{{3, 1}}));
    EXPECT_EQ(count_nodes(t.g, lora_op), 2);    // of z, and of q
    EXPECT_EQ(count_nodes(t.g, linear_op), 1);  // stays what it is
    if (dropout == 0)
      EXPECT_THAT(t.ops(), ElementsAre(&lora_group_op, &linear_op, &tanh_op, &lora_op, &lora_op));
    else
      EXPECT_THAT(t.ops(), ElementsAre(&dropout_mask_op, &dropout_mask_op, &dropout_mask_op, &lora_group_op, &linear_op,
                                       &tanh_op, &dropout_mask_op, &lora_op, &dropout_mask_op, &lora_op));
    const Tensors want = apart.run(device), got = t.run(device);
    expect_equal(got, want);
  }
}

TEST(GroupLayers, TakesNoMoreThanAKernelDoes) {
  Layered t;
  const int32_t block = t.block();
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g", "h", "i"}) t.layer(name, t.x, block);
  t.adapted();
  group_layers(t.g);
  EXPECT_EQ(groups_in(t.g), (Counts{{LK_LORA_GROUP_MAX, 2}}));
  EXPECT_EQ(count_nodes(t.g, lora_op), 1);
}

TEST(GroupLayers, LeavesWhatGainsNothing) {
  struct Case {
    Shape x;
    int64_t out;
    Counts groups;
  };
  for (const Case& c : {Case{{1, 8, 64}, 64, {}}, Case{{3, 3, 64}, 64, {{2, 1}}},
                        Case{{1, 4096, 3072}, 3072, {{2, 1}}},  // q and k of Qwen-Image at 1024 x 1024
                        Case{{1, 4096, 3840}, 10240, {}}}) {    // w1 and w3 of Z-Image
    Graph g(DType::bf16);
    g.scopes.push_back({.path = "block", .parent = 0, .checkpoint = true});
    const Value x = g.add_input("x", {DType::bf16, c.x});
    const AdapterSpec spec{.rank = 4, .alpha = 4};
    for (const char* name : {"a", "b"}) {
      const Value w = g.add_param(std::string(name) + ".weight", {DType::bf16, {c.out, c.x[2]}});
      g.outputs[name] = one_of(g, linear_op, {x, w, Value{}}, {}, 1);
    }
    adapt(
        g, [&](const std::string&) { return &spec; }, true);
    group_layers(g);
    EXPECT_EQ(groups_in(g), c.groups) << c.x.text();
  }
}

TEST(GroupLayers, LeavesWhatIsOfSeveralBlocksOrNumbers) {
  Layered t;
  const int32_t first = t.block(), second = t.block();
  t.layer("a", t.x, first);
  t.layer("b", t.x, second);
  t.layer("c", t.x, 0);
  t.layer("d", t.x, 0);
  t.layer("e", t.z, second);
  t.layer("f", t.z, second);
  t.g.nodes.back().attrs.set(products_attr, int64_t{LK_PRODUCTS_I8});
  t.adapted();
  group_layers(t.g);
  EXPECT_THAT(groups_in(t.g), IsEmpty());
  EXPECT_EQ(count_nodes(t.g, lora_op), 6);
}

// Masks that follow from what a layer gives: the layer that waits for one stays alone.
TEST(GroupLayers, LeavesALayerThatWaitsForAnother) {
  Layered t;
  const int32_t block = t.block();
  for (const char* name : {"a", "b", "c"}) t.layer(name, t.x, block);
  t.adapted();
  std::vector<Node> nodes;
  nodes.swap(t.g.nodes);
  for (Node& node : nodes) {
    if (node.outputs[0] == t.g.outputs.at("b"))
      node.inputs[5] = one_of(t.g, sigmoid_op, {one_of(t.g, tanh_op, {t.g.nodes[0].outputs[1]}, {}, block)}, {}, block);
    if (node.outputs[0] == t.g.outputs.at("c"))
      node.inputs[5] = one_of(t.g, sigmoid_op, {t.g.add_input("given", {DType::f32, {rows, 2}})}, {}, block);
    t.g.nodes.push_back(node);
  }
  group_layers(t.g);
  EXPECT_THAT(t.ops(), ElementsAre(&sigmoid_op, &lora_group_op, &tanh_op, &sigmoid_op, &lora_op));
}

// ---- the shipped families

struct Published {
  const char *name, *plugin;
  Shapes shapes;
  Counts groups;
};

TEST(GroupLayers, OfPublishedModels) {
  const Unet sdxl{320, 2048, 2816, 2, {0, 0, 2, 2, 10, 10}, 10, {10, 10, 10, 2, 2, 2, 0, 0, 0}};
  const Published published[] = {
      {"SDXL", "sdxl", sdxl.shapes(), {{3, 70}, {2, 70}}},
      // Of image and text, but that the text has no q in the last block; modulations have few rows.
      {"Qwen-Image", "qwen_image", full_qwen_image.shapes(), {{3, 119}, {2, 1}}},
      // q, k and v are one layer; w1 and w3 are large, but for those of the text's own blocks.
      {"Z-Image", "z_image", full_z_image.shapes(), {{2, 2}}},
      {"SD 3.5 large", "sd35", Mmdit{38, 0, 192, 2432, 4096, 2048}.shapes(), {}},
      {"Chroma", "chroma", Chroma{{3072, 4096, 19, 38}, 5120}.shapes(), {}},
      {"Flux.2 dev", "flux2", Flux2{6144, 15360, 8, 48, true}.shapes(), {}},
  };
  for (const Published& p : published) {
    const Described model(p.plugin, p.shapes);
    Graph graph = model.denoiser({{"batch", 1}, {"height", 128}, {"width", 128}, {"text_length", 77}});
    const AdapterSelection selection({}, model.recipe(), 1);
    adapt(graph, selection, true);
    group_layers(graph);
    EXPECT_EQ(groups_in(graph), p.groups) << p.name;
  }
}

struct Small {
  const char* name;
  std::function<void(const fs::path&)> write;
};

class GroupedFamily : public testing::TestWithParam<Small> {};

struct FamilyStep {
  Graph g{DType::f32};
  Tensors given;

  // With dropout, forward and backward.
  FamilyStep(const Model& model, bool grouped) {
    const Sizes sizes{{"batch", 2}, {"height", 16}, {"width", 16}, {"text_length", 32}};
    g = model.build_chain({"denoiser"}, sizes, DType::f32);
    fuse(g);
    NetworkConfig network;
    network.linear = 4;
    network.dropout = 0.1;
    const std::vector<AdaptedModule> modules = adapt(g, AdapterSelection(network, model.recipe(), 3), true);
    const Value output = g.outputs.at("output");
    const Value loss = one_of(g, mse_op, {output, g.add_input("target", {DType::f32, g.desc(output).shape}), Value{}});
    g.outputs = {{"loss", loss}};
    prune(g);
    if (grouped) group_layers(g);
    std::vector<Value> trained;
    for (const AdaptedModule& module : modules)
      for (const AdaptedTensor& tensor : module.tensors) trained.push_back(tensor.value);
    for (const auto& [v, gradient] : differentiate(g, loss, g.add_input("seed", {DType::f32, {1}}), trained))
      g.outputs["grad." + g.info(v).name] = gradient;
    prune(g);
    fill(model.checkpoint());
  }

 private:
  void fill(const Checkpoint& checkpoint) {
    for (const auto& [name, v] : g.params) {
      const ValueInfo& info = g.info(v);
      HostTensor& tensor = given[name] = HostTensor({DType::f32, info.desc.shape});
      if (checkpoint.weights().contains(name))
        checkpoint.read(name, DType::f32, info.channels_last, tensor.data);
      else
        tensor = ramp(info.desc.shape, static_cast<int64_t>(given.size()));
    }
    for (const auto& [name, v] : g.inputs) {
      const Desc& desc = g.desc(v);
      given[name] = ramp(desc.shape, static_cast<int64_t>(name.size()));
      if (desc.dtype == DType::i32)
        given[name] =
            HostTensor::from_ints(desc.shape, std::vector<int32_t>(static_cast<size_t>(desc.shape.numel()), 1));
    }
    given["timestep"] = HostTensor::from_floats({2}, std::vector<float>{0.25f, 0.75f});
    given["seed"] = HostTensor::from_floats({1}, std::vector<float>{1});
  }
};

TEST_P(GroupedFamily, KeepsItsBitsAndItsMemory) {
  const TempDir dir;
  GetParam().write(dir / "model.safetensors");
  const OpenedModel opened(dir / "model.safetensors", "auto");
  const FamilyStep apart(opened.model, false), grouped(opened.model, true);
  EXPECT_EQ(count_nodes(apart.g, lora_group_op), 0);
  EXPECT_GT(count_nodes(grouped.g, lora_group_op), 0);
  EXPECT_EQ(count_nodes(grouped.g, lora_group_op), count_nodes(grouped.g, lora_group_backward_op));
  EXPECT_EQ(flops(grouped.g), flops(apart.g));
  EXPECT_LE(plan_memory(grouped.g, external_to_step(grouped.g)).live_peak,
            plan_memory(apart.g, external_to_step(apart.g)).live_peak);
  Device device(tested_device());
  const Tensors want = run_graph(device, apart.g, apart.given), got = run_graph(device, grouped.g, grouped.given);
  expect_equal(got, want);
}

TEST_P(GroupedFamily, StepsAreTheSameHoweverTheyAreKept) {
  const TempDir dir;
  GetParam().write(dir / "model.safetensors");
  for (const char* dtype : {"auto", "nf4"}) {
    const OpenedModel opened(dir / "model.safetensors", dtype);
    const Ran want = run_step(opened.model, {});
    EXPECT_TRUE(std::isfinite(want.loss));
    const auto blocks = static_cast<int64_t>(toy_blocks(opened.model).size());
    for (const auto& [choice, streamed] : {std::pair{ActivationChoice{1, 0}, blocks},
                                           {ActivationChoice{0.5, 0.5}, blocks / 2},
                                           {ActivationChoice{0, 1}, int64_t{1}}}) {
      SCOPED_TRACE(testing::Message() << dtype << ": " << choice.recompute << " made again, " << choice.offload
                                      << " in host memory, " << streamed << " blocks streamed");
      const Graph g = toy_graph(opened.model, choice, streamed).graph;
      EXPECT_GT(count_nodes(g, lora_group_op) + count_nodes(g, lora_group_gated_op), 0);
      const Ran got = run_step(opened.model, choice, streamed);
      EXPECT_EQ(got.loss, want.loss);
      ASSERT_EQ(got.gradients.size(), want.gradients.size());
      for (const auto& [name, g] : want.gradients) EXPECT_EQ(got.gradients.at(name).data, g.data) << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, GroupedFamily,
                         testing::Values(Small{"sdxl", [](const fs::path& path) { write_small_sdxl(path); }},
                                         Small{"z_image", [](const fs::path& path) { write_small_z_image(path); }},
                                         Small{"krea2", write_small_krea2},
                                         Small{"qwen_image21", write_small_qwen_image21},
                                         Small{"ideogram4", write_small_ideogram4},
                                         Small{"qwen_image", write_small_qwen_image}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace lh::test::group_layers_test
