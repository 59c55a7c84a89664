#include "run/update.h"

#include <algorithm>
#include <set>

#include "core/error.h"
#include "graph/op.h"

namespace lh {
namespace {

// The op that makes `v` may write it straight over the input called `name`.
bool made_in_place(const Graph& graph, Value v, Value input) {
  for (const Node& node : graph.nodes)
    for (size_t i = 0; i < node.outputs.size(); ++i)
      if (node.outputs[i] == v) return i < node.op->in_place.size() && node.inputs[node.op->in_place[i]] == input;
  return false;
}

}  // namespace

Update::Update(Device& device, const Optimizer& optimizer, const Shape& shape,
               const std::map<std::string, void*>& storage)
    : device_(device) {
  Graph graph = optimizer.build_update(shape);
  Externals externals;
  for (const auto& [name, value] : graph.inputs) {
    const auto it = storage.find(name);
    if (it == storage.end())
      fail(Code::plugin, "optimizer '{}' asks for the input '{}', which is neither p, g, lr, step nor a state of it",
           optimizer.id(), name);
    externals[value] = it->second;
  }
  std::vector<std::pair<Value, void*>> copied;
  for (const auto& [name, value] : graph.outputs) {
    void* target = storage.at(name);
    if (graph.inputs.contains(name) && made_in_place(graph, value, graph.inputs.at(name)))
      externals[value] = target;
    else
      copied.emplace_back(value, target);
  }
  std::set<Value> external;
  for (const auto& [value, data] : externals) external.insert(value);
  Plan plan = plan_memory(graph, external);
  arena_ = DeviceMemory(device, plan.bytes, "optimizer update");
  program_ = std::make_unique<Program>(device, std::move(graph), std::move(plan), arena_.data(), externals);
  for (const auto& [value, target] : copied)
    copies_.push_back({program_->tensor(value), kernel_tensor({DType::f32, shape}, target)});
}

void Update::run() {
  program_->run();
  for (const Copy& copy : copies_) {
    lk_cast_params p{};
    p.x = copy.from;
    p.y = copy.to;
    device_.check(lk_cast(device_.context(), &p), "optimizer result");
  }
}

}  // namespace lh
