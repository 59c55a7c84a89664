#include "run/flops.h"

#include "ops/lora_activated.h"
#include "ops/lora_added.h"
#include "ops/lora_gradients.h"
#include "ops/lora_group.h"
#include "ops/matmul_sum.h"
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

// Of a layer with an adapter.
double lora_products(const Graph& graph, Value x, Value y, Value s) {
  const double rank = last(graph, s);
  return numel(graph, y) * (last(graph, x) + rank) + numel(graph, x) * rank;
}

double lora_backward_products(const Graph& graph, Value dy, Value x, Value ds, bool with_dx) {
  const double rank = last(graph, ds), dx = with_dx ? 1 : 0;
  return numel(graph, dy) * (rank + dx * last(graph, x)) + dx * numel(graph, x) * rank;
}

double lora_gradients_products(const Graph& graph, const Node& node) {
  using G = LoraGradients;
  double total = 0;
  for (size_t i = 0; i < G::layers(node.inputs.size()); ++i) {
    const auto in = [&](G::Input input) { return node.inputs[G::at(i, input)]; };
    total += last(graph, in(G::S)) * (numel(graph, in(G::X)) + numel(graph, in(G::DY)));
  }
  return total;
}

double products(const Graph& graph, const Node& node) {
  const std::vector<Value>& in = node.inputs;
  const OpDef* op = node.op;
  if (op == &linear_op) return numel(graph, node.outputs[0]) * last(graph, in[0]);
  if (op == &linear_backward_op) {
    const double one = numel(graph, in[0]) * last(graph, in[1]);
    return one * static_cast<double>(node.attrs.i("dx") + node.attrs.i("dweight"));
  }
  if (op == &lora_op || op == &lora_activated_op || op == &lora_added_op)
    return lora_products(graph, in[0], node.outputs[0], node.outputs[1]);
  if (op == &lora_backward_op)  // inputs: dy, x, weight, down, up, mask, weight_scale, added
    return lora_backward_products(graph, in[0], in[1], node.outputs[0], node.attrs.i("dx") != 0);
  if (op == &lora_gradients_op) return lora_gradients_products(graph, node);
  using Group = LoraGroup;
  double total = 0;
  if (op == &lora_group_op || op == &lora_group_gated_op)
    for (size_t i = 0; i < Group::layers(in.size()); ++i)
      total += lora_products(graph, in[0], node.outputs[2 * i], node.outputs[2 * i + 1]);
  if (op == &lora_group_backward_op)
    for (size_t i = 0; i < Group::backward_layers(in.size()); ++i)
      total +=
          lora_backward_products(graph, in[Group::at(i, Group::DY)], in[0], node.outputs[i], node.attrs.i("dx") != 0);
  if (total > 0) return total;
  if (op == &matmul_op)
    return numel(graph, node.outputs[0]) *
           (node.attrs.i("transpose_a") != 0
                ? static_cast<double>(graph.desc(in[0]).shape[graph.desc(in[0]).shape.rank() - 2])
                : last(graph, in[0]));
  if (op == &matmul_sum_op) return numel(graph, in[0]) * last(graph, node.outputs[0]);
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
