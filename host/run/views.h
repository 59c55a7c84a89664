// Where values share storage, so that no copy is made. Three kinds of values lie within another one:
//   the output of an alias (reshape)                        has all of its source
//   the parts of a split, and a slice                       are pieces of what is cut
//   the inputs of a concat that nodes of the graph compute   are written where the joined tensor has them
// The last two where a piece is contiguous in the whole, which it is when every axis before the cut one has one
// element: text and image tokens of a batch of one, but not channels.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "graph/graph.h"

namespace lh {

struct View {
  uint32_t root = 0;   // value id whose storage it is; its own, unless it lies within another
  int64_t offset = 0;  // bytes
};

// By value id. Values in `external`, constants and inputs of the graph keep storage of their own, and pieces of them
// are copies: what their memory holds may change while a piece is read.
std::vector<View> share_storage(const Graph& graph, const std::set<Value>& external);

}  // namespace lh
