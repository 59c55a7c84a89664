// Pass: the gradients of several layers' adapters as one op, in the place of the last one. Runs behind differentiation.
//   d1, u1 = lora_gradients(x1, dy1, ...); ...; d2, u2 = lora_gradients(x2, dy2, ...)
//   becomes   ...; d1, u1, d2, u2 = lora_gradients(x1, dy1, ..., x2, dy2, ...)
// Of one layer they read a few megabytes, which takes a GPU less time than to start and to add up. Nothing waits for
// them but the update, so they can wait for others; x and dy stay in memory until then, which is bounded. Layers that
// go together have as many rows as each other: those of the text and those of the picture are made side by side
// (run/side_by_side.h), and an op of both would have them meet. Of few rows each goes by itself. Which layers go
// together follows from the graph alone, so that the same sums come from every choice of what is made again.
#pragma once

#include "graph/graph.h"

namespace lh {

void group_gradients(Graph& graph);

}  // namespace lh
