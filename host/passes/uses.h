// Who makes and who reads each value, as a graph stood: an index for passes that look for nodes beside each other.
#pragma once

#include <optional>
#include <vector>

#include "graph/graph.h"

namespace lh {

// By value id. Nodes are numbers; what the graph puts out is read by one past its last node.
struct Uses {
  std::vector<std::optional<size_t>> maker;
  std::vector<std::vector<size_t>> readers;  // in order, once for each input that a value is

  explicit Uses(const Graph& graph) : maker(graph.value_count() + 1), readers(graph.value_count() + 1) {
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      for (const Value in : graph.nodes[n].inputs) readers[in.id].push_back(n);
      for (const Value out : graph.nodes[n].outputs) maker[out.id] = n;
    }
    for (const auto& [name, v] : graph.outputs) readers[v.id].push_back(graph.nodes.size());
  }
};

}  // namespace lh
