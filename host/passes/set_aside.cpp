#include "passes/set_aside.h"

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "ops/ops.h"
#include "passes/uses.h"

namespace lh {
namespace {

constexpr int64_t small = int64_t{2} << 20;  // bytes of a value: as a factor of a layer has, and activations have not

class Places {
 public:
  explicit Places(const Graph& graph)
      : graph_(graph), uses_(graph), place_(graph.nodes.size()), moved_(graph.nodes.size()) {
    for (size_t n = 0; n < place_.size(); ++n) place_[n] = n;
    for (const auto& [name, v] : graph.outputs)
      if (!name.starts_with("grad.")) kept_.insert(v);
  }

  void advance() {
    std::optional<size_t> attention;  // in front of the node
    size_t before = 0;                // the one before that, or the first node
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      if (is_attention(n)) {
        before = attention.value_or(0);
        attention = n;
      }
      if (attention && is_small(n) && is_of_weights(n)) move(n, before);
    }
  }

  void delay() {
    std::optional<size_t> border;  // the attention that follows
    for (size_t n = graph_.nodes.size(); n-- > 0;) {
      if (graph_.nodes[n].op == &attention_backward_op) border = n;
      if (border && !moved_[n] && is_small(n) && only_for_gradients(n)) move(n, *border);
    }
  }

  std::vector<Node> nodes() const {
    std::vector<size_t> order(place_.size());
    for (size_t n = 0; n < order.size(); ++n) order[n] = n;
    std::ranges::sort(order, {}, [&](size_t n) { return std::tuple(place_[n], place_[n] != n, n); });
    std::vector<Node> nodes;
    for (const size_t n : order) {
      nodes.push_back(graph_.nodes[n]);
      nodes.back().aside = moved_[n];
    }
    return nodes;
  }

 private:
  bool is_attention(size_t n) const {
    return graph_.nodes[n].op == &attention_op || graph_.nodes[n].op == &attention_backward_op;
  }
  bool is_weight(Value v) const { return graph_.info(v).kind == ValueKind::param; }

  // Weights may be large: they are there anyway.
  bool is_small(size_t n) const {
    const Node& node = graph_.nodes[n];
    const auto fits = [&](Value v) { return !v || is_weight(v) || graph_.desc(v).bytes() <= small; };
    return std::ranges::all_of(node.inputs, fits) && std::ranges::all_of(node.outputs, fits);
  }
  // Where what it reads was made of weights alone in the same stretch, that has moved.
  bool is_of_weights(size_t n) const {
    return std::ranges::all_of(graph_.nodes[n].inputs, [&](Value v) {
      return !v || is_weight(v) || graph_.info(v).kind == ValueKind::constant ||
             (uses_.maker[v.id] && moved_[*uses_.maker[v.id]]);
    });
  }
  bool only_for_gradients(size_t n) const {
    const auto waits = [&](size_t reader) { return reader == graph_.nodes.size() || delayed(reader, n); };
    return std::ranges::all_of(graph_.nodes[n].outputs, [&](Value v) {
      return !kept_.contains(v) && std::ranges::all_of(uses_.readers[v.id], waits);
    });
  }
  bool delayed(size_t reader, size_t n) const { return moved_[reader] && place_[reader] > n; }

  void move(size_t n, size_t place) {
    place_[n] = place;
    moved_[n] = true;
  }

  const Graph& graph_;
  const Uses uses_;
  std::vector<size_t> place_;  // by node: its own number, or what it stands behind
  std::vector<bool> moved_;
  std::set<Value> kept_;  // outputs that are no gradients
};

}  // namespace

void set_aside(Graph& graph) {
  Places places(graph);
  places.advance();
  places.delay();
  graph.nodes = places.nodes();
}

}  // namespace lh
