// The fuse pass: what it recognises, what it leaves alone, and that results and gradients stay what they were.
#include "passes/fuse.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "ops/ops.h"
#include "passes/differentiate.h"
#include "passes/prune.h"
#include "support/device.h"
#include "support/graph_run.h"

namespace lh::fuse_test {
namespace {

using namespace test;

// x + gate * ((1 + scale) * layer_norm(x) + shift), x [2, 5, 24].
struct Block {
  Graph g{DType::f32};
  Value x = g.add_input("x", {DType::f32, {2, 5, 24}});
  Value scale = g.add_input("scale", {DType::f32, {2, 1, 24}}), shift = g.add_input("shift", {DType::f32, {2, 1, 24}});
  Value gate = g.add_input("gate", {DType::f32, {2, 1, 24}});
  Value norm = one(layer_norm_op, {x, {}, {}}, {{"eps", 1e-6}});
  Value modulated;

  explicit Block(bool norm_last = false, double added = 1) {
    const Value factor = one(affine_op, {scale}, {{"scale", 1.0}, {"shift", added}});
    const Value product = norm_last ? one(mul_op, {factor, norm}) : one(mul_op, {norm, factor});
    modulated = norm_last ? one(add_op, {shift, product}) : one(add_op, {product, shift});
    const Value scaled = norm_last ? one(mul_op, {modulated, gate}) : one(mul_op, {gate, modulated});
    g.outputs["y"] = norm_last ? one(add_op, {scaled, x}) : one(add_op, {x, scaled});
  }
  Value one(const OpDef& op, std::vector<Value> in, Attrs attrs = {}) {
    return g.add(op, std::move(in), std::move(attrs), 0)[0];
  }
  int64_t count(const OpDef& op) const {
    return std::ranges::count_if(g.nodes, [&](const Node& node) { return node.op == &op; });
  }
};

Tensors run_with_gradients(Device& device, Block& b) {
  Graph& g = b.g;
  const HostTensor weight = ramp({2, 5, 24}, 9);
  const Value product = b.one(mul_op, {g.outputs.at("y"), g.add_constant(weight)});
  const Value sum = b.one(sum_op, {product}, {{"axes", std::vector<int64_t>{0, 1, 2}}});
  const Value loss = b.one(reshape_op, {sum}, {{"shape", std::vector<int64_t>{1}}});
  const float seed = 1;
  const Value start = g.add_constant(HostTensor::from_floats({1}, std::span(&seed, 1)));
  for (const auto& [v, gradient] : differentiate(g, loss, start, {b.x, b.scale, b.shift, b.gate}))
    g.outputs["d" + g.info(v).name] = gradient;
  prune(g);
  return run_graph(device, g,
                   {{"x", ramp({2, 5, 24}, 1)},
                    {"scale", ramp({2, 1, 24}, 2)},
                    {"shift", ramp({2, 1, 24}, 3)},
                    {"gate", ramp({2, 1, 24}, 4)}});
}

TEST(Fuse, KeepsResultsAndGradients) {
  Device device(tested_device());
  for (const bool norm_last : {false, true}) {
    Block plain(norm_last), fused(norm_last);
    fuse(fused.g);
    EXPECT_EQ(fused.count(modulated_norm_op), 1);
    EXPECT_EQ(fused.count(gated_residual_op), 1);
    EXPECT_EQ(fused.g.nodes.size(), 2u);
    const Tensors want = run_with_gradients(device, plain), got = run_with_gradients(device, fused);
    ASSERT_EQ(got.size(), 5u);
    for (const auto& [name, tensor] : want) {
      const auto w = tensor.as<float>(), h = got.at(name).as<float>();
      double largest = 0;
      for (const float v : w) largest = std::max(largest, std::abs(static_cast<double>(v)));
      // Sums of 24 terms for the statistics and of 5 for the columns, in float32 both ways: 8 eps sqrt(24) of the
      // largest.
      for (size_t i = 0; i < w.size(); ++i) EXPECT_NEAR(h[i], w[i], 8 * 6e-8 * 5 * largest) << name << " " << i;
    }
  }
}

TEST(Fuse, LeavesWhatIsReadElsewhere) {
  Block b;
  b.g.outputs["norm"] = b.norm;
  b.g.outputs["modulated"] = b.modulated;
  fuse(b.g);
  EXPECT_EQ(b.count(modulated_norm_op), 0);
  EXPECT_EQ(b.count(layer_norm_op), 1);
  EXPECT_EQ(b.count(gated_residual_op), 1);  // what it reads may be read by others
}

TEST(Fuse, LeavesAnotherFactor) {
  Block b(false, 0.5);  // layer_norm * (scale + 0.5): not a modulation
  fuse(b.g);
  EXPECT_EQ(b.count(modulated_norm_op), 0);
}

struct Gate {
  const OpDef& op;
  Attrs attrs;
};
const Gate gates[] = {{silu_op, {}},
                      {gelu_op, {{"mode", std::string("erf")}}},
                      {gelu_op, {{"mode", std::string("tanh")}}},
                      {sigmoid_op, {}},
                      {gelu_op, {{"mode", std::string("quick")}}}};

// act(a) * b, a [2, 5, 24]; b is of another shape if told, and with `halves` both are of one input [2, 5, 48].
struct GatedProduct {
  Graph g;
  std::vector<Value> inputs;
  Value activated;

  explicit GatedProduct(const Gate& gate, bool gate_last = false, DType type = DType::f32, bool halves = false,
                        Shape b_shape = {2, 5, 24})
      : g(type) {
    Value a, b;
    if (halves) {
      inputs = {g.add_input("x", {type, {2, 5, 48}})};
      const auto parts =
          g.add(split_op, {inputs[0]}, {{"axis", int64_t{2}}, {"sizes", std::vector<int64_t>{24, 24}}}, 0);
      a = parts[0], b = parts[1];
    } else {
      inputs = {a = g.add_input("a", {type, {2, 5, 24}}), b = g.add_input("b", {type, std::move(b_shape)})};
    }
    activated = g.add(gate.op, {a}, gate.attrs, 0)[0];
    const std::vector<Value> factors = gate_last ? std::vector{b, activated} : std::vector{activated, b};
    g.outputs["y"] = g.add(mul_op, factors, {}, 0)[0];
  }
  int64_t count(const OpDef& op) const {
    return std::ranges::count_if(g.nodes, [&](const Node& node) { return node.op == &op; });
  }
};

// y and the gradients of the inputs from `first` on, of the loss sum(w y).
Tensors run_with_gradients(Device& device, GatedProduct& p, size_t first) {
  Graph& g = p.g;
  const auto one = [&](const OpDef& op, std::vector<Value> in, Attrs attrs = {}) {
    return g.add(op, std::move(in), std::move(attrs), 0)[0];
  };
  const auto typed = [&](const HostTensor& t, DType type) {
    HostTensor result({type, t.desc.shape});
    convert(DType::f32, t.data.data(), type, result.data.data(), t.desc.shape.numel());
    return result;
  };
  const Value wide = one(cast_op, {g.outputs.at("y")}, {{"dtype", static_cast<int64_t>(DType::f32)}});
  const Value product = one(mul_op, {wide, g.add_constant(ramp({2, 5, 24}, 9))});
  const Value sum = one(sum_op, {product}, {{"axes", std::vector<int64_t>{0, 1, 2}}});
  const Value loss = one(reshape_op, {sum}, {{"shape", std::vector<int64_t>{1}}});
  const float seed = 1;
  const Value start = g.add_constant(HostTensor::from_floats({1}, std::span(&seed, 1)));
  const std::vector<Value> trained(p.inputs.begin() + static_cast<int64_t>(first), p.inputs.end());
  for (const auto& [v, gradient] : differentiate(g, loss, start, trained)) g.outputs["d" + g.info(v).name] = gradient;
  prune(g);
  Tensors given;
  for (size_t i = 0; i < p.inputs.size(); ++i)
    given[g.info(p.inputs[i]).name] =
        typed(ramp(g.desc(p.inputs[i]).shape, static_cast<int64_t>(i)), g.desc(p.inputs[i]).dtype);
  Tensors result = run_graph(device, g, given);
  for (auto& [name, tensor] : result) {
    HostTensor floats({DType::f32, tensor.desc.shape});
    convert(tensor.desc.dtype, tensor.data.data(), DType::f32, floats.data.data(), floats.desc.shape.numel());
    tensor = std::move(floats);
  }
  return result;
}

// Rounded where the separate ops store a value, so the results are theirs, but for the last place of float32, by which
// act(a) may differ in the backward pass, and which may tip a rounding.
void expect_equal(const Tensors& got, const Tensors& want, DType type) {
  const double unit = type == DType::f32 ? 0x1p-21 : type == DType::f16 ? 0x1p-10 : 0x1p-7;
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, tensor] : want) {
    const auto w = tensor.as<float>(), h = got.at(name).as<float>();
    int64_t different = 0;
    for (size_t i = 0; i < w.size(); ++i) {
      EXPECT_NEAR(h[i], w[i], unit * std::abs(static_cast<double>(w[i])) + 1e-7) << name << " " << i;
      different += h[i] != w[i];
    }
    EXPECT_TRUE(type == DType::f32 || different <= 2) << name << ": " << different << " differ";
  }
}

TEST(FuseGatedActivation, KeepsResultsAndGradients) {
  Device device(tested_device());
  for (const Gate& gate : std::span(gates).first(4))
    for (const DType type : {DType::f32, DType::f16, DType::bf16})
      for (const bool gate_last : {false, true})
        for (const size_t trained : {0, 1}) {
          GatedProduct plain(gate, gate_last, type), fused(gate, gate_last, type);
          fuse(fused.g);
          EXPECT_EQ(fused.count(gated_activation_op), 1);
          EXPECT_EQ(fused.g.nodes.size(), 1u);
          const Tensors want = run_with_gradients(device, plain, trained);
          const Tensors got = run_with_gradients(device, fused, trained);
          EXPECT_EQ(fused.count(unary_backward_op), 0);
          ASSERT_EQ(got.size(), 3 - trained);
          expect_equal(got, want, type);
        }
}

TEST(FuseGatedActivation, TakesTheHalvesOfASplit) {
  Device device(tested_device());
  GatedProduct plain(gates[1], false, DType::f32, true), fused(gates[1], false, DType::f32, true);
  fuse(fused.g);
  EXPECT_EQ(fused.g.nodes.size(), 2u);  // the split and the product
  EXPECT_EQ(fused.count(gated_activation_op), 1);
  const Tensors want = run_with_gradients(device, plain, 0);
  expect_equal(run_with_gradients(device, fused, 0), want, DType::f32);
}

TEST(FuseGatedActivation, LeavesOtherProducts) {
  GatedProduct read(gates[0]);
  read.g.outputs["activated"] = read.activated;  // stored anyway
  GatedProduct quick(gates[4]);
  GatedProduct broadcast(gates[0], false, DType::f32, false, {2, 1, 24});
  for (GatedProduct* const p : {&read, &quick, &broadcast}) {
    fuse(p->g);
    EXPECT_EQ(p->count(gated_activation_op), 0);
    EXPECT_EQ(p->g.nodes.size(), 2u);
  }
  GatedProduct square(gates[0]);  // silu(a) * silu(a)
  square.g.outputs["y"] = square.g.add(mul_op, {square.activated, square.activated}, {}, 0)[0];
  fuse(square.g);
  EXPECT_EQ(square.count(gated_activation_op), 0);
}

}  // namespace
}  // namespace lh::fuse_test
