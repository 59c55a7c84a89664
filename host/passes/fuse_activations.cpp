// Finds layers and activations that are next to each other.
#include "passes/fuse_activations.h"

#include <algorithm>
#include <array>
#include <optional>

#include "graph/op.h"
#include "ops/lora_activated.h"
#include "ops/lora_group.h"
#include "ops/ops.h"
#include "passes/group_layers.h"
#include "passes/uses.h"

namespace lh {
namespace {

class Joining {
 public:
  explicit Joining(Graph& graph) : graph_(graph), uses_(graph) {}

  void run() {
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      if (node.op == &gelu_op && gelu_kind(node.attrs) == LK_GELU_TANH) join_gelu(n);
      if (node.op == &gated_activation_op && node.attrs.i("kind") == LK_SILU && !join_gate(n)) join_layers(n);
    }
    std::erase_if(graph_.nodes, [](const Node& node) { return node.op == nullptr; });
  }

 private:
  // The node that makes it, if that is of this op.
  std::optional<size_t> made_by(Value v, const OpDef& op) const {
    const std::optional<size_t> n = uses_.maker[v.id];
    return n && graph_.nodes[*n].op == &op ? n : std::nullopt;
  }
  // Whether node `n` is the first that reads it: others are of the backward pass, which makes the activation again.
  bool first_read_by(Value v, size_t n) const { return uses_.readers[v.id].front() == n; }
  // Whether it is gated there first, whoever else reads it. What was joined is no node any more.
  bool first_gated_by(Value v, size_t n) const {
    return std::ranges::none_of(uses_.readers[v.id], [&](size_t reader) {
      return reader < n && (graph_.nodes[reader].op == nullptr || graph_.nodes[reader].op == &gated_activation_op);
    });
  }

  // Last columns of a value, perhaps all.
  struct Columns {
    Value whole;
    int64_t from = 0;
    std::optional<size_t> cut;  // the node
  };
  Columns last_columns(Value v) const {
    const std::optional<size_t> n = uses_.maker[v.id];
    if (!n || !is_cut(graph_.nodes[*n]) || !cuts_columns(graph_.nodes[*n])) return {v};
    const Node& node = graph_.nodes[*n];
    const int64_t from = columns(node.inputs[0]) - columns(v);
    const bool at_end = node.op == &split_op ? v == node.outputs.back() : node.attrs.i("start") == from;
    return at_end ? Columns{node.inputs[0], from, n} : Columns{v};
  }
  int64_t columns(Value v) const {
    const Shape& shape = graph_.desc(v).shape;
    return shape[shape.rank() - 1];
  }
  bool cuts_columns(const Node& cut) const {
    const int64_t axis = cut.attrs.i("axis");
    return axis == -1 || axis == graph_.desc(cut.inputs[0]).shape.rank() - 1;
  }

  void join_gelu(size_t at) {
    const Value before = graph_.nodes[at].inputs[0];
    if (first_read_by(before, at)) join(at, last_columns(before), false);
  }

  // The last two pieces of a layer's y.
  bool join_gate(size_t at) {
    const Value a = graph_.nodes[at].inputs[0], b = graph_.nodes[at].inputs[1];
    const std::optional<size_t> cut = made_by(a, split_op);
    if (!cut || !cuts_columns(graph_.nodes[*cut]) || !first_gated_by(a, at)) return false;
    const Node& split = graph_.nodes[*cut];
    if (split.outputs.size() < 2 || split.outputs.back() != b || *(split.outputs.end() - 2) != a) return false;
    return join(at, {split.inputs[0], columns(split.inputs[0]) - 2 * columns(a), cut}, true);
  }

  bool join(size_t at, const Columns& of, bool gates) {
    const std::optional<size_t> layer = made_by(of.whole, lora_op);
    if (!layer || graph_.nodes[*layer].outputs[0] != of.whole) return false;
    if (of.cut && !first_read_by(of.whole, *of.cut)) return false;
    Node& node = graph_.nodes[*layer];
    node.op = &lora_activated_op;
    node.attrs.set("from", of.from);
    node.attrs.set("gates", int64_t{gates});
    make_with(*layer, at);
    return true;
  }

  // Two layers, in the place of the second.
  void join_layers(size_t at) {
    const Value a = graph_.nodes[at].inputs[0], b = graph_.nodes[at].inputs[1];
    if (!first_gated_by(a, at)) return;
    std::optional<size_t> group = made_by(a, lora_group_op);
    if (!group) group = make_group(a, b);
    if (!group) return;
    Node& node = graph_.nodes[*group];
    if (node.outputs.size() != 4) return;
    if (node.outputs[0] == b) swap_layers(node);
    if (node.outputs[0] != a || node.outputs[2] != b) return;
    node.op = &lora_group_gated_op;
    make_with(*group, at);
  }

  // One node of the layers that make a and b, if they have one x and nothing between them reads what the earlier makes.
  std::optional<size_t> make_group(Value a, Value b) {
    const std::optional<size_t> first = made_by(a, lora_op), second = made_by(b, lora_op);
    if (!first || !second || first == second) return std::nullopt;
    const Node &one = graph_.nodes[*first], &other = graph_.nodes[*second];
    if (one.outputs[0] != a || other.outputs[0] != b || one.inputs[0] != other.inputs[0]) return std::nullopt;
    if (products_of(one.attrs) != products_of(other.attrs)) return std::nullopt;
    const size_t earlier = std::min(*first, *second), later = std::max(*first, *second);
    for (const Value out : graph_.nodes[earlier].outputs)
      if (!uses_.readers[out.id].empty() && uses_.readers[out.id].front() <= later) return std::nullopt;
    graph_.nodes[later] = group_of(graph_, std::array{*first, *second});
    graph_.nodes[earlier] = {};
    for (const Value out : graph_.nodes[later].outputs) uses_.maker[out.id] = later;
    return later;
  }

  static void swap_layers(Node& node) {
    const auto first = node.inputs.begin() + LoraGroup::before;
    std::rotate(first, first + LoraGroup::inputs, node.inputs.end());
    std::rotate(node.outputs.begin(), node.outputs.begin() + 2, node.outputs.end());
    const double scale = node.attrs.f(lora_scale_attr(0));
    node.attrs.set(lora_scale_attr(0), node.attrs.f(lora_scale_attr(1)));
    node.attrs.set(lora_scale_attr(1), scale);
  }

  // Node `n` makes what the activation did.
  void make_with(size_t n, size_t activation) {
    const Value after = graph_.nodes[activation].outputs[0];
    graph_.nodes[n].outputs.push_back(after);
    uses_.maker[after.id] = n;
    graph_.nodes[activation] = {};
  }

  Graph& graph_;
  Uses uses_;
};

}  // namespace

void fuse_activations(Graph& graph) { Joining(graph).run(); }

}  // namespace lh
