// Pass: gives convolutions their weights in the order that kernels read, [O, K..., I]. Runs once, when the graph is
// complete, because only then it is known who reads what:
//   a parameter that nothing but convolutions reads   is stored in that order (ValueInfo::channels_last)
//   any other weight                                  goes through the op to_channels_last
#pragma once

#include <map>

#include "graph/graph.h"

namespace lh {

void settle_layouts(Graph& graph);

// Results of to_channels_last and what they are made of.
std::map<Value, Value> reordered_weights(const Graph& graph);

}  // namespace lh
