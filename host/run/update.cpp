#include "run/update.h"

#include <algorithm>
#include <set>

#include "core/error.h"
#include "graph/op.h"

namespace lh {
namespace {

// The op that makes `v` may write it straight over `input`, which no later op reads, itself or through an alias.
bool made_in_place(const Graph& graph, Value v, Value input) {
  std::set<Value> same_storage{input};
  bool made = false;
  for (const Node& node : graph.nodes) {
    const bool reads = std::ranges::any_of(node.inputs, [&](Value in) { return same_storage.contains(in); });
    if (made && reads) return false;
    if (node.op->alias && reads) same_storage.insert(node.outputs[0]);
    for (size_t i = 0; i < node.outputs.size(); ++i)
      if (node.outputs[i] == v) made = i < node.op->in_place.size() && node.inputs[node.op->in_place[i]] == input;
  }
  return made &&
         std::ranges::none_of(graph.outputs, [&](const auto& item) { return same_storage.contains(item.second); });
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
