// Pass: puts one op where several make up something that one kernel does in a single pass over memory. Runs before
// differentiation, so that the backward pass is fused by the gradient rules of the new ops.
//   add(mul(layer_norm(x), affine(scale, 1, 1)), shift)   becomes   modulated_norm(x, scale, shift)
//   mul(rms_norm(x, weight), affine(scale, 1, 1))         becomes   modulated_norm(x, scale, -, weight)
//   rope(rms_norm(x, weight), cos, sin)                   becomes   rms_norm_rope(x, cos, sin, weight)
//   add(x, mul(gate, z))                                  becomes   gated_residual(x, gate, z)
//   add(x, mul(gate, rms_norm(z, weight)))                becomes   gated_residual(x, gate, z, weight)
//   mul(silu(a), b) or mul(gelu(a), b)                    becomes   gated_activation(a, b)
// for x and z [B, S, C], scale, shift and gate [B, 1, C], a and b of one shape; either factor and summand first; a
// shift behind a modulated RMS norm goes in as well. What was there stays where something else reads it, and rms norms
// where their weight is trained, or computed of anything but weights that are not.
#pragma once

#include <span>
#include <string>

#include "graph/graph.h"

namespace lh {

// trained: parameters that get gradients, as far as they are in the graph by now.
void fuse(Graph& graph, std::span<const std::string> trained = {});

}  // namespace lh
