// Walks the nodes backwards and adds up gradients, each op by its own rule.
#include "passes/differentiate.h"

#include <algorithm>
#include <string>

#include "core/error.h"
#include "graph/op.h"
#include "ops/ops.h"

namespace lh {

Gradient::Gradient(Graph& graph, const Node& node, std::span<const Value> output_gradients,
                   std::span<const char> needed, std::span<const Value> so_far)
    : result(node.inputs.size()),
      graph_(graph),
      node_(node),
      output_gradients_(output_gradients),
      needed_(needed),
      so_far_(so_far),
      took_(node.inputs.size(), 0) {}

Value Gradient::take_sum(size_t input) {
  const Value sum = so_far_[input];
  if (!sum || !needs(input) || graph_.desc(sum) != graph_.desc(in(input))) return {};
  took_[input] = 1;
  return sum;
}

std::vector<Value> Gradient::emit_all(const OpDef& op, std::vector<Value> inputs, Attrs attrs) const {
  return graph_.add(op, std::move(inputs), std::move(attrs), node_.scope);
}

Value Gradient::emit(const OpDef& op, std::vector<Value> inputs, Attrs attrs) const {
  return emit_all(op, std::move(inputs), std::move(attrs)).front();
}

Value Gradient::zero() const { return graph_.add_constant(HostTensor(Desc{graph_.desc(out()).dtype, {1}})); }

Value Gradient::cast_like(Value x, Value like) const {
  const DType dtype = graph_.desc(like).dtype;
  if (graph_.desc(x).dtype == dtype) return x;
  return emit(cast_op, {x}, {{"dtype", static_cast<int64_t>(dtype)}});
}

namespace {

// values[id] = 1 where the loss depends on the value, other than through a detach.
std::vector<char> reaches(const Graph& graph, Value loss) {
  std::vector<char> reached(graph.value_count() + 1, 0);
  reached[loss.id] = 1;
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    bool wanted = false;
    for (const Value out : node->outputs) wanted |= reached[out.id] != 0;
    if (!wanted || node->op == &detach_op) continue;
    for (const Value in : node->inputs) reached[in.id] = 1;
  }
  return reached;
}

// values[id] = 1 where a gradient has to flow: the value depends on a parameter. Integers have no derivative: what
// comparisons, indices and casts to integers give is a constant of the backward pass.
std::vector<char> depends(const Graph& graph, const std::vector<Value>& parameters, const std::vector<char>& reached) {
  std::vector<char> tracked(graph.value_count() + 1, 0);
  for (const Value p : parameters) tracked[p.id] = 1;
  std::string missing;
  for (const Node& node : graph.nodes) {
    bool tracks = false;
    for (const Value in : node.inputs) tracks |= in && tracked[in.id] != 0;
    if (!tracks || node.op == &detach_op) continue;
    if (node.op->gradient == nullptr) {
      const auto swallows = [&](Value out) { return reached[out.id] != 0 && is_float(graph.desc(out).dtype); };
      if (std::ranges::any_of(node.outputs, swallows)) missing += "\n  " + graph.describe(node);
      continue;
    }
    for (const Value out : node.outputs) tracked[out.id] = is_float(graph.desc(out).dtype) ? 1 : 0;
  }
  if (!missing.empty())
    fail(Code::plugin, "no gradient passes through these ops, but a trained tensor is behind them:{}", missing);
  return tracked;
}

// The op's own rule; what it refuses is said with op, scope and shapes.
void apply_rule(const Graph& graph, const Node& node, Gradient& rule) {
  try {
    node.op->gradient(rule);
  } catch (const Error& e) {
    fail(e.code(), "gradient of {}: {}", graph.describe(node), e.what());
  }
}

}  // namespace

std::map<Value, Value> differentiate(Graph& graph, Value loss, Value seed, const std::vector<Value>& parameters) {
  const std::vector<char> reached = reaches(graph, loss);
  const std::vector<char> tracked = depends(graph, parameters, reached);
  const size_t forward_count = graph.nodes.size();
  std::vector<Value> gradient_of(graph.value_count() + 1);
  gradient_of[loss.id] = seed;

  for (size_t n = forward_count; n-- > 0;) {
    const Node node = graph.nodes[n];  // a copy: emitting nodes moves the list
    if (node.op->gradient == nullptr) continue;
    std::vector<Value> output_gradients;
    bool flows = false;
    for (const Value out : node.outputs) {
      output_gradients.push_back(gradient_of[out.id]);
      flows |= static_cast<bool>(gradient_of[out.id]);
    }
    std::vector<char> needed;
    std::vector<Value> so_far;
    bool any = false;
    for (const Value in : node.inputs) {
      needed.push_back(in ? tracked[in.id] : 0);
      so_far.push_back(in ? gradient_of[in.id] : Value{});
      any |= needed.back() != 0;
    }
    if (!flows || !any) continue;

    Gradient rule(graph, node, output_gradients, needed, so_far);
    apply_rule(graph, node, rule);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const Value in = node.inputs[i];
      if (!rule.needs(i) || !rule.result[i]) continue;
      Value& total = gradient_of[in.id];
      total = total && !rule.took_sum(i) ? rule.emit(add_op, {total, rule.result[i]}) : rule.result[i];
    }
  }
  std::map<Value, Value> result;
  for (const Value p : parameters) result[p] = gradient_of[p.id];
  return result;
}

}  // namespace lh
