// The fuse pass: what it recognises, what it leaves alone, and that results and gradients stay what they were.
#include "passes/fuse.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "ops/ops.h"
#include "passes/differentiate.h"
#include "passes/prune.h"
#include "support/device.h"
#include "support/graph_run.h"

namespace lh {
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

}  // namespace
}  // namespace lh
