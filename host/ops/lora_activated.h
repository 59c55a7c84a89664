// lora with an activation in the same kernel; the pass fuse_activations makes it.
#pragma once

#include "graph/op.h"

namespace lh {

// A lora whose columns from the attribute `from` on also go through gelu by tanh, or, with the attribute `gates` 1, are
// silu of their first half times the second. Outputs y, s, activated [..., out - from], or half as wide.
extern const OpDef lora_activated_op;
// Two layers of one width as in lora_group: one output more, silu of the first's y times the second's.
extern const OpDef lora_group_gated_op;

}  // namespace lh
