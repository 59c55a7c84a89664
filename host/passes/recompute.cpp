// Copies the makers of dropped values in front of their readers in the backward pass.
#include "passes/recompute.h"

#include <algorithm>
#include <map>

#include "graph/op.h"

namespace lh {
namespace {

// By value of the forward pass, the node that makes it.
std::map<Value, size_t> makers(const Graph& graph, size_t forward_count) {
  std::map<Value, size_t> maker;
  for (size_t n = 0; n < forward_count; ++n)
    for (const Value out : graph.nodes[n].outputs) maker[out] = n;
  return maker;
}

}  // namespace

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

size_t forward_count(const Graph& graph) {
  const Value loss = graph.outputs.at("loss");
  const auto gives = [&](const Node& node) { return std::ranges::find(node.outputs, loss) != node.outputs.end(); };
  return static_cast<size_t>(std::ranges::find_if(graph.nodes, gives) - graph.nodes.begin()) + 1;
}

std::set<Value> droppable(const Graph& graph, size_t forward_count) {
  std::map<Value, int32_t> inside;  // values made in a scope
  for (const auto& [v, n] : makers(graph, forward_count))
    if (const int32_t scope = checkpoint_scope(graph, graph.nodes[n].scope); scope >= 0) inside[v] = scope;
  for (size_t n = 0; n < forward_count; ++n)
    for (const Value in : graph.nodes[n].inputs)
      if (const auto it = inside.find(in);
          it != inside.end() && it->second != checkpoint_scope(graph, graph.nodes[n].scope))
        inside.erase(it);
  for (const auto& [name, v] : graph.outputs) inside.erase(v);
  std::set<Value> values;
  for (const auto& [v, scope] : inside) values.insert(v);
  return values;
}

void recompute(Graph& graph, size_t forward_count, const std::set<Value>& dropped) {
  const std::map<Value, size_t> maker = makers(graph, forward_count);
  std::vector<Node> backward(graph.nodes.begin() + static_cast<int64_t>(forward_count), graph.nodes.end());
  graph.nodes.resize(forward_count);
  std::map<Value, Value> clone;  // dropped value -> its recomputed twin

  // Clones the maker of `v` (and what it needs) if `v` was dropped; gives the value to read instead.
  const auto restored = [&](auto&& self, Value v) -> Value {
    if (!dropped.contains(v)) return v;
    if (const auto it = clone.find(v); it != clone.end()) return it->second;
    Node node = graph.nodes[maker.at(v)];
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
