// lora and lora_backward with an activation in the same kernel; the pass fuse_activations makes them.
#pragma once

#include "graph/op.h"

namespace lh {

// A lora whose columns from the attribute `from` on also go through gelu by tanh. Outputs y, s, activated [..., out -
// from].
extern const OpDef lora_activated_op;
// A lora_backward whose x has such columns: the gradient goes on through the activation. Inputs are those of
// lora_backward, none of which is added to dx, and last what the activation was applied to, [..., in - from]. Outputs
// ddown, dup, the gradient of that and, where `from` is not 0, dx of the columns in front.
extern const OpDef lora_activated_backward_op;

}  // namespace lh
