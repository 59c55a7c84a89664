// Pass: drops nodes whose results nothing reads.
#pragma once

#include "graph/graph.h"

namespace lh {

void prune(Graph& graph);

}  // namespace lh
