// Finds layers and activations that are next to each other.
#include "passes/fuse_activations.h"

#include <algorithm>
#include <optional>
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
      if (node.op == &gelu_op && gelu_kind(node.attrs) == LK_GELU_TANH) join_forward(n);
      if (node.op == &unary_backward_op && node.attrs.i("kind") == LK_GELU_TANH) join_backward(n);
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

  // The node of that op whose output `v` is; none: another one makes it.
  size_t made_by(Value v, const OpDef& op, size_t output) const {
    const size_t n = maker_[v.id];
    if (n == none || graph_.nodes[n].op != &op) return none;
    const std::vector<Value>& outputs = graph_.nodes[n].outputs;
    return output < outputs.size() && outputs[output] == v ? n : none;
  }

  // The first that reads what the layer made: others are of the backward pass, which makes it again.
  void join_forward(size_t at) {
    const Value before = graph_.nodes[at].inputs[0], after = graph_.nodes[at].outputs[0];
    const Columns of = columns(before);
    const size_t layer = made_by(of.whole, lora_op, 0);
    if (layer == none || readers_[before.id].front() != at) return;
    if (of.cut != none && readers_[of.whole.id].front() != of.cut) return;
    Node& node = graph_.nodes[layer];
    node.op = &lora_activated_op;
    node.outputs.push_back(after);
    node.attrs.set("from", of.from);
    maker_[after.id] = layer;
    graph_.nodes[at] = {};
  }

  void join_backward(size_t at) {
    const Value dy = graph_.nodes[at].inputs[0], before = graph_.nodes[at].inputs[1];
    const Columns of = columns(dy);
    const size_t layer = made_by(of.whole, lora_backward_op, 2);
    if (layer == none || graph_.nodes[layer].inputs[added] || readers_[dy.id].size() != 1) return;
    if (graph_.desc(before) != graph_.desc(dy)) return;
    // Of dx beside those columns, only the others as a whole.
    Value in_front;
    size_t cut_in_front = none;
    if (of.cut != none) {
      for (const size_t reader : readers_[of.whole.id]) {
        if (reader == of.cut) continue;
        if (in_front || !is_in_front(reader, of.from)) return;
        in_front = graph_.nodes[reader].outputs[0];
        cut_in_front = reader;
      }
      if (graph_.nodes[of.cut].op == &split_op) {
        if (in_front || graph_.nodes[of.cut].outputs.size() != 2) return;
        in_front = graph_.nodes[of.cut].outputs[0];
      }
    } else if (readers_[of.whole.id].size() != 1) {
      return;
    }
    if (of.from > 0 && !in_front) {
      const Desc& dx = graph_.desc(of.whole);
      in_front = graph_.new_value({.desc = {dx.dtype, dx.shape.with(-1, of.from)}, .name = {}, .constant = {}});
      maker_.push_back(none);
      readers_.emplace_back();
    }
    // Where what was activated is there, and before anybody reads a result.
    const size_t ready = maker_[before.id] == none || maker_[before.id] < layer ? layer : at;
    if (ready != layer && (is_read(graph_.nodes[layer].outputs[0], at) || is_read(graph_.nodes[layer].outputs[1], at) ||
                           (in_front && is_read(in_front, at))))
      return;
    Node joined = graph_.nodes[layer];
    joined.op = &lora_activated_backward_op;
    joined.inputs.push_back(before);
    joined.outputs[2] = graph_.nodes[at].outputs[0];
    if (in_front) joined.outputs.push_back(in_front);
    joined.attrs.set("from", of.from);
    for (const size_t gone : {at, layer, of.cut, cut_in_front})
      if (gone != none) graph_.nodes[gone] = {};
    for (const Value out : joined.outputs) maker_[out.id] = ready;
    graph_.nodes[ready] = std::move(joined);
  }

  bool is_in_front(size_t n, int64_t columns) const {
    if (n >= graph_.nodes.size() || graph_.nodes[n].op != &slice_op) return false;
    const Node& node = graph_.nodes[n];
    const int64_t last = graph_.desc(node.inputs[0]).shape.rank() - 1, axis = node.attrs.i("axis");
    return (axis == last || axis == -1) && node.attrs.i("start") == 0 && node.attrs.i("length") == columns;
  }

  bool is_read(Value v, size_t before) const {
    return std::ranges::any_of(readers_[v.id], [&](size_t n) { return n < before; });
  }

  static constexpr size_t added = 8;
  Graph& graph_;
  std::vector<size_t> maker_;                 // by value id: the node
  std::vector<std::vector<size_t>> readers_;  // by value id: nodes in order; one past them for outputs
};

}  // namespace

void fuse_activations(Graph& graph) { Joining(graph).run(); }

}  // namespace lh
