// Pass: one op for layers with adapters that read one x, so that a GPU makes them at once. Runs behind adapt, and
// before differentiation, which then has one op for their backward passes as well.
//   q = lora(x, ...), k = lora(x, ...), v = lora(x, ...)   becomes   q, k, v = lora_group(x, ...)
// in the place of the first one, for layers of one block (checkpoint scope) that multiply in the same numbers. What
// else a later one reads and is made in between, such as a mask of dropout, moves in front of the group; a layer stays
// alone where that itself waits for a layer.
#pragma once

#include <span>

#include "graph/graph.h"

namespace lh {

void group_layers(Graph& graph);

// The op of these layers of one x, which are nodes of the graph.
Node group_of(const Graph& graph, std::span<const size_t> layers);

}  // namespace lh
