// Pass: gradients of adapters of few rows, as of modulations, behind the attention that follows. Runs last, where all
// activations are kept and no weights are streamed. They are a few short kernels, one after the other, that nothing
// waits for but the update: where they stand they hold up the stream of their block, and there they depend on nothing
// that is made beside them (run/side_by_side.h). What only they read moves with them where it is of few rows, too, and
// so reads weights later than the rest of its block: streamed ones would be fetched for it again.
#pragma once

#include "graph/graph.h"

namespace lh {

void delay_gradients(Graph& graph);

}  // namespace lh
