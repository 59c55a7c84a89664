// Pass: weight streaming. Weights of chosen blocks stay in host memory; what reads one reads a copy of it in the arena,
// made by a `fetch` node that stands far enough ahead for the copy to travel while other blocks compute:
//   y = linear(x, W)   becomes   W' = fetch(W) ... y = linear(x, W')
// A block is fetched once for the forward pass and once for the backward pass, with what is recomputed there. To the
// memory plan the copies are activations, to the kernels memory like any other: no bit of a result changes.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace lh {

struct Streaming {
  std::set<std::string> weights;  // that stay on the host; their factors go with them
  int64_t window = 0;             // bytes that may be on their way or in use at a time
};

// A checkpoint scope, and those of its weights that are worth sending.
struct StreamableBlock {
  std::string path;
  std::vector<std::string> weights;
  int64_t bytes = 0;  // with their factors
};

// Blocks of a graph in order of appearance. `candidates`: parameters that are not trained. A weight that nodes outside
// of its block read as well is no one's, and small ones (norms, biases) stay on the device: a copy of them takes longer
// to begin than to make.
std::vector<StreamableBlock> streamable_blocks(const Graph& graph, const std::vector<std::string>& candidates);

// `count` of them, evenly spread, so that the link is used all through a step; a window of two of the largest.
Streaming spread(const std::vector<StreamableBlock>& blocks, int64_t count);

void stream(Graph& graph, const Streaming& streaming);

// Parameters that fetch nodes read: those that are in host memory.
std::set<Value> streamed_parameters(const Graph& graph);

}  // namespace lh
