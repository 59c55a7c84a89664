// Which activations may wait in host memory for the backward pass (passes/offload.h), and of them so many that the link
// carries about the same number of bytes beside each block.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "passes/offload.h"

namespace lh {

// Storages that blocks leave for their backward passes and that one value covers, of which everything that is read
// later is had from that value. external: values with memory of their own.
std::vector<Voyage> offloadable(const Graph& graph, const std::set<Value>& external);

int64_t offloaded_bytes(const Graph& graph, const std::vector<Voyage>& voyages);

// About so many bytes of them, the same share of each block's, and of a block the largest first, which need the fewest
// copies.
std::vector<Voyage> evenly(const Graph& graph, const std::vector<Voyage>& voyages, int64_t bytes);

// Host memory that what a graph sends there takes.
int64_t offloaded_bytes(const Graph& graph);

}  // namespace lh
