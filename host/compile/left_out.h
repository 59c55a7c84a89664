// Modules that a selection names and that get no adapter all the same, which a run says before it begins.
#pragma once

#include <string>
#include <vector>

#include "compile/adapter_selection.h"
#include "graph/graph.h"

namespace lh {

struct LeftOut {
  std::string module;
  std::string reason;  // "a convolution in 4 groups"
  bool operator==(const LeftOut&) const = default;
};

// Of a graph before or after the pass `adapt`, in its order, each module once.
std::vector<LeftOut> left_out(const Graph& graph, const SelectAdapter& select);

// "2 modules have no adapter: a.dw, b.dw (a convolution in 4 groups)", a line for each reason; of more than a few
// modules the first ones are named, where not `whole`.
std::vector<std::string> left_out_lines(const std::vector<LeftOut>& modules, bool whole);

}  // namespace lh
