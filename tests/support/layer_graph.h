// Graphs of a few layers with adapters, for tests of passes that look at what stands beside a layer.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "ops/ops.h"
#include "passes/differentiate.h"
#include "passes/prune.h"
#include "support/device.h"
#include "support/graph_run.h"

namespace lh::test {

struct LayerGraph {
  static constexpr int64_t width = 128, rank = 4;

  Graph g;
  Tensors given;
  std::vector<Value> trained;
  Value x;  // [2, 5, width]

  explicit LayerGraph(DType type = DType::f32) : g(type) { x = param("x", {2, 5, width}); }

  Value one(const OpDef& op, std::vector<Value> in, Attrs attrs = {}) {
    return g.add(op, std::move(in), std::move(attrs), 0)[0];
  }
  Value param(const std::string& name, Shape shape, DType type) {
    const HostTensor floats = ramp(shape, static_cast<int64_t>(given.size()));
    HostTensor tensor({type, shape});
    convert(DType::f32, floats.data.data(), type, tensor.data.data(), shape.numel());
    given[name] = std::move(tensor);
    return g.add_param(name, {type, std::move(shape)});
  }
  Value param(const std::string& name, Shape shape) { return param(name, std::move(shape), g.compute); }
  Value layer(const std::string& name, Value in, int64_t out) {
    const int64_t columns = g.desc(in).shape[2];
    const Value down = param(name + ".down", {rank, columns}, DType::f32),
                up = param(name + ".up", {out, rank}, DType::f32);
    trained.push_back(down);
    trained.push_back(up);
    return one(lora_op,
               {in, param(name + ".weight", {out, columns}), param(name + ".bias", {out}), down, up, Value{}, Value{}},
               {{"scale", 0.0625 * static_cast<double>(trained.size())}});
  }
  // Of the mean square of the output `y` less some target, as outputs `d` and the name.
  void add_gradients() {
    const Value y = g.outputs.at("y"), f32 = one(cast_op, {y}, {{"dtype", static_cast<int64_t>(DType::f32)}});
    const Value target = g.add_constant(ramp(g.desc(y).shape, 77));
    g.outputs["loss"] = one(mse_op, {f32, target, Value{}});
    const float seed = 1;
    const Value start = g.add_constant(HostTensor::from_floats({1}, std::span(&seed, 1)));
    trained.push_back(x);
    for (const auto& [v, gradient] : differentiate(g, g.outputs.at("loss"), start, trained))
      g.outputs["d" + g.info(v).name] = gradient;
    prune(g);
  }
};

inline Tensors run_graph(Device& device, const LayerGraph& layers) { return run_graph(device, layers.g, layers.given); }

inline void expect_same_bits(const LayerGraph& plain, const LayerGraph& fused) {
  Device device(tested_device());
  const Tensors want = run_graph(device, plain), got = run_graph(device, fused);
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, tensor] : want) EXPECT_EQ(got.at(name).data, tensor.data) << name;
}

}  // namespace lh::test
