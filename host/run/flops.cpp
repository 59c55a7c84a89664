#include "run/flops.h"

#include "ops/lora_activated.h"
#include "ops/ops.h"

namespace lh {
namespace {

double numel(const Graph& graph, Value v) { return v ? static_cast<double>(graph.desc(v).shape.numel()) : 0; }

double last(const Graph& graph, Value v) {
  const Shape& shape = graph.desc(v).shape;
  return static_cast<double>(shape[shape.rank() - 1]);
}

// Multiply-adds of q k^T (as many as of p v): B H Sq Sk D.
double attention_product(const Graph& graph, Value q, Value k) {
  return numel(graph, q) * static_cast<double>(graph.desc(k).shape[1]);
}

double products(const Graph& graph, const Node& node) {
  const std::vector<Value>& in = node.inputs;
  const OpDef* op = node.op;
  if (op == &linear_op) return numel(graph, node.outputs[0]) * last(graph, in[0]);
  if (op == &linear_backward_op) {
    const double one = numel(graph, in[0]) * last(graph, in[1]);
    return one * static_cast<double>(node.attrs.i("dx") + node.attrs.i("dweight"));
  }
  if (op == &lora_op || op == &lora_activated_op) {
    const double rank = last(graph, node.outputs[1]);
    return numel(graph, node.outputs[0]) * (last(graph, in[0]) + rank) + numel(graph, in[0]) * rank;
  }
  if (op == &lora_backward_op || op == &lora_activated_backward_op) {
    // inputs: dy, x, s, weight, down, up, mask, weight_scale, added
    const double rank = last(graph, in[2]), dx = static_cast<double>(node.attrs.i("dx"));
    return numel(graph, in[0]) * (2 * rank + dx * last(graph, in[1])) + numel(graph, in[1]) * rank * (1 + dx);
  }
  if (op == &matmul_op)
    return numel(graph, node.outputs[0]) *
           (node.attrs.i("transpose_a") != 0
                ? static_cast<double>(graph.desc(in[0]).shape[graph.desc(in[0]).shape.rank() - 2])
                : last(graph, in[0]));
  if (op == &conv2d_op || op == &conv3d_op)
    return numel(graph, node.outputs[0]) * numel(graph, in[1]) / static_cast<double>(graph.desc(in[1]).shape[0]);
  if (op == &attention_op) return 2 * attention_product(graph, in[0], in[1]);
  if (op == &attention_backward_op) return 5 * attention_product(graph, in[1], in[2]);
  return 0;
}

}  // namespace

double flops(const Graph& graph, const Node& node) { return 2 * products(graph, node); }

double flops(const Graph& graph) {
  double total = 0;
  for (const Node& node : graph.nodes) total += flops(graph, node);
  return total;
}

}  // namespace lh
