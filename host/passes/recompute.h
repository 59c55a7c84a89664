// Pass: recomputation (gradient checkpointing). Values of the forward pass are dropped after it and made again, from
// what is kept, where the backward pass first reads them:
//   y = norm(x) ... z = gelu(u) ... backward(dz, y, z)   becomes   ... y' = norm(x), z' = gelu(u), backward(dz, y', z')
// The same operations on the same numbers: no bit of a result changes.
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

// Nodes of the forward pass of a training step, which come first: up to the one that gives the loss.
size_t forward_count(const Graph& graph);

// Values that may be dropped: made inside a checkpoint scope and, in the forward pass, read there alone. What enters
// and leaves a scope stays, so that what is made again at a time is no more than one scope's. `forward_count`: number
// of nodes of the forward pass (they come first).
std::set<Value> droppable(const Graph& graph, size_t forward_count);

// Clones the nodes that make dropped values, each in front of the first node of the backward pass that needs it.
void recompute(Graph& graph, size_t forward_count, const std::set<Value>& dropped);

}  // namespace lh
