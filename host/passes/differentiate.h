// Pass: appends to the graph the nodes that compute gradients.
#pragma once

#include <map>
#include <vector>

#include "graph/graph.h"

namespace lh {

// Gradients of `loss` (f32 [1]) with respect to `parameters`. `seed` is d(loss), f32 [1]: an input or a constant, so
// that a loss scale can be given at run time. Only paths that reach a parameter are built: frozen weights cost nothing.
// Throws lh::Error listing every op without a gradient rule on such a path. A parameter that the loss does not depend
// on gives value 0.
std::map<Value, Value> differentiate(Graph& graph, Value loss, Value seed, const std::vector<Value>& parameters);

}  // namespace lh
