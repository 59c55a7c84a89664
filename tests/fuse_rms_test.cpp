// The fuse pass and RMS norms: those with a modulation behind them or a gate before them become part of its op, in
// Z-Image's blocks and nowhere else, and those of queries and keys one with their rotation, where the weight is frozen;
// results and gradients stay what they were.
#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>

#include "ops/ops.h"
#include "passes/differentiate.h"
#include "passes/fuse.h"
#include "passes/prune.h"
#include "support/device.h"
#include "support/flux2_shapes.h"
#include "support/flux3_shapes.h"
#include "support/graph_run.h"
#include "support/model_shapes.h"
#include "support/qwen_image_shapes.h"

namespace lh::fuse_rms_test {
namespace {

using namespace test;

struct Form {
  bool last = false;   // the norms are second factors, what is added comes first
  bool shift = false;  // behind the modulation
  bool weights = true;
};

// x + gate rms_norm((1 + scale) rms_norm(x, first) [+ shift], second), x [2, 5, 24].
struct Block {
  DType type;
  Graph g;
  Value x, scale, shift, gate, first, second, normed, gated;

  explicit Block(Form form = {}, DType dtype = DType::f32)
      : type(dtype),
        g(dtype),
        x(g.add_input("x", {dtype, {2, 5, 24}})),
        scale(g.add_input("scale", {dtype, {2, 1, 24}})),
        shift(g.add_input("shift", {dtype, {2, 1, 24}})),
        gate(g.add_input("gate", {dtype, {2, 1, 24}})) {
    if (form.weights) {
      first = g.add_param("first", {dtype, {24}});
      second = g.add_param("second", {dtype, {24}});
    }
    const auto either = [&](const OpDef& op, Value a, Value b) {
      return one(op, form.last ? std::vector{b, a} : std::vector{a, b});
    };
    normed = norm(x, first);
    Value y = either(mul_op, normed, one(affine_op, {scale}, {{"scale", 1.0}, {"shift", 1.0}}));
    if (form.shift) y = either(add_op, y, shift);
    gated = norm(y, second);
    g.outputs["y"] = either(add_op, x, either(mul_op, gate, gated));
  }
  Value one(const OpDef& op, std::vector<Value> in, Attrs attrs = {}) {
    return g.add(op, std::move(in), std::move(attrs), 0)[0];
  }
  Value norm(Value v, Value weight) { return one(rms_norm_op, {v, weight}, {{"eps", 1e-5}}); }
};

int64_t count(const Graph& g, const OpDef& op, bool rms) {
  return std::ranges::count_if(g.nodes, [&](const Node& n) { return n.op == &op && n.attrs.has("rms") == rms; });
}
int64_t norms_apart(const Graph& g) { return count(g, rms_norm_op, false); }

HostTensor as(const HostTensor& t, DType type) {
  HostTensor result({type, t.desc.shape});
  convert(t.desc.dtype, t.data.data(), type, result.data.data(), t.desc.shape.numel());
  return result;
}

// y and the gradients of `trained`, of the loss sum(w y), in float32.
Tensors run_with_gradients(Device& device, Graph& g, const std::vector<Value>& trained) {
  const auto one = [&](const OpDef& op, std::vector<Value> in, Attrs attrs = {}) {
    return g.add(op, std::move(in), std::move(attrs), 0)[0];
  };
  const Shape shape = g.desc(g.outputs.at("y")).shape;
  std::vector<int64_t> axes(shape.dims().size());
  std::iota(axes.begin(), axes.end(), 0);
  const Value wide = one(cast_op, {g.outputs.at("y")}, {{"dtype", static_cast<int64_t>(DType::f32)}});
  const Value product = one(mul_op, {wide, g.add_constant(ramp(shape, 9))});
  const Value sum = one(sum_op, {product}, {{"axes", axes}});
  const Value loss = one(reshape_op, {sum}, {{"shape", std::vector<int64_t>{1}}});
  const float seed = 1;
  const Value start = g.add_constant(HostTensor::from_floats({1}, std::span(&seed, 1)));
  for (const auto& [v, gradient] : differentiate(g, loss, start, trained)) g.outputs["d" + g.info(v).name] = gradient;
  prune(g);
  Tensors given;
  for (const auto& [name, value] : g.params)
    given[name] = as(ramp(g.desc(value).shape, name == "first" ? 5 : 6), g.desc(value).dtype);
  for (const auto& [name, value] : g.inputs)
    given[name] = as(ramp(g.desc(value).shape, static_cast<int64_t>(value.id)), g.desc(value).dtype);
  Tensors result = run_graph(device, g, given);
  for (auto& [name, tensor] : result) tensor = as(tensor, DType::f32);
  return result;
}

Tensors run_with_gradients(Device& device, Block& b, bool with_shift) {
  std::vector<Value> trained{b.x, b.scale, b.gate};
  if (with_shift) trained.push_back(b.shift);
  return run_with_gradients(device, b.g, trained);
}

// Within k eps of the largest, in float32.
void expect_close(const Tensors& got, const Tensors& want, double k) {
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, tensor] : want) {
    const auto w = tensor.as<float>(), h = got.at(name).as<float>();
    double largest = 0;
    for (const float v : w) largest = std::max(largest, std::abs(static_cast<double>(v)));
    for (size_t i = 0; i < w.size(); ++i) EXPECT_NEAR(h[i], w[i], k * 6e-8 * largest) << name << " " << i;
  }
}

const Form forms[] = {{}, {.last = true}, {.shift = true}, {.last = true, .shift = true}, {.weights = false}};

TEST(FuseRms, KeepsResultsAndGradients) {
  Device device(tested_device());
  for (const Form& form : forms) {
    Block plain(form), fused(form);
    fuse(fused.g);
    EXPECT_EQ(fused.g.nodes.size(), 2u);
    EXPECT_EQ(count(fused.g, modulated_norm_op, true), 1);
    EXPECT_EQ(count(fused.g, gated_residual_op, true), 1);
    const Tensors want = run_with_gradients(device, plain, form.shift);
    const Tensors got = run_with_gradients(device, fused, form.shift);
    EXPECT_EQ(norms_apart(fused.g) + count(fused.g, rms_norm_backward_op, false), 0);
    ASSERT_EQ(got.size(), form.shift ? 5u : 4u);
    // Sums of 24 terms for the statistics of either norm and of 5 for the columns, in float32 both ways:
    // 2 x 8 eps sqrt(24) of the largest.
    expect_close(got, want, 16 * 5);
  }
}

// In 16 bits the norms are no longer rounded on their way: against float32 the block is off by what the separate ops
// are, or less, but for the scatter of 240 roundings.
TEST(FuseRms, RoundsNoMoreThanSeparateOps) {
  Device device(tested_device());
  for (const DType type : {DType::f16, DType::bf16}) {
    Block exact({.shift = true}), plain({.shift = true}, type), fused({.shift = true}, type);
    fuse(fused.g);
    const Tensors truth = run_with_gradients(device, exact, true);
    const Tensors apart = run_with_gradients(device, plain, true), got = run_with_gradients(device, fused, true);
    for (const auto& [name, tensor] : truth)
      EXPECT_LE(relative_error(got.at(name), tensor), 1.25 * relative_error(apart.at(name), tensor)) << name;
  }
}

TEST(FuseRms, LeavesNormsThatAreReadElsewhere) {
  Block b;
  b.g.outputs["normed"] = b.normed;
  b.g.outputs["gated"] = b.gated;
  fuse(b.g);
  EXPECT_EQ(count(b.g, modulated_norm_op, true), 0);
  EXPECT_EQ(count(b.g, gated_residual_op, true), 0);
  EXPECT_EQ(count(b.g, gated_residual_op, false), 1);
  EXPECT_EQ(norms_apart(b.g), 2);
}

TEST(FuseRms, LeavesWeightsThatAreTrained) {
  for (const std::string trained : {"first", "second"}) {
    Block b;
    fuse(b.g, std::vector{trained});
    EXPECT_EQ(count(b.g, modulated_norm_op, true), trained == "first" ? 0 : 1);
    EXPECT_EQ(count(b.g, gated_residual_op, true), trained == "second" ? 0 : 1);
    EXPECT_EQ(count(b.g, gated_residual_op, false), trained == "second" ? 1 : 0);
    EXPECT_EQ(norms_apart(b.g), 1);
  }
}

// x (1 + scale) behind a norm whose weight is one more than a value of 24, in float32.
struct OneMore {
  Graph g;
  Value x, scale, value;

  explicit OneMore(bool given, DType dtype = DType::f32)
      : g(dtype), x(g.add_input("x", {dtype, {2, 3, 24}})), scale(g.add_input("scale", {dtype, {2, 1, 24}})) {
    value = given ? g.add_input("value", {dtype, {24}}) : g.add_param("value", {dtype, {24}});
    const auto one_more = [&](Value v) { return g.add(affine_op, {v}, {{"scale", 1.0}, {"shift", 1.0}}, 0)[0]; };
    const Value wide = g.add(cast_op, {value}, {{"dtype", static_cast<int64_t>(DType::f32)}}, 0)[0];
    const Value norm = g.add(rms_norm_op, {x, one_more(wide)}, {{"eps", 1e-5}}, 0)[0];
    g.outputs["y"] = g.add(mul_op, {norm, one_more(scale)}, {}, 0)[0];
  }
};

TEST(FuseRms, TakesWeightsComputedOfSuchAsAreNotTrained) {
  Device device(tested_device());
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    OneMore exact(false), plain(false, type), fused(false, type);
    fuse(fused.g);
    EXPECT_EQ(count(fused.g, modulated_norm_op, true), 1);
    EXPECT_EQ(norms_apart(fused.g), 0);
    const Tensors truth = run_with_gradients(device, exact.g, {exact.x, exact.scale});
    const Tensors apart = run_with_gradients(device, plain.g, {plain.x, plain.scale});
    const Tensors got = run_with_gradients(device, fused.g, {fused.x, fused.scale});
    if (type == DType::f32) {
      expect_close(got, truth, 16 * 5);
      continue;
    }
    for (const auto& [name, tensor] : truth)
      EXPECT_LE(relative_error(got.at(name), tensor), 1.25 * relative_error(apart.at(name), tensor)) << name;
  }
}

TEST(FuseRms, LeavesWeightsComputedOfOthers) {
  OneMore given(true), trained(false);
  fuse(given.g);
  fuse(trained.g, std::vector<std::string>{"value"});
  for (const Graph* g : {&given.g, &trained.g}) EXPECT_EQ(norms_apart(*g), 1);
}

TEST(FuseRms, LeavesAFactorOfAnotherShape) {
  Graph g(DType::f32);
  const Value x = g.add_input("x", {DType::f32, {1, 3, 24}}), scale = g.add_input("scale", {DType::f32, {1, 3, 24}});
  const Value norm = g.add(rms_norm_op, {x, Value{}}, {{"eps", 1e-5}}, 0)[0];
  const Value factor = g.add(affine_op, {scale}, {{"scale", 1.0}, {"shift", 1.0}}, 0)[0];
  g.outputs["y"] = g.add(mul_op, {norm, factor}, {}, 0)[0];
  fuse(g);
  EXPECT_EQ(norms_apart(g), 1);
}

// rope(rms_norm(x, weight), cos, sin), x [2, 5, 3, 24].
struct Heads {
  bool interleaved = true, own_tables = false, weighted = true;
};

struct Rotation {
  Graph g;
  Value x, cos, sin, weight, normed;

  explicit Rotation(Heads form = {}, DType dtype = DType::f32, int64_t inverse = 0)
      : g(dtype),
        x(g.add_input("x", {dtype, {2, 5, 3, 24}})),
        cos(g.add_input("cos", {DType::f32, form.own_tables ? Shape{2, 5, 12} : Shape{5, 12}})),
        sin(g.add_input("sin", g.desc(cos))) {
    if (form.weighted) weight = g.add_param("weight", {dtype, {24}});
    normed = g.add(rms_norm_op, {x, weight}, {{"eps", 1e-5}}, 0)[0];
    const Attrs attrs{{"interleaved", int64_t{form.interleaved}}, {"inverse", inverse}};
    g.outputs["y"] = g.add(rope_op, {normed, cos, sin}, attrs, 0)[0];
  }
};

int64_t rotations(const Graph& g) { return count(g, rms_norm_rope_op, false); }

const Heads head_forms[] = {
    {}, {.interleaved = false}, {.own_tables = true}, {.interleaved = false, .weighted = false}};

TEST(FuseRms, KeepsRotations) {
  Device device(tested_device());
  for (const Heads& form : head_forms) {
    Rotation plain(form), fused(form);
    fuse(fused.g);
    EXPECT_EQ(fused.g.nodes.size(), 1u);
    EXPECT_EQ(rotations(fused.g), 1);
    const Tensors want = run_with_gradients(device, plain.g, {plain.x});
    const Tensors got = run_with_gradients(device, fused.g, {fused.x});
    EXPECT_EQ(count(fused.g, rms_norm_rope_backward_op, false), 1);
    EXPECT_EQ(count(fused.g, rope_op, false) + count(fused.g, rms_norm_backward_op, false), 0);
    ASSERT_EQ(got.size(), 2u);
    // Sums of 24 terms, in float32 both ways: 8 eps sqrt(24) of the largest.
    expect_close(got, want, 8 * 5);
  }
}

TEST(FuseRms, RoundsRotationsNoMoreThanSeparateOps) {
  Device device(tested_device());
  for (const DType type : {DType::f16, DType::bf16}) {
    Rotation exact, plain({}, type), fused({}, type);
    fuse(fused.g);
    const Tensors truth = run_with_gradients(device, exact.g, {exact.x});
    const Tensors apart = run_with_gradients(device, plain.g, {plain.x});
    const Tensors got = run_with_gradients(device, fused.g, {fused.x});
    for (const auto& [name, tensor] : truth)
      EXPECT_LE(relative_error(got.at(name), tensor), 1.25 * relative_error(apart.at(name), tensor)) << name;
  }
}

TEST(FuseRms, LeavesOtherRotations) {
  Rotation read_elsewhere, trained, back({}, DType::f32, 1);
  read_elsewhere.g.outputs["normed"] = read_elsewhere.normed;
  fuse(read_elsewhere.g);
  fuse(trained.g, std::vector<std::string>{"weight"});
  fuse(back.g);
  for (const Graph* g : {&read_elsewhere.g, &trained.g, &back.g}) {
    EXPECT_EQ(rotations(*g), 0);
    EXPECT_EQ(count(*g, rope_op, false), 1);
    EXPECT_EQ(norms_apart(*g), 1);
  }
}

Shapes of_golden(const std::string& name) {
  Shapes shapes;
  for (const Given& t : golden_weights(name)) shapes[t.name] = t.tensor.desc;
  return shapes;
}

// Two norms of each kind for every modulated block of Z-Image; the refiners of captions are not modulated. Layer norms
// of other families are not of these forms. Norms of queries and keys are one with the rotation wherever there is one:
// of both streams in double blocks, but for queries of a text that is only seen.
TEST(FuseRms, FindsTheNormsOfEveryFamily) {
  struct Family {
    const char* plugin;
    Shapes shapes;
    int64_t modulated_blocks, rotations;
    bool layer_norms;  // with a modulation
  };
  const Family families[] = {{"z_image", small_z_image.shapes(), 3, 2 * 4, false},
                             {"z_image", full_z_image.shapes(), 32, 2 * 34, false},
                             {"flux", of_golden("flux_schnell_tiny"), 0, 4 + 2, true},
                             {"flux2", small_flux2_dev.shapes(), 0, 4 + 2 * 2, true},
                             {"flux3", small_flux3.shapes(), 0, 2 * 4, true},
                             {"qwen_image", small_qwen_image.shapes(), 0, 4 + 3, true},
                             {"chroma", small_chroma.shapes(), 0, 4 + 2 * 2, true},
                             {"sd35", small_large.shapes(), 0, 0, true},
                             {"sdxl", small_unet.shapes(), 0, 0, false}};
  for (const Family& f : families) {
    Graph g = Described(f.plugin, f.shapes).denoiser({{"batch", 1}, {"height", 16}, {"width", 16}, {"text_length", 5}});
    fuse(g);
    EXPECT_EQ(count(g, modulated_norm_op, true), 2 * f.modulated_blocks) << f.plugin;
    EXPECT_EQ(count(g, gated_residual_op, true), 2 * f.modulated_blocks) << f.plugin;
    EXPECT_EQ(rotations(g), f.rotations) << f.plugin;
    EXPECT_EQ(count(g, rope_op, false), 0) << f.plugin;
    EXPECT_EQ(count(g, modulated_norm_op, false) > 0, f.layer_norms) << f.plugin;
  }
}

}  // namespace
}  // namespace lh::fuse_rms_test
