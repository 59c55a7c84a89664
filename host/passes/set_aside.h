// Pass: what adapters compute of weights alone, as the norms of their layers, and what is left of the gradients of
// that, to run beside the layers (run/side_by_side.h) and not between them. These are many short operations on small
// values. The first stand in front of what needs them: they move to behind the attention before the one in front.
// Nothing but the update waits for the others: they move to behind the attention that follows. Runs last, where all
// activations are kept and no weights are streamed.
#pragma once

#include "graph/graph.h"

namespace lh {

void set_aside(Graph& graph);

}  // namespace lh
