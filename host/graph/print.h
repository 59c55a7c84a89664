// The graph as text: one line a node, for LORA_VERBOSE=graph and tests.
#pragma once

#include <string>

#include "graph/graph.h"

namespace lh {

std::string print(const Graph& graph);

}  // namespace lh
