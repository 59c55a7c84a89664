// Finds sums of a layer's result and an earlier value.
#include "passes/fuse_residuals.h"

#include <vector>

#include "graph/op.h"
#include "ops/lora_added.h"
#include "ops/ops.h"

namespace lh {
namespace {

constexpr size_t none = static_cast<size_t>(-1);

// By value id: the node that makes it, and how many read it.
struct Ends {
  std::vector<size_t> maker, readers;
  explicit Ends(const Graph& graph) : maker(graph.value_count() + 1, none), readers(graph.value_count() + 1) {
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      for (const Value in : graph.nodes[n].inputs) ++readers[in.id];
      for (const Value out : graph.nodes[n].outputs) maker[out.id] = n;
    }
    for (const auto& [name, v] : graph.outputs) ++readers[v.id];
  }
};

// Puts the sum at `at` into the layer that makes `y`, if it can.
bool join(Graph& graph, Ends& ends, size_t at, Value y, Value residual) {
  const size_t layer = ends.maker[y.id];
  if (layer == none || ends.readers[y.id] != 1) return false;
  Node& node = graph.nodes[layer];
  if (node.op != &lora_op || node.outputs[0] != y || graph.desc(residual) != graph.desc(y)) return false;
  if (node.inputs[0] == residual) return false;
  const size_t before = ends.maker[residual.id];
  if (before != none && before >= layer) return false;
  node.op = &lora_added_op;
  node.inputs.push_back(residual);
  node.outputs[0] = graph.nodes[at].outputs[0];
  ends.maker[node.outputs[0].id] = layer;
  graph.nodes[at] = {};
  return true;
}

}  // namespace

void fuse_residuals(Graph& graph) {
  Ends ends(graph);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (graph.nodes[n].op != &add_op) continue;
    const Value a = graph.nodes[n].inputs[0], b = graph.nodes[n].inputs[1];
    if (!join(graph, ends, n, a, b)) join(graph, ends, n, b, a);
  }
  std::erase_if(graph.nodes, [](const Node& node) { return node.op == nullptr; });
}

}  // namespace lh
