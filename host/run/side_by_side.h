// Pass: which nodes of a graph may run beside others. Where a model has streams that do not wait for each other, as the
// text's and the picture's between two joint attentions, the smaller one's operations would leave most of a GPU idle,
// one after the other; beside the larger one's they take little longer than that alone.
//
// The nodes are walked once. Those that depend on each other since the last border are a strand. A border is a node
// that two strands of some operations meet in; attention, whose blocks need the whole device at once; and a transfer,
// which waits for all in front of it. Between two borders the largest strand goes its way, and all others go one after
// the other beside it, if they are some operations, and small ones: large ones would only be in each other's way.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace lh {

// Nodes first to last, inclusive, of which those `aside` (in order) are one branch and the others another. Neither
// reads what the other writes.
struct SideBySide {
  int64_t first = 0, last = 0;
  std::vector<int64_t> aside;
};

// In order; none overlaps another.
std::vector<SideBySide> side_by_side(const Graph& graph);

}  // namespace lh
