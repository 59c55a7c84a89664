// Copies a scope's nodes in front of its backward pass.
#include "passes/recompute.h"

#include <algorithm>
#include <map>

#include "graph/op.h"

namespace lh {

int32_t checkpoint_scope(const Graph& graph, int32_t scope) {
  int32_t found = -1;
  for (int32_t s = scope; s > 0; s = graph.scopes[static_cast<size_t>(s)].parent)
    if (graph.scopes[static_cast<size_t>(s)].checkpoint) found = s;
  return found;
}

std::vector<int32_t> checkpoint_scopes(const Graph& graph) {
  std::vector<int32_t> result;
  for (const Node& node : graph.nodes) {
    const int32_t scope = checkpoint_scope(graph, node.scope);
    if (scope >= 0 && std::ranges::find(result, scope) == result.end()) result.push_back(scope);
  }
  return result;
}

void recompute(Graph& graph, size_t forward_count, const std::set<int32_t>& scopes) {
  // Where each value of the forward pass comes from, and which of them other scopes or graph outputs read.
  std::map<Value, size_t> producer;
  std::set<Value> kept;
  for (size_t n = 0; n < forward_count; ++n)
    for (const Value out : graph.nodes[n].outputs) producer[out] = n;
  const auto scope_of = [&](Value v) {
    const auto it = producer.find(v);
    return it == producer.end() ? -1 : checkpoint_scope(graph, graph.nodes[it->second].scope);
  };
  for (size_t n = 0; n < forward_count; ++n)
    for (const Value in : graph.nodes[n].inputs)
      if (in && scope_of(in) != checkpoint_scope(graph, graph.nodes[n].scope)) kept.insert(in);
  for (const auto& [name, v] : graph.outputs) kept.insert(v);

  std::vector<Node> backward(graph.nodes.begin() + static_cast<int64_t>(forward_count), graph.nodes.end());
  graph.nodes.resize(forward_count);
  std::map<Value, Value> clone;  // dropped value -> its recomputed twin

  // Clones the producer of `v` (and what it needs) if `v` was dropped; gives the value to read instead.
  const auto restored = [&](auto&& self, Value v) -> Value {
    if (!v || kept.contains(v) || !scopes.contains(scope_of(v))) return v;
    if (const auto it = clone.find(v); it != clone.end()) return it->second;
    Node node = graph.nodes[producer.at(v)];
    for (Value& in : node.inputs) in = self(self, in);
    const std::vector<Value> old = node.outputs;
    const std::vector<Value> fresh = graph.add(*node.op, std::move(node.inputs), std::move(node.attrs), node.scope);
    for (size_t i = 0; i < old.size(); ++i) clone[old[i]] = fresh[i];
    return clone.at(v);
  };
  for (Node& node : backward) {
    for (Value& in : node.inputs) in = restored(restored, in);
    graph.nodes.push_back(std::move(node));
  }
}

}  // namespace lh
