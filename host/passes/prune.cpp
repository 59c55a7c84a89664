#include "passes/prune.h"

#include <algorithm>

namespace lh {

void prune(Graph& graph) {
  std::vector<char> read(graph.value_count() + 1, 0);
  for (const auto& [name, v] : graph.outputs) read[v.id] = 1;
  std::vector<Node> kept;
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    const bool wanted = std::ranges::any_of(node->outputs, [&](Value v) { return read[v.id] != 0; });
    if (!wanted) continue;
    for (const Value in : node->inputs) read[in.id] = 1;
    kept.push_back(std::move(*node));
  }
  std::ranges::reverse(kept);
  graph.nodes = std::move(kept);
  // Parameters that only dropped nodes read are not asked for any more; inputs stay, so that callers may set them.
  std::erase_if(graph.params, [&](const auto& item) { return read[item.second.id] == 0; });
}

}  // namespace lh
