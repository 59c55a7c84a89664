// Runs a graph once: parameters in memory of their own, inputs set by name, outputs back on the host.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "run/program.h"

namespace lh::test {

using Tensors = std::map<std::string, HostTensor>;

inline int64_t count_nodes(const Graph& graph, const OpDef& op) {
  return std::ranges::count_if(graph.nodes, [&](const Node& node) { return node.op == &op; });
}

inline Tensors run_graph(Device& device, const Graph& graph, const Tensors& given) {
  std::map<std::string, DeviceMemory> memory;
  Externals externals;
  for (const auto& [name, value] : graph.params) {
    const HostTensor& tensor = given.at(name);
    const DeviceMemory& m = memory.emplace(name, DeviceMemory(device, tensor.desc.bytes(), name)).first->second;
    m.upload(0, tensor.data.data(), tensor.desc.bytes());
    externals[value] = m.data();
  }
  OwnedProgram program(device, graph, externals, "test");
  for (const auto& [name, value] : graph.inputs) program->set_input(name, given.at(name));
  program->run();
  Tensors outputs;
  for (const auto& [name, value] : graph.outputs) outputs[name] = program->output(name);
  return outputs;
}

// Values that look random and are the same everywhere: multiples of 1/64 in [-1, 1).
inline HostTensor ramp(Shape shape, int64_t seed) {
  HostTensor tensor(Desc{DType::f32, std::move(shape)});
  int64_t state = 2 * seed + 1;
  for (float& v : tensor.as<float>()) {
    state = (state * 1103515245 + 12345) & 0x7fffffff;
    v = static_cast<float>((state >> 16) % 128 - 64) / 64;
  }
  return tensor;
}

// ||got - want|| / ||want||
inline double relative_error(const HostTensor& got, const HostTensor& want) {
  double error = 0, size = 0;
  for (size_t i = 0; i < want.as<float>().size(); ++i) {
    const double w = want.as<float>()[i], d = got.as<float>()[i] - w;
    error += d * d;
    size += w * w;
  }
  return std::sqrt(error / size);
}

}  // namespace lh::test
