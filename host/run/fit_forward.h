// How a graph that only runs forward fits into memory: whole, or with the weights of as few blocks as need be in host
// memory.
#pragma once

#include "graph/graph.h"
#include "io/checkpoint.h"
#include "passes/stream.h"
#include "run/device.h"

namespace lh {

struct ForwardFit {
  Streaming streaming;
  int64_t bytes = 0;     // of the device: weights, arena, constants, workspace
  int64_t streamed = 0;  // of the host
  int64_t blocks = 0, streamed_blocks = 0;
};

// The fewest blocks with which it takes no more than `room` bytes; where that cannot be, the least it can take.
ForwardFit fit_forward(Device& device, const Graph& graph, const Checkpoint& checkpoint, int64_t room);

}  // namespace lh
