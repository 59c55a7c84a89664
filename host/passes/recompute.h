// Pass: gradient checkpointing. Activations inside a checkpoint scope are dropped after the forward pass and computed
// again where the backward pass first needs them; what enters and leaves the scope stays.
#pragma once

#include <cstddef>
#include <set>
#include <vector>

#include "graph/graph.h"

namespace lh {

// The outermost checkpoint scope around `scope`, -1 when there is none.
int32_t checkpoint_scope(const Graph& graph, int32_t scope);
// All of them, in order of appearance.
std::vector<int32_t> checkpoint_scopes(const Graph& graph);

// `forward_count`: number of nodes of the forward pass (they come first). Clones the nodes that the backward pass
// needs.
void recompute(Graph& graph, size_t forward_count, const std::set<int32_t>& scopes);

}  // namespace lh
