// Pass: a graph over one tensor becomes the same graph over several of them, side by side as [N, ...]: elementwise ops
// broadcast, axes of reductions and permutations move up by one, products of matrices become products of batches.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "graph/graph.h"

namespace lh {

struct Stacking {
  int64_t count = 0;                // N; 0: the tensors stay as they are, and only their order in memory is seen to
  std::set<std::string> shared;     // inputs that all N have in common
  std::set<std::string> reordered;  // inputs and outputs [O, I, KH, KW] that lie in memory as [O, KH, KW, I]
};

// Inputs and outputs keep their names. Nothing where an op has no such form: each tensor then needs the graph itself.
std::optional<Graph> stacked(const Graph& graph, const Stacking& how);

}  // namespace lh
