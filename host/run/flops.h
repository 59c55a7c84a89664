// Floating-point operations of a graph: matrix products and attention, 2 for each multiply-add; the rest is not
// counted.
#pragma once

#include <cstdint>

#include "graph/graph.h"

namespace lh {

double flops(const Graph& graph);
double flops(const Graph& graph, const Node& node);

}  // namespace lh
