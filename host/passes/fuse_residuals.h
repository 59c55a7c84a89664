// Pass: what the result of a layer is added to goes into the layer, whose product adds it. Runs before differentiate:
// of a sum that is rounded once nothing may depend on what is kept or made again.
//   y = lora(x); z = y + r    becomes   z = lora_added(x, r)
// where nothing else reads y, and r is there before the layer and is not x: with x, one kernel of the backward pass
// adds both gradients, which two would make. float32 keeps its bits on the CPU.
#pragma once

#include "graph/graph.h"

namespace lh {

void fuse_residuals(Graph& graph);

}  // namespace lh
