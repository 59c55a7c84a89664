// Pass: elementwise nodes become programs of one launch each (the op `pointwise`), whose intermediates are never
// stored. Sums, means and largest elements of their results are made by the program itself. Results keep their bits,
// but for the order of a sum on a GPU.
//
// Nodes over one shape join where no path leads out of the program and back into it, as far as a program's limits go
// (LK_POINTWISE_MAX_...). A result that only programs read is computed by each of them where that reads no more bytes
// than storing it would cost: what comes before a reduction is computed again behind it. Taken are functions of one and
// of two floating tensors, comparisons, where, cast, quantize_blockwise, dequantize_blockwise and round_stochastic;
// int32 arithmetic is not.
#pragma once

#include <map>

#include "graph/graph.h"

namespace lh {

// `replaces`: results that the caller would like to store over an input of their shape and type. Where a program makes
// the one and reads the other, its op says that it may be so (OpDef::in_place).
void fuse_pointwise(Graph& graph, const std::map<Value, Value>& replaces = {});

// Without joining: a program has one result, and takes in what only elementwise nodes read. In time that grows with the
// number of nodes, where the other grows with its square: for whole steps.
void fuse_chains(Graph& graph);

}  // namespace lh
