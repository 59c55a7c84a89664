// What a graph computes, as a hash: its ops with attributes, shapes and constants, and the names of its parameters.
#pragma once

#include <string>

#include "graph/graph.h"

namespace lh {

// SHA-256 in hex. Two graphs with one fingerprint compute the same from the same inputs and parameters: nothing that
// decides a result is left out. The contents of parameters are not part of it.
std::string fingerprint(const Graph& graph);

}  // namespace lh
