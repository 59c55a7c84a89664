// Finds the groups, then puts the nodes in order once: each has a place, which is its own number, or that of the first
// layer of the group that it moves in front of.
#include "passes/group_layers.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "lora_kernels_group.h"
#include "ops/lora_group.h"
#include "ops/ops.h"
#include "passes/recompute.h"
#include "passes/rows.h"
#include "passes/uses.h"

namespace lh {
namespace {

// FLOP of a layer's product, a fifth of a millisecond of the fastest GPUs: what takes longer fills them by itself, and
// gains less than what recomputation and streaming lose by layers that are to be had together alone.
constexpr double most_flops = 1.4e11;

// Up to LK_FEW_ROWS rows the time goes into reading each weight.
bool gains(const Graph& graph, const Node& layer) {
  const Shape &x = graph.desc(layer.inputs[0]).shape, &y = graph.desc(layer.outputs[0]).shape;
  return rows_of(graph, layer.inputs[0]) > LK_FEW_ROWS &&
         2 * static_cast<double>(y.numel()) * static_cast<double>(x[x.rank() - 1]) <= most_flops;
}

// Numbers of nodes.
using Nodes = std::vector<size_t>;

class Grouping {
 public:
  explicit Grouping(const Graph& graph) : graph_(graph), uses_(graph), place_(graph.nodes.size()) {
    for (size_t n = 0; n < graph.nodes.size(); ++n) place_[n] = {n, 1, n};
  }

  // By their first layer: the nodes of each group, in order.
  std::map<size_t, Nodes> groups() {
    std::map<std::tuple<Value, int32_t, lk_products>, Nodes> open;  // one for each x, block and kind of products
    std::map<size_t, Nodes> all;
    const auto close = [&](Nodes& group) {
      if (group.size() > 1) all[group.front()] = std::move(group);
      group.clear();
    };
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      const int32_t block = checkpoint_scope(graph_, node.scope);
      if (node.op != &lora_op || block < 0 || !gains(graph_, node)) continue;
      Nodes& group = open[{node.inputs[0], block, products_of(node.attrs)}];
      if (group.size() == LK_LORA_GROUP_MAX) close(group);
      if (group.empty() || comes_before(group.front(), node)) group.push_back(n);
    }
    for (auto& [key, group] : open) close(group);
    return all;
  }

  // All nodes by place.
  Nodes order() const {
    Nodes numbers(place_.size());
    for (size_t n = 0; n < numbers.size(); ++n) numbers[n] = n;
    std::ranges::sort(numbers, {}, [&](size_t n) { return place_[n]; });
    return numbers;
  }

 private:
  using Place = std::tuple<size_t, int, size_t>;  // of what stands in front of node n: n, 0, its own number

  // Whether what the layer reads can stand in front of node `first`; then it does.
  bool comes_before(size_t first, const Node& layer) {
    std::set<size_t> moving;
    if (!find(first, layer, moving)) return false;
    for (const size_t n : moving) place_[n] = {first, 0, n};
    return true;
  }
  // The nodes behind `first` that `node` waits for; false where one of them is a layer.
  bool find(size_t first, const Node& node, std::set<size_t>& moving) const {
    return std::ranges::all_of(node.inputs, [&](Value in) {
      const std::optional<size_t> maker = in ? uses_.maker[in.id] : std::nullopt;
      if (!maker || place_[*maker] < Place{first, 1, first} || moving.contains(*maker)) return true;
      const Node& waits_for = graph_.nodes[*maker];
      if (waits_for.op == &lora_op || !find(first, waits_for, moving)) return false;
      moving.insert(*maker);
      return true;
    });
  }

  const Graph& graph_;
  const Uses uses_;
  std::vector<Place> place_;  // by node
};

}  // namespace

Node group_of(const Graph& graph, std::span<const size_t> layers) {
  const Node& first = graph.nodes[layers.front()];
  Node group{.op = &lora_group_op, .inputs = {first.inputs[0]}, .outputs = {}, .attrs = {}, .scope = first.scope};
  take_products(first.attrs, group.attrs);
  for (size_t i = 0; i < layers.size(); ++i) {
    const Node& layer = graph.nodes[layers[i]];  // x, then what a layer of a group has
    group.inputs.insert(group.inputs.end(), layer.inputs.begin() + 1, layer.inputs.end());
    group.outputs.insert(group.outputs.end(), layer.outputs.begin(), layer.outputs.end());
    group.attrs.set(lora_scale_attr(i), layer.attrs.f("scale"));
  }
  return group;
}

void group_layers(Graph& graph) {
  Grouping grouping(graph);
  const std::map<size_t, Nodes> groups = grouping.groups();
  if (groups.empty()) return;
  std::set<size_t> within;  // behind the first of their group
  for (const auto& [first, layers] : groups) within.insert(layers.begin() + 1, layers.end());
  std::vector<Node> nodes;
  for (const size_t n : grouping.order()) {
    if (const auto found = groups.find(n); found != groups.end())
      nodes.push_back(group_of(graph, found->second));
    else if (!within.contains(n))
      nodes.push_back(std::move(graph.nodes[n]));
  }
  graph.nodes = std::move(nodes);
}

}  // namespace lh
