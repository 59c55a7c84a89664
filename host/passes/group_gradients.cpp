#include "passes/group_gradients.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "lora_kernels_group.h"
#include "ops/lora_gradients.h"
#include "ops/lora_group.h"
#include "passes/rows.h"

namespace lh {
namespace {

using G = LoraGradients;

// What the layers of an op read together, at most: by then a GPU is busy for ten times as long as it takes to start.
// And of what all layers read, so that those that wait are a small part of the memory of a small model, too.
constexpr int64_t most_bytes = int64_t{140} << 20, most_share = 32;

int64_t bytes_read(const Graph& graph, const Node& layer) {
  return graph.desc(layer.inputs[G::X]).bytes() + graph.desc(layer.inputs[G::DY]).bytes();
}

int64_t limit_of(const Graph& graph) {
  int64_t all = 0;
  for (const Node& node : graph.nodes)
    if (node.op == &lora_gradients_op) all += bytes_read(graph, node);
  return std::min(most_bytes, all / most_share);
}

// Layers that go together, in order: one at least.
class Group {
 public:
  bool takes(const Graph& graph, const Node& layer, int64_t limit) const {
    return nodes_.size() < LK_LORA_GRADIENTS_MAX && bytes_ + bytes_read(graph, layer) <= limit;
  }
  void add(const Graph& graph, size_t number, const Node& layer) {
    nodes_.push_back(number);
    bytes_ += bytes_read(graph, layer);
    made_.insert(layer.outputs.begin(), layer.outputs.end());
  }
  bool makes_input_of(const Node& node) const {
    return std::ranges::any_of(node.inputs, [&](Value in) { return made_.contains(in); });
  }
  const std::vector<size_t>& nodes() const { return nodes_; }

 private:
  std::vector<size_t> nodes_;
  int64_t bytes_ = 0;
  std::set<Value> made_;
};

std::vector<Group> groups_of(const Graph& graph) {
  const int64_t limit = limit_of(graph);
  std::vector<Group> groups;
  std::map<int64_t, Group> open;  // by rows
  const auto close = [&](Group& group) { groups.push_back(std::exchange(group, {})); };
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    for (auto& [rows, group] : open)
      if (group.makes_input_of(node)) close(group);
    if (node.op != &lora_gradients_op) continue;
    const int64_t rows = rows_of(graph, node.inputs[G::X]);
    if (rows <= LK_FEW_ROWS) continue;
    Group& group = open[rows];
    if (!group.takes(graph, node, limit)) close(group);
    group.add(graph, n, node);
  }
  for (auto& [rows, group] : open) close(group);
  return groups;
}

void append(Node& group, const Node& layer) {
  group.attrs.set(lora_scale_attr(G::layers(group.inputs.size())), layer.attrs.f(lora_scale_attr(0)));
  group.inputs.insert(group.inputs.end(), layer.inputs.begin(), layer.inputs.end());
  group.outputs.insert(group.outputs.end(), layer.outputs.begin(), layer.outputs.end());
}

}  // namespace

void group_gradients(Graph& graph) {
  for (const Group& group : groups_of(graph)) {
    if (group.nodes().size() < 2) continue;
    Node joined{.op = &lora_gradients_op};
    joined.scope = graph.nodes[group.nodes().back()].scope;
    for (const size_t n : group.nodes()) append(joined, std::exchange(graph.nodes[n], {}));
    graph.nodes[group.nodes().back()] = std::move(joined);
  }
  std::erase_if(graph.nodes, [](const Node& node) { return node.op == nullptr; });
}

}  // namespace lh
