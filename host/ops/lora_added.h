// lora with a residual connection in the same kernel; the pass fuse_residuals makes it.
#pragma once

#include "graph/op.h"

namespace lh {

// A lora of one more input, which is like y and added to it.
extern const OpDef lora_added_op;

}  // namespace lh
