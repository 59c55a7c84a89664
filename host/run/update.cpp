#include "run/update.h"

#include <algorithm>
#include <set>

#include "core/error.h"
#include "graph/op.h"
#include "passes/fuse_pointwise.h"

namespace lh {
namespace {

// Result i of the node may be stored over `input`.
bool stored_over(const Node& node, size_t i, Value input) {
  if (i >= node.op->in_place.size()) return false;
  const size_t from = node.op->in_place[i];
  return from < node.inputs.size() && node.inputs[from] == input;
}

// The op that makes `v` may write it straight over `input`, which no later op reads, itself or through an alias.
bool made_in_place(const Graph& graph, Value v, Value input) {
  std::set<Value> same_storage{input};
  bool made = false;
  for (const Node& node : graph.nodes) {
    const bool reads = std::ranges::any_of(node.inputs, [&](Value in) { return same_storage.contains(in); });
    if (made && reads) return false;
    if (node.op->alias && reads) same_storage.insert(node.outputs[0]);
    for (size_t i = 0; i < node.outputs.size(); ++i)
      if (node.outputs[i] == v) made = stored_over(node, i, input);
  }
  return made &&
         std::ranges::none_of(graph.outputs, [&](const auto& item) { return same_storage.contains(item.second); });
}

bool all_elementwise(const Graph& graph) {
  return std::ranges::all_of(graph.nodes, [](const Node& node) { return node.op->elementwise; });
}

}  // namespace

UpdatePlan::UpdatePlan(const Optimizer& rule, const Shape& of)
    : optimizer(rule.id()), shape(of), graph(rule.build_update(of)), elementwise(all_elementwise(graph)) {
  std::set<std::string> known{"p", "g", "lr", "step"};
  known.insert(rule.states().begin(), rule.states().end());
  for (const auto& [name, value] : graph.inputs) {
    if (!known.contains(name))
      fail(Code::plugin, "optimizer '{}' asks for the input '{}', which is neither p, g, lr, step nor a state of it",
           optimizer, name);
    external[value] = name;
  }
  std::map<Value, Value> replaces;
  for (const auto& [name, value] : graph.outputs)
    if (graph.inputs.contains(name)) replaces[value] = graph.inputs.at(name);
  fuse_pointwise(graph, replaces);
  for (const auto& [name, value] : graph.outputs) {
    if (graph.inputs.contains(name) && made_in_place(graph, value, graph.inputs.at(name)))
      external[value] = name;
    else
      copied.emplace_back(value, name);
  }
  std::set<Value> values;
  for (const auto& [value, name] : external) values.insert(value);
  plan = plan_memory(graph, values);
}

bool UpdatePlan::one_pass() const { return plan.bytes == 0 && copied.empty() && elementwise; }

Update::Update(Device& device, const UpdatePlan& plan, const std::map<std::string, void*>& storage, std::byte* arena)
    : device_(device) {
  Externals externals;
  for (const auto& [value, name] : plan.external) externals[value] = storage.at(name);
  program_ = std::make_unique<Program>(device, plan.graph, plan.plan, arena, externals);
  for (const auto& [value, name] : plan.copied)
    copies_.push_back({program_->tensor(value), kernel_tensor({DType::f32, plan.shape}, storage.at(name))});
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
