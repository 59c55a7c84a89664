#include "passes/fuse_pointwise.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <vector>

#include "graph/op.h"
#include "ops/ops.h"
#include "passes/pointwise_program.h"
#include "passes/prune.h"

namespace lh {
namespace {

using NodeSet = std::set<size_t>;  // indices, in the order of execution

// The nodes in groups, of which each becomes one node. A group stands in `groups_` at the index of its first node.
class Fusion {
 public:
  // joins: whether neighbours will be joined, or each node only takes in what nothing but elementwise nodes reads.
  Fusion(const Graph& graph, const std::map<Value, Value>& replaces, bool joins)
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
    if (!joins) {
      choose_chains();
    } else if (!choose_inside(true) && !choose_inside(false)) {
      std::ranges::fill(inside_, 0);
      find_dependencies();
    }
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

  // One node for each group, in an order that keeps a group as late as its last node.
  std::vector<Node> nodes() const {
    std::vector<Node> list;
    std::set<size_t> done;
    std::vector<size_t> order;
    for (const auto& [at, group] : groups_) order.push_back(at);
    std::ranges::sort(order, {}, [&](size_t at) { return *groups_.at(at).rbegin(); });
    const std::function<void(size_t)> place = [&](size_t at) {
      if (!done.insert(at).second) return;
      for (const size_t before : earlier(groups_.at(at))) place(before);
      list.push_back(made(groups_.at(at)));
    };
    for (const size_t at : order) place(at);
    return list;
  }

 private:
  const Shape& shape(size_t n) const { return pointwise_shape(graph_, graph_.nodes[n]); }
  bool single(size_t n) const { return shape(n).numel() == 1; }
  bool takes(size_t n) const { return pointwise_node(graph_, graph_.nodes[n]); }
  bool kept(size_t n) const {
    return std::ranges::any_of(graph_.nodes[n].outputs, [&](Value v) { return kept_.contains(v); });
  }

  // large: not only single numbers.
  void put_inside(bool large) {
    std::ranges::fill(inside_, 0);
    for (size_t n = graph_.nodes.size(); n-- > 0;) inside_[n] = computed_inside(n, large);
    for (size_t n = 0; n < graph_.nodes.size(); ++n)
      if (inside_[n] != 0 && !single(n) && costly(n)) inside_[n] = 0;
    find_dependencies();
  }
  bool fits(size_t n) const { return inside_[n] != 0 || !takes(n) || program({n}); }

  // False where a node then needs more than one program.
  bool choose_inside(bool large) {
    put_inside(large);
    for (size_t n = 0; n < graph_.nodes.size(); ++n)
      if (!fits(n)) return false;
    return true;
  }

  // Where a node needs more than one program, it reads what is stored.
  void choose_chains() {
    put_inside(true);
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t n = 0; n < graph_.nodes.size(); ++n) {
        if (fits(n)) continue;
        for (const Value v : graph_.nodes[n].inputs)
          if (v && maker_[v.id]) inside_[*maker_[v.id]] = 0;
        changed = true;
      }
      if (changed) find_dependencies();
    }
  }

  // Read by programs only, and one number that only larger ones read. Called after the nodes that read it were looked
  // at.
  bool computed_inside(size_t n, bool large) const {
    const Node& node = graph_.nodes[n];
    if (!takes(n) || pointwise_reduction(graph_, node) || kept(n) || node.outputs.size() != 1 || readers_[n].empty())
      return false;
    if (!single(n) && (!large || node.op == &round_stochastic_op)) return false;
    return std::ranges::all_of(readers_[n], [&](size_t r) {
      const Node& reader = graph_.nodes[r];
      if (!takes(r) || (single(n) && single(r) && inside_[r] == 0)) return false;
      for (size_t i = 0; i < reader.inputs.size(); ++i)
        if (reader.inputs[i] == node.outputs[0] && !pointwise_reads(graph_, reader, i, node)) return false;
      return true;
    });
  }

  // Whether computing it again reads more than to store it and read it does. Called after the nodes that it reads.
  bool costly(size_t n) const {
    const Desc& own = graph_.desc(graph_.nodes[n].outputs[0]);
    int64_t bytes = 0;
    for (const Value v : read_from_memory(n)) {
      const Desc& read = graph_.desc(v);
      if (read.shape.numel() == own.shape.numel()) bytes += read.bytes();  // others stay in the cache
    }
    return bytes > 2 * own.bytes();
  }

  // What the node needs that is computed elsewhere.
  std::set<Value> read_from_memory(size_t n) const {
    std::set<Value> found;
    std::set<size_t> seen;
    const std::function<void(size_t)> visit = [&](size_t at) {
      if (!seen.insert(at).second) return;
      for (const Value v : graph_.nodes[at].inputs) {
        if (!v) continue;
        if (maker_[v.id] && inside_[*maker_[v.id]] != 0)
          visit(*maker_[v.id]);
        else
          found.insert(v);
      }
    };
    visit(n);
    return found;
  }

  // Which nodes come before each: those that make what it reads, and those that read what it is stored over, unless
  // one of them waits for it.
  void find_dependencies() {
    before_.clear();
    users_.clear();
    std::map<Value, std::vector<size_t>> reads;
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      if (inside_[n] != 0) continue;
      for (const Value v : read_from_memory(n)) {
        if (maker_[v.id]) {
          before_[n].insert(*maker_[v.id]);
          users_[*maker_[v.id]].insert(n);
        }
        Value stored = v;
        reads[stored].push_back(n);
        while (maker_[stored.id] && graph_.nodes[*maker_[stored.id]].op->alias) {
          stored = graph_.nodes[*maker_[stored.id]].inputs[0];
          reads[stored].push_back(n);
        }
      }
    }
    for (const auto& [result, input] : replaces_) {
      if (!maker_[result.id]) continue;
      const size_t writer = *maker_[result.id];
      const std::vector<size_t>& readers = reads[input];
      if (std::ranges::any_of(readers, [&](size_t r) { return r != writer && waits(r, writer); })) continue;
      for (const size_t r : readers)
        if (r != writer) before_[writer].insert(r);
    }
  }

  bool waits(size_t n, size_t for_node) const {
    std::set<size_t> seen;
    const std::function<bool(size_t)> visit = [&](size_t at) {
      if (at == for_node) return true;
      const auto found = before_.find(at);
      if (found == before_.end() || !seen.insert(at).second) return false;
      return std::ranges::any_of(found->second, visit);
    };
    return visit(n);
  }

  // The groups that come before the nodes'.
  std::set<size_t> earlier(const NodeSet& nodes) const {
    std::set<size_t> found;
    for (const size_t n : nodes) {
      const auto before = before_.find(n);
      if (before == before_.end()) continue;
      for (const size_t b : before->second)
        if (!nodes.contains(b)) found.insert(group_of_.at(b));
    }
    return found;
  }

  // Whether a way leads from group `from` to the nodes, over groups other than theirs.
  bool reached(const NodeSet& nodes, size_t from) const {
    std::set<size_t> seen;
    const std::function<bool(const NodeSet&, bool)> visit = [&](const NodeSet& group, bool first) {
      return std::ranges::any_of(earlier(group), [&](size_t before) {
        if (before == from) return !first;  // a direct edge is none that leads out
        return seen.insert(before).second && visit(groups_.at(before), false);
      });
    };
    return visit(nodes, true);
  }

  bool joinable(const NodeSet& a, const NodeSet& b) const {
    const size_t first = *a.begin(), second = *b.begin();
    if (!takes(first) || !takes(second)) return false;
    if (shape(first) != shape(second)) return false;
    if (reached(a, group_of_.at(second)) || reached(b, group_of_.at(first))) return false;
    NodeSet all = a;
    all.insert(b.begin(), b.end());
    return reads_values(all) && program(all).has_value();
  }

  // Whether what the nodes read of each other, themselves or through nodes inside, has a value within a program.
  bool reads_values(const NodeSet& nodes) const {
    std::set<size_t> seen;
    const std::function<bool(size_t)> good = [&](size_t n) {
      if (!seen.insert(n).second) return true;
      const Node& node = graph_.nodes[n];
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const auto maker = node.inputs[i] ? maker_[node.inputs[i].id] : std::nullopt;
        if (!maker) continue;
        if (inside_[*maker] != 0 && !good(*maker)) return false;
        if (nodes.contains(*maker) && !pointwise_reads(graph_, node, i, graph_.nodes[*maker])) return false;
      }
      return true;
    };
    return std::ranges::all_of(nodes, good);
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
      const auto users = users_.find(n);
      const bool read = users != users_.end() &&
                        std::ranges::any_of(users->second, [&](size_t user) { return !nodes.contains(user); });
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
  std::map<Value, Value> replaces_;
  std::vector<std::optional<size_t>> maker_;  // by value id: the node
  std::vector<std::vector<size_t>> readers_;  // by node
  std::vector<char> inside_;                  // by node: computed by every program that reads it
  std::map<size_t, NodeSet> before_, users_;  // by node that is not inside: whom it waits for; who reads its results
  std::set<Value> kept_;
  std::map<size_t, NodeSet> groups_;
  std::map<size_t, size_t> group_of_;
};

}  // namespace

void fuse_pointwise(Graph& graph, const std::map<Value, Value>& replaces) {
  prune(graph);  // a program has results that are read
  Fusion fusion(graph, replaces, true);
  fusion.join_all();
  graph.nodes = fusion.nodes();
}

void fuse_chains(Graph& graph) {
  prune(graph);
  graph.nodes = Fusion(graph, {}, false).nodes();
}

}  // namespace lh
