// Finds sums of a layer's result and an earlier value.
#include "passes/fuse_residuals.h"

#include "graph/op.h"
#include "ops/lora_added.h"
#include "ops/ops.h"
#include "passes/uses.h"

namespace lh {
namespace {

// Puts the sum at `at` into the layer that makes `y`, if it can.
bool join(Graph& graph, Uses& uses, size_t at, Value y, Value residual) {
  const std::optional<size_t> layer = uses.maker[y.id];
  if (!layer || uses.readers[y.id].size() != 1) return false;
  Node& node = graph.nodes[*layer];
  if (node.op != &lora_op || node.outputs[0] != y || graph.desc(residual) != graph.desc(y)) return false;
  if (node.inputs[0] == residual) return false;
  const std::optional<size_t> before = uses.maker[residual.id];
  if (before && *before >= *layer) return false;
  node.op = &lora_added_op;
  node.inputs.push_back(residual);
  node.outputs[0] = graph.nodes[at].outputs[0];
  uses.maker[node.outputs[0].id] = layer;
  graph.nodes[at] = {};
  return true;
}

}  // namespace

void fuse_residuals(Graph& graph) {
  Uses uses(graph);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (graph.nodes[n].op != &add_op) continue;
    const Value a = graph.nodes[n].inputs[0], b = graph.nodes[n].inputs[1];
    if (!join(graph, uses, n, a, b)) join(graph, uses, n, b, a);
  }
  std::erase_if(graph.nodes, [](const Node& node) { return node.op == nullptr; });
}

}  // namespace lh
