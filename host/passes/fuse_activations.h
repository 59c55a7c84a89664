// Pass: an activation goes into the layer before it, whose kernel has the numbers at hand. Runs when all nodes of a
// step are there, recomputed ones too: what is kept and what is made again is chosen before, when an activation costs
// what it costs by itself.
//   y = lora(x); z = gelu(y)    becomes   y, z = lora_activated(x)
// for gelu by tanh, of the whole or of last columns: a piece of y that a split or a slice has cut off. z is what gelu
// makes of the y that is stored; on a GPU y may come from another product than the layer's alone, in the last place.
#pragma once

#include "graph/graph.h"

namespace lh {

void fuse_activations(Graph& graph);

}  // namespace lh
