// lora with an activation in the same kernel; the pass fuse_activations makes it.
#pragma once

#include "graph/op.h"

namespace lh {

// A lora whose columns from the attribute `from` on also go through gelu by tanh. Outputs y, s, activated [..., out -
// from].
extern const OpDef lora_activated_op;

}  // namespace lh
