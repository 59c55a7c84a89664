// Where values share storage, so that no copy is made. Three kinds of values lie within another one:
//   the output of an alias (reshape)                        has all of its source
//   the parts of a split, and a slice                       are pieces of what is cut
//   the inputs of a concat that nodes of the graph compute   are written where the joined tensor has them
// A piece is contiguous in the whole where every axis before the cut one has one element: text and image tokens of a
// batch of one. Other pieces, channels above all, lie in lines (lora_kernels.h): so they stay where they are if every
// op that reads or writes them takes lines (OpDef::lines_in, lines_out).
//
// A storage is there from the first write into any of its values to the last read of any. What would be held in vain by
// that, such as a joined tensor for the sake of one piece that is read much later, is not brought together but copied.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "graph/graph.h"

namespace lh {

struct View {
  uint32_t root = 0;            // value id that stands for the storage; its own, unless it shares another's
  int64_t offset = 0;           // bytes from the storage's begin
  int64_t line = 0, pitch = 0;  // elements; 0: dense
  int64_t storage = 0;          // of the storage, in bytes
};

// Which pieces stay in the whole.
enum class PieceLayout { contiguous, in_lines };

// By value id. Values in `external`, constants and inputs of the graph keep storage of their own, and pieces of them
// are copies: what their memory holds may change while a piece is read.
std::vector<View> share_storage(const Graph& graph, const std::set<Value>& external, PieceLayout pieces);

// The strides of a value that lies so, for kernels; all 0 where it is dense.
void set_strides(const View& view, lk_tensor& tensor);

}  // namespace lh
