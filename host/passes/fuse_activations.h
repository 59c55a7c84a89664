// Pass: an activation goes into the layer before it, whose kernel has the numbers at hand. Runs when all nodes of a
// step are there, recomputed ones too: what is kept and what is made again is chosen before, when an activation costs
// what it costs by itself.
//   y = lora(x); z = gelu(y)                            becomes   y, z = lora_activated(x)
//   y = lora(x); ..., a, b = split(y); z = silu(a) b    becomes   y, z = lora_activated(x)
//   a = lora(x); b = lora(x); z = silu(a) b             becomes   a, b, z = lora_group_gated(x)
// for gelu by tanh, of the whole or of last columns, a piece of y that a split or a slice has cut off; for the last two
// pieces of a split, of one width; and for two layers of one width, in one lora_group or each by itself. z is what the
// activation makes of the y that is stored; on a GPU y may come from another product than the layer's alone, in the
// last place.
#pragma once

#include "graph/graph.h"

namespace lh {

void fuse_activations(Graph& graph);

}  // namespace lh
