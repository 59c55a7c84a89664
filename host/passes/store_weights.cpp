#include "passes/store_weights.h"

#include <set>

#include "core/error.h"
#include "ops/ops.h"

namespace lh {
namespace {

constexpr size_t weight_input = 1, scale_input = 3;  // of linear

// Parameters that linear layers read as their weight, and that nothing else reads.
std::set<Value> linear_weights(const Graph& graph) {
  std::set<Value> weights, others;
  for (const Node& node : graph.nodes)
    for (size_t i = 0; i < node.inputs.size(); ++i)
      (node.op == &linear_op && i == weight_input ? weights : others).insert(node.inputs[i]);
  for (const auto& [name, v] : graph.outputs) others.insert(v);
  std::erase_if(weights, [&](Value v) { return graph.info(v).kind != ValueKind::param || others.contains(v); });
  return weights;
}

}  // namespace

std::string scale_name(const std::string& weight) { return weight + ".scale"; }

void store_weights(Graph& graph, const std::function<std::optional<WeightForm>(const std::string&)>& form) {
  for (const Value weight : linear_weights(graph)) {
    const std::string name = graph.info(weight).name;
    const std::optional<WeightForm> kept = form(name);
    if (!kept) continue;
    graph.info(weight).desc.dtype = kept->dtype;
    if (kept->factors == 0) continue;
    if (graph.params.contains(scale_name(name)))
      fail(Code::data, "the model has a weight '{}', which is the name of the scale of '{}'", scale_name(name), name);
    const Value scale = graph.add_param(scale_name(name), kept->scale());
    graph.info(weight).scale = scale;
  }
  for (Node& node : graph.nodes) {
    if (node.op != &linear_op) continue;
    const Value scale = graph.info(node.inputs[weight_input]).scale;
    if (!scale) continue;
    node.inputs.resize(scale_input + 1);
    node.inputs[scale_input] = scale;
  }
}

}  // namespace lh
