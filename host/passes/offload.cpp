// Puts the copies into the list of nodes, and gives readers in the backward pass what came back.
#include "passes/offload.h"

#include <algorithm>
#include <map>

#include "ops/ops.h"
#include "passes/recompute.h"

namespace lh {
namespace {

constexpr int64_t blocks_ahead = 2;

}  // namespace

Parts::Parts(const Graph& graph) : maker_(graph.value_count() + 1, nullptr), into_(graph.value_count() + 1) {
  const size_t forward = forward_count(graph);
  for (size_t n = 0; n < forward; ++n) {
    const Node& node = graph.nodes[n];
    if (node.op->alias || is_cut(node))
      for (const Value out : node.outputs) maker_[out.id] = &node;
    if (node.op->alias || node.op == &concat_op)
      for (size_t i = 0; i < node.inputs.size(); ++i) into_[node.inputs[i].id].emplace_back(&node, i);
  }
}

// Results come behind what goes into them, so the search ends.
bool Parts::within_result(Value v, const std::set<Value>& wholes) const {
  return wholes.contains(v) || std::ranges::any_of(into_[v.id], [&](const auto& into) {
           return within_result(into.first->outputs[0], wholes);
         });
}

std::optional<Parts::Origin> Parts::origin(Value v, const std::set<Value>& wholes) const {
  if (wholes.contains(v)) return Origin{};
  for (const auto& [node, index] : into_[v.id])
    if (within_result(node->outputs[0], wholes)) return Origin{.node = node, .of_result = true, .index = index};
  const Node* const maker = maker_[v.id];
  if (maker != nullptr && origin(maker->inputs[0], wholes)) return Origin{.node = maker};
  return std::nullopt;
}

BlockSpans blocks_of(const Graph& graph) {
  std::map<int32_t, int64_t> number;
  for (const int32_t scope : checkpoint_scopes(graph)) number.emplace(scope, static_cast<int64_t>(number.size()));
  const size_t forward = forward_count(graph);
  BlockSpans blocks{.of = {}, .spans = std::vector<BlockSpans::Span>(number.size())};
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const auto found = number.find(checkpoint_scope(graph, graph.nodes[n].scope));
    blocks.of.push_back(found != number.end() ? found->second : -1);
    if (found == number.end()) continue;
    BlockSpans::Span& span = blocks.spans[static_cast<size_t>(found->second)];
    if (n < forward)
      span.forward_end = n;
    else if (span.backward_begin == 0)
      span.backward_begin = n;
  }
  return blocks;
}

std::optional<Voyage> voyage(const BlockSpans& blocks, Value value, size_t made, size_t needed) {
  const auto count = static_cast<int64_t>(blocks.spans.size());
  const int64_t from = blocks.of[made], to = blocks.of[needed];
  if (from < 0 || to < 0 || from + blocks_ahead >= count || to + blocks_ahead >= count) return std::nullopt;
  const Voyage found{.value = value,
                     .made = made,
                     .landed = blocks.spans[static_cast<size_t>(from + blocks_ahead)].forward_end,
                     .back = blocks.spans[static_cast<size_t>(to + blocks_ahead)].backward_begin,
                     .block = from};
  if (found.landed <= made || found.back <= found.landed || found.back >= needed) return std::nullopt;
  return found;
}

void offload(Graph& graph, const std::vector<Voyage>& voyages) {
  if (voyages.empty()) return;
  const Parts parts(graph);
  const size_t backward = forward_count(graph);
  const std::vector<Node> old = std::move(graph.nodes);
  graph.nodes = {};
  std::map<size_t, std::vector<const Voyage*>> made, landed, back;  // by node
  std::set<Value> wholes;
  for (const Voyage& v : voyages) {
    made[v.made].push_back(&v);
    landed[v.landed].push_back(&v);
    back[v.back].push_back(&v);
    wholes.insert(v.value);
  }
  std::map<Value, Value> there, kept;  // in host memory
  std::map<Value, Value> restored;     // on the device again, with their parts

  // What to read instead of `v`.
  const auto instead = [&](auto&& self, Value v) -> Value {
    if (const auto found = restored.find(v); found != restored.end()) return found->second;
    const std::optional<Parts::Origin> origin = v ? parts.origin(v, wholes) : std::nullopt;
    if (!origin || origin->node == nullptr) return v;
    const Node& node = *origin->node;
    if (!origin->of_result) {
      const std::vector<Value> fresh = graph.add(*node.op, {self(self, node.inputs[0])}, node.attrs, node.scope);
      for (size_t i = 0; i < fresh.size(); ++i) restored.emplace(node.outputs[i], fresh[i]);
      return restored.at(v);
    }
    const Value whole = self(self, node.outputs[0]);
    const Shape shape = graph.desc(v).shape;
    if (node.op->alias) {
      const std::span<const int64_t> dims = shape.dims();
      const Attrs attrs{{"shape", std::vector<int64_t>(dims.begin(), dims.end())}};
      return restored[v] = graph.add(reshape_op, {whole}, attrs, node.scope)[0];
    }
    const int64_t axis = axis_of(graph.desc(v), node.attrs.i("axis"));
    int64_t start = 0;
    for (size_t i = 0; i < origin->index; ++i) start += graph.desc(node.inputs[i]).shape[axis];
    return restored[v] =
               graph.add(slice_op, {whole}, {{"axis", axis}, {"start", start}, {"length", shape[axis]}}, node.scope)[0];
  };

  for (size_t n = 0; n < old.size(); ++n) {
    for (const Voyage* v : back[n])
      restored[v->value] = graph.add(fetch_op, {kept.at(v->value)}, {}, old[v->made].scope)[0];
    Node node = old[n];
    if (n >= backward)
      for (Value& in : node.inputs) in = instead(instead, in);
    graph.nodes.push_back(std::move(node));
    for (const Voyage* v : made[n]) there[v->value] = graph.add(offload_op, {v->value}, {}, old[n].scope)[0];
    for (const Voyage* v : landed[n])
      kept[v->value] = graph.add(landed_op, {there.at(v->value), v->value}, {}, old[v->made].scope)[0];
  }
}

std::vector<std::pair<Value, Value>> offloaded_values(const Graph& graph) {
  std::vector<std::pair<Value, Value>> values;
  for (const Node& node : graph.nodes)
    if (node.op == &landed_op) values.emplace_back(node.inputs[0], node.outputs[0]);
  return values;
}

}  // namespace lh
