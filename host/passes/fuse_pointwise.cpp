#include "passes/fuse_pointwise.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <vector>

#include "graph/op.h"
#include "passes/pointwise_program.h"
#include "passes/prune.h"

namespace lh {
namespace {

using NodeSet = std::set<size_t>;  // indices, in the order of execution

// The nodes in groups, of which each becomes one node. A group stands in `groups_` at the index of its first node.
class Fusion {
 public:
  Fusion(const Graph& graph, const std::map<Value, Value>& replaces)
      : graph_(graph),
        replaces_(replaces),
        maker_(graph.value_count() + 1),
        readers_(graph.nodes.size()),
        inside_(graph.nodes.size(), 0) {
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      for (const Value v : graph.nodes[n].inputs)
        if (v && maker_[v.id]) readers_[*maker_[v.id]].push_back(n);
      for (const Value v : graph.nodes[n].outputs) maker_[v.id] = n;
    }
    for (const auto& [name, v] : graph.outputs) kept_.insert(v);
    for (size_t n = graph.nodes.size(); n-- > 0;) inside_[n] = computed_inside(n);
    for (size_t n = 0; n < graph.nodes.size(); ++n)
      if (inside_[n] == 0 && takes(n) && !program({n})) std::ranges::fill(inside_, 0);  // too much of it
    for (size_t n = 0; n < graph.nodes.size(); ++n)
      if (inside_[n] == 0) groups_[n] = {n};
    for (const auto& [at, group] : groups_)
      for (const size_t n : group) group_of_[n] = at;
  }

  void join_all() {
    for (bool joined = true; joined;) {
      joined = false;
      for (auto b = groups_.begin(); b != groups_.end();) {
        const auto a = std::find_if(groups_.begin(), b, [&](const auto& a) { return joinable(a.second, b->second); });
        if (a == b) {
          ++b;
          continue;
        }
        for (const size_t n : b->second) group_of_[n] = a->first;
        a->second.merge(b->second);
        b = groups_.erase(b);
        joined = true;
      }
    }
  }

  // One node for each group, in an order that keeps a group as late as its last node, so that what reads a value comes
  // before what is stored over it.
  std::vector<Node> nodes() const {
    std::vector<Node> list;
    std::set<size_t> done;
    std::vector<size_t> order;
    for (const auto& [at, group] : groups_) order.push_back(at);
    std::ranges::sort(order, {}, [&](size_t at) { return *groups_.at(at).rbegin(); });
    const std::function<void(size_t)> place = [&](size_t at) {
      if (!done.insert(at).second) return;
      for (const size_t before : makers(groups_.at(at))) place(before);
      list.push_back(made(groups_.at(at)));
    };
    for (const size_t at : order) place(at);
    return list;
  }

 private:
  bool single(size_t n) const { return graph_.desc(graph_.nodes[n].outputs[0]).shape.numel() == 1; }
  bool takes(size_t n) const { return pointwise_node(graph_, graph_.nodes[n]); }
  bool kept(size_t n) const {
    return std::ranges::any_of(graph_.nodes[n].outputs, [&](Value v) { return kept_.contains(v); });
  }

  // One number that nothing but larger programs reads. Called after the nodes that read it were looked at.
  bool computed_inside(size_t n) const {
    const Node& node = graph_.nodes[n];
    if (!single(n) || !takes(n) || kept(n) || node.outputs.size() != 1 || readers_[n].empty()) return false;
    return std::ranges::all_of(readers_[n], [&](size_t r) {
      const Node& reader = graph_.nodes[r];
      if (!takes(r) || (single(r) && inside_[r] == 0)) return false;
      for (size_t i = 0; i < reader.inputs.size(); ++i)
        if (reader.inputs[i] == node.outputs[0] && !pointwise_reads(graph_, reader, i, node)) return false;
      return true;
    });
  }

  // The groups that make what the nodes read, themselves or through numbers computed inside.
  std::set<size_t> makers(const NodeSet& nodes) const {
    std::set<size_t> found, seen;
    const std::function<void(size_t)> visit = [&](size_t n) {
      if (!seen.insert(n).second) return;
      for (const Value v : graph_.nodes[n].inputs) {
        if (!v || !maker_[v.id]) continue;
        const size_t maker = *maker_[v.id];
        if (inside_[maker] != 0)
          visit(maker);
        else if (!nodes.contains(maker))
          found.insert(group_of_.at(maker));
      }
    };
    for (const size_t n : nodes) visit(n);
    return found;
  }

  // Whether a way leads from group `from` to the nodes, over groups other than theirs.
  bool reached(const NodeSet& nodes, size_t from) const {
    std::set<size_t> seen;
    const std::function<bool(const NodeSet&, bool)> visit = [&](const NodeSet& group, bool first) {
      return std::ranges::any_of(makers(group), [&](size_t before) {
        if (before == from) return !first;  // a direct edge is none that leads out
        return seen.insert(before).second && visit(groups_.at(before), false);
      });
    };
    return visit(nodes, true);
  }

  bool joinable(const NodeSet& a, const NodeSet& b) const {
    const size_t first = *a.begin(), second = *b.begin();
    if (!takes(first) || !takes(second)) return false;
    const auto shape = [&](size_t n) { return graph_.desc(graph_.nodes[n].outputs[0]).shape; };
    if (shape(first) != shape(second)) return false;
    if (reached(a, group_of_.at(second)) || reached(b, group_of_.at(first))) return false;
    NodeSet all = a;
    all.insert(b.begin(), b.end());
    return reads_values(all) && program(all).has_value();
  }

  bool reads_values(const NodeSet& nodes) const {
    for (const size_t n : nodes) {
      const Node& node = graph_.nodes[n];
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const auto maker = node.inputs[i] ? maker_[node.inputs[i].id] : std::nullopt;
        if (maker && nodes.contains(*maker) && !pointwise_reads(graph_, node, i, graph_.nodes[*maker])) return false;
      }
    }
    return true;
  }

  std::optional<Node> program(const NodeSet& nodes) const {
    PointwiseBuilder builder(graph_);
    std::set<size_t> added;
    const std::function<void(size_t)> add = [&](size_t n) {
      if (!added.insert(n).second) return;
      for (const Value v : graph_.nodes[n].inputs)
        if (v && maker_[v.id] && inside_[*maker_[v.id]] != 0) add(*maker_[v.id]);
      builder.add(graph_.nodes[n]);
    };
    for (const size_t n : nodes) add(n);
    for (const size_t n : nodes) {
      const bool read = std::ranges::any_of(readers_[n], [&](size_t r) { return !nodes.contains(r); });
      if (read || kept(n)) builder.store(graph_.nodes[n]);
    }
    return builder.finish(replaces_, graph_.nodes[*nodes.begin()].scope);
  }

  // A node by itself stays what it is.
  Node made(const NodeSet& nodes) const {
    const Node& first = graph_.nodes[*nodes.begin()];
    const bool alone = nodes.size() == 1 && std::ranges::none_of(first.inputs, [&](Value v) {
                         return v && maker_[v.id] && inside_[*maker_[v.id]] != 0;
                       });
    return alone ? first : *program(nodes);
  }

  const Graph& graph_;
  const std::map<Value, Value>& replaces_;
  std::vector<std::optional<size_t>> maker_;  // by value id: the node
  std::vector<std::vector<size_t>> readers_;  // by node
  std::vector<char> inside_;                  // by node: computed by every program that reads it
  std::set<Value> kept_;
  std::map<size_t, NodeSet> groups_;
  std::map<size_t, size_t> group_of_;
};

}  // namespace

void fuse_pointwise(Graph& graph, const std::map<Value, Value>& replaces) {
  prune(graph);  // a program has results that are read
  Fusion fusion(graph, replaces);
  fusion.join_all();
  graph.nodes = fusion.nodes();
}

}  // namespace lh
