#include "graph/print.h"

#include <fmt/core.h>

#include "graph/op.h"

namespace lh {

std::string print(const Graph& graph) {
  std::string text;
  for (const Node& node : graph.nodes) {
    for (const Value v : node.outputs) text += fmt::format("%{} ", v.id);
    text += fmt::format("= {}(", node.op->name);
    for (const Value v : node.inputs) text += v ? fmt::format("%{} ", v.id) : std::string("- ");
    text += fmt::format(") -> {}  # {}\n", node.outputs.empty() ? "nothing" : graph.desc(node.outputs[0]).text(),
                        graph.scopes[static_cast<size_t>(node.scope)].path);
  }
  return text;
}

}  // namespace lh
