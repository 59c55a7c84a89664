// Pass: gives every buffer of a graph a place in one arena, so that the peak is known before a byte is taken.
//
// A buffer lives from the node that writes it to the last node that reads it; two buffers whose lives overlap never
// overlap in memory. What nodes read and write that run beside others (side_by_side.h) lives as long as they may run.
// Inputs and outputs live throughout. Values that share storage (views.h) are one buffer; pieces in lines are views
// where that takes little more memory, since a storage lives as long as the last of its pieces. Constants, which a
// program keeps in memory of its own, and values that the caller binds to memory of its own (weights, trained tensors,
// their gradients, the inputs of a training step) take no place.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "run/side_by_side.h"
#include "run/views.h"

namespace lh {

struct PlannedBuffer {
  Value value;  // the one that stands for the storage
  int64_t offset = 0, bytes = 0;
  int64_t first = 0, last = 0;  // node indices; inclusive
};

struct Plan {
  std::vector<PlannedBuffer> buffers;
  std::vector<View> views;  // by value id
  std::vector<SideBySide> side_by_side;
  int64_t bytes = 0;      // of the arena
  int64_t live_peak = 0;  // largest sum of live buffers: a lower bound for any plan
  bool placed = false;    // else buffers have no offsets yet, and bytes is such a bound
};

struct PlannedGraph {
  const Graph* graph;
  const Plan* plan;
};

inline constexpr int64_t plan_alignment = 256;

Plan plan_memory(const Graph& graph, const std::set<Value>& external);
Plan plan_memory(const Graph& graph, const std::set<Value>& external, PieceLayout pieces);
// The same where the arena takes no more than `most` bytes; where it is certain to take more, no places are looked for,
// which is nearly all of the time that a plan takes.
Plan plan_within(const Graph& graph, const std::set<Value>& external, int64_t most);
// Bytes with the padding that places everything at multiples of plan_alignment.
int64_t placed_bytes(int64_t bytes);
int64_t constant_bytes(const Graph& graph);

// The plan as text, largest buffers first, for LORA_VERBOSE=plan.
std::string print(const Graph& graph, const Plan& plan, size_t most);

}  // namespace lh
