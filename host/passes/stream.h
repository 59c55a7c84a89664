// Pass: weight streaming. Weights of chosen blocks stay in host memory, or with another process; what reads one reads a
// copy of it in the arena, made by a `fetch` node that stands far enough ahead for the copy to travel while other
// blocks compute:
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
  // Of the weights those that are here, and that another process fetches: they are read where they lie, and an `offer`
  // node stands where a fetch would. So the nodes of both processes fetch and offer in one order.
  std::set<std::string> own = {};
};

struct StreamableWeight {
  std::string name;
  int64_t bytes = 0;  // with its factors
};

// A checkpoint scope, and those of its weights that are worth sending.
struct StreamableBlock {
  std::string path;
  std::vector<StreamableWeight> weights;
  int64_t bytes = 0;  // of all of them
};

// Blocks of a graph in order of appearance. `candidates`: parameters that are not trained. A weight that nodes outside
// of its block read as well is no one's, and small ones (norms, biases) stay on the device: a copy of them takes longer
// to begin than to make.
std::vector<StreamableBlock> streamable_blocks(const Graph& graph, const std::vector<std::string>& candidates);

// `count` of them, evenly spread, so that the link is used all through a step; a window of two of the largest.
Streaming spread(const std::vector<StreamableBlock>& blocks, int64_t count);

// What one of two processes keeps where each has whole weights: about half of the bytes of the blocks, and of each
// block.
std::set<std::string> dealt(const std::vector<StreamableBlock>& blocks, int rank);

void stream(Graph& graph, const Streaming& streaming);

// Parameters that fetch nodes read: those that are elsewhere.
std::set<Value> streamed_parameters(const Graph& graph);
// Those that others fetch from here.
std::set<Value> offered_parameters(const Graph& graph);

}  // namespace lh
