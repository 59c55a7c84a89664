// Finds layers and activations that are next to each other.
#include "passes/fuse_activations.h"

#include <vector>

#include "graph/op.h"
#include "ops/lora_activated.h"
#include "ops/ops.h"

namespace lh {
namespace {

class Joining {
 public:
  explicit Joining(Graph& graph)
      : graph_(graph), maker_(graph.value_count() + 1, none), readers_(graph.value_count() + 1) {
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      for (const Value in : graph.nodes[n].inputs) readers_[in.id].push_back(n);
      for (const Value out : graph.nodes[n].outputs) maker_[out.id] = n;
    }
    for (const auto& [name, v] : graph.outputs) readers_[v.id].push_back(graph.nodes.size());
  }

  void run() {
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      if (node.op == &gelu_op && gelu_kind(node.attrs) == LK_GELU_TANH) join(n);
    }
    std::erase_if(graph_.nodes, [](const Node& node) { return node.op == nullptr; });
  }

 private:
  static constexpr size_t none = static_cast<size_t>(-1);

  // Last columns of a value, perhaps all.
  struct Columns {
    Value whole;
    int64_t from = 0;
    size_t cut = none;  // the node
  };
  Columns columns(Value v) const {
    const size_t n = maker_[v.id];
    if (n == none || !is_cut(graph_.nodes[n])) return {v};
    const Node& node = graph_.nodes[n];
    const Value whole = node.inputs[0];
    const Shape &shape = graph_.desc(whole).shape, &part = graph_.desc(v).shape;
    const int64_t last = shape.rank() - 1, axis = node.attrs.i("axis"), from = shape[last] - part[last];
    if (axis != last && axis != -1) return {v};
    const bool at_end = node.op == &split_op ? v == node.outputs.back() : node.attrs.i("start") == from;
    return at_end ? Columns{whole, from, n} : Columns{v};
  }

  // The first that reads what the layer made: others are of the backward pass, which makes it again.
  void join(size_t at) {
    const Value before = graph_.nodes[at].inputs[0], after = graph_.nodes[at].outputs[0];
    const Columns of = columns(before);
    const size_t layer = maker_[of.whole.id];
    if (layer == none || graph_.nodes[layer].op != &lora_op || graph_.nodes[layer].outputs[0] != of.whole) return;
    if (readers_[before.id].front() != at) return;
    if (of.cut != none && readers_[of.whole.id].front() != of.cut) return;
    Node& node = graph_.nodes[layer];
    node.op = &lora_activated_op;
    node.outputs.push_back(after);
    node.attrs.set("from", of.from);
    maker_[after.id] = layer;
    graph_.nodes[at] = {};
  }

  Graph& graph_;
  std::vector<size_t> maker_;                 // by value id: the node
  std::vector<std::vector<size_t>> readers_;  // by value id: nodes in order; one past them for outputs
};

}  // namespace

void fuse_activations(Graph& graph) { Joining(graph).run(); }

}  // namespace lh
