// Pass: puts one op where several make up something that one kernel does in a single pass over memory. Runs before
// differentiation, so that the backward pass is fused by the gradient rules of the new ops.
//   add(mul(layer_norm(x), affine(scale, 1, 1)), shift)   becomes   modulated_norm(x, scale, shift)
//   add(x, mul(gate, z))                                  becomes   gated_residual(x, gate, z)
//   mul(silu(a), b) or mul(gelu(a), b)                    becomes   gated_activation(a, b)
// for x and z [B, S, C], scale, shift and gate [B, 1, C], a and b of one shape; either factor and summand first. What
// was there stays where something else reads it.
#pragma once

#include "graph/graph.h"

namespace lh {

void fuse(Graph& graph);

}  // namespace lh
