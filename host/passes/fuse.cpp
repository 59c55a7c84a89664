// Patterns of nodes that one op computes.
#include "passes/fuse.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "graph/op.h"
#include "ops/ops.h"
#include "passes/prune.h"
#include "passes/uses.h"

namespace lh {
namespace {

class Matcher {
 public:
  Matcher(const Graph& graph, std::span<const std::string> trained) : graph_(graph), trained_(trained), uses_(graph) {}

  // The node that replaces `node`, if it ends one of the patterns.
  std::optional<Node> match(const Node& node) const {
    if (node.op == &mul_op) {
      auto found = gated_activation(node);
      return found ? found : modulated_norm(node, node, {});
    }
    if (node.op == &rope_op) return rms_norm_rope(node);
    if (node.op != &add_op) return std::nullopt;
    for (const auto& [product, other] : either_way(node)) {
      const Node* mul = made_by(product, mul_op);
      if (mul == nullptr) continue;
      if (auto found = modulated_norm(node, *mul, other)) return found;
      if (auto found = gated_residual(node, *mul, other)) return found;
    }
    return std::nullopt;
  }

 private:
  using Pair = std::pair<Value, Value>;
  static std::vector<Pair> either_way(const Node& node) {
    return {{node.inputs[0], node.inputs[1]}, {node.inputs[1], node.inputs[0]}};
  }
  // The node that makes `v`, where nothing but the pattern reads it.
  const Node* only_read_by_pattern(Value v) const { return uses_.readers[v.id].size() == 1 ? maker_of(v) : nullptr; }
  const Node* maker_of(Value v) const {
    const std::optional<size_t> maker = uses_.maker[v.id];
    return maker ? &graph_.nodes[*maker] : nullptr;
  }
  const Node* made_by(Value v, const OpDef& op) const {
    const Node* node = only_read_by_pattern(v);
    return node != nullptr && node->op == &op ? node : nullptr;
  }
  bool is_tokens(Value v) const { return graph_.desc(v).shape.rank() == 3; }
  // [B, 1, C] for tokens [B, S, C] of the same type.
  bool is_modulation_of(Value v, Value tokens) const {
    const Desc& x = graph_.desc(tokens);
    return is_tokens(tokens) && graph_.desc(v) == Desc{x.dtype, x.shape.with(1, 1)};
  }

  // An rms norm that a kernel makes beside other things; 0 stands for no weight.
  struct RmsNorm {
    Value x, weight;
    double eps;
  };
  std::optional<RmsNorm> rms_norm(Value v) const {
    const Node* norm = made_by(v, rms_norm_op);
    if (norm == nullptr) return std::nullopt;
    const Value weight = norm->inputs.size() > 1 ? norm->inputs[1] : Value{};
    if (weight && !is_frozen(weight)) return std::nullopt;
    return RmsNorm{norm->inputs[0], weight, norm->attrs.f("eps")};
  }
  // A parameter without a gradient, or computed from such alone, as 1 + weight is.
  bool is_frozen(Value weight) const {
    const ValueInfo& info = graph_.info(weight);
    if (info.kind == ValueKind::param) return std::ranges::find(trained_, info.name) == trained_.end();
    const Node* maker = maker_of(weight);
    return maker != nullptr && !maker->inputs.empty() &&
           std::ranges::all_of(maker->inputs, [&](Value input) { return !input || is_frozen(input); });
  }

  // The value that a factor is one more than.
  std::optional<Value> scale_of(Value factor) const {
    const Node* affine = maker_of(factor);
    if (affine == nullptr || affine->op != &affine_op) return std::nullopt;
    if (affine->attrs.f("scale") != 1 || affine->attrs.f("shift") != 1) return std::nullopt;
    return affine->inputs[0];
  }

  // `node` is `mul`, or adds a shift to it.
  std::optional<Node> modulated_norm(const Node& node, const Node& mul, Value shift) const {
    for (const auto& [normed, factor] : either_way(mul)) {
      const auto scale = scale_of(factor);
      if (!scale || !is_modulation_of(*scale, normed) || (shift && !is_modulation_of(shift, normed))) continue;
      if (const auto norm = rms_norm(normed))
        return Node{&modulated_norm_op,
                    {norm->x, *scale, shift, norm->weight},
                    node.outputs,
                    {{"eps", norm->eps}, {"rms", int64_t{1}}},
                    node.scope};
      const Node* norm = shift ? made_by(normed, layer_norm_op) : nullptr;
      if (norm == nullptr) continue;
      const bool plain = (norm->inputs.size() < 2 || !norm->inputs[1]) && (norm->inputs.size() < 3 || !norm->inputs[2]);
      if (!plain) continue;
      return Node{&modulated_norm_op,
                  {norm->inputs[0], *scale, shift},
                  node.outputs,
                  {{"eps", norm->attrs.f("eps")}},
                  node.scope};
    }
    return std::nullopt;
  }

  std::optional<Node> rms_norm_rope(const Node& rope) const {
    if (rope.attrs.has("inverse") && rope.attrs.i("inverse") != 0) return std::nullopt;
    const auto norm = rms_norm(rope.inputs[0]);
    if (!norm) return std::nullopt;
    return Node{&rms_norm_rope_op,
                {norm->x, rope.inputs[1], rope.inputs[2], norm->weight},
                rope.outputs,
                {{"eps", norm->eps}, {"interleaved", rope.attrs.i("interleaved")}},
                rope.scope};
  }

  std::optional<Node> gated_residual(const Node& node, const Node& mul, Value x) const {
    for (const auto& [gate, z] : either_way(mul)) {
      if (graph_.desc(z) != graph_.desc(x) || !is_float(graph_.desc(x).dtype) || !is_modulation_of(gate, x) ||
          graph_.desc(x).shape[1] <= 1)
        continue;
      if (const auto norm = rms_norm(z))
        return Node{&gated_residual_op,
                    {x, gate, norm->x, norm->weight},
                    node.outputs,
                    {{"eps", norm->eps}, {"rms", int64_t{1}}},
                    node.scope};
      return Node{&gated_residual_op, {x, gate, z}, node.outputs, {}, node.scope};
    }
    return std::nullopt;
  }

  // The activation's kernel, where gated_activation has it.
  static std::optional<lk_unary_kind> gate_kind(const Node* node) {
    if (node->op == &silu_op) return LK_SILU;
    if (node->op == &sigmoid_op) return LK_SIGMOID;
    if (node->op != &gelu_op) return std::nullopt;
    const lk_unary_kind kind = gelu_kind(node->attrs);
    return kind == LK_GELU_QUICK ? std::nullopt : std::optional(kind);
  }

  std::optional<Node> gated_activation(const Node& node) const {
    for (const auto& [activated, b] : either_way(node)) {
      const Node* activation = only_read_by_pattern(activated);
      if (activation == nullptr) continue;
      const auto kind = gate_kind(activation);
      if (!kind || graph_.desc(activated) != graph_.desc(b)) continue;
      return Node{
          &gated_activation_op, {activation->inputs[0], b}, node.outputs, {{"kind", int64_t{*kind}}}, node.scope};
    }
    return std::nullopt;
  }

  const Graph& graph_;
  std::span<const std::string> trained_;
  const Uses uses_;
};

}  // namespace

void fuse(Graph& graph, std::span<const std::string> trained) {
  std::vector<std::pair<size_t, Node>> replacements;
  const Matcher matcher(graph, trained);
  for (size_t n = 0; n < graph.nodes.size(); ++n)
    if (auto node = matcher.match(graph.nodes[n])) replacements.emplace_back(n, std::move(*node));
  for (auto& [n, node] : replacements) graph.nodes[n] = std::move(node);
  prune(graph);
}

}  // namespace lh
