#include "passes/layout.h"

#include <set>

#include "graph/op.h"
#include "ops/ops.h"

namespace lh {
namespace {

// The place of the convolution's weight among the inputs of the node, -1 for other nodes.
int channels_last_weight(const Node& node) { return node.op->channels_last_input; }

// Parameters that something reads in the order of the file.
std::set<Value> read_in_order(const Graph& graph) {
  std::set<Value> values;
  for (const Node& node : graph.nodes)
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (static_cast<int>(i) != channels_last_weight(node)) values.insert(node.inputs[i]);
  for (const auto& [name, v] : graph.outputs) values.insert(v);
  return values;
}

}  // namespace

std::map<Value, Value> reordered_weights(const Graph& graph) {
  std::map<Value, Value> sources;
  for (const Node& node : graph.nodes)
    if (node.op == &to_channels_last_op) sources[node.outputs[0]] = node.inputs[0];
  return sources;
}

void settle_layouts(Graph& graph) {
  const std::set<Value> in_order = read_in_order(graph);
  const std::map<Value, Value> done = reordered_weights(graph);
  std::map<Value, Value> reordered;
  std::vector<Node> old;
  old.swap(graph.nodes);
  for (Node& node : old) {
    if (channels_last_weight(node) >= 0) {
      Value& weight = node.inputs[static_cast<size_t>(channels_last_weight(node))];
      if (graph.info(weight).kind == ValueKind::param && !in_order.contains(weight)) {
        graph.info(weight).channels_last = true;
      } else if (!done.contains(weight)) {
        Value& made = reordered[weight];
        if (!made) made = graph.add(to_channels_last_op, {weight}, {}, node.scope)[0];
        weight = made;
      }
    }
    graph.nodes.push_back(std::move(node));
  }
}

}  // namespace lh
