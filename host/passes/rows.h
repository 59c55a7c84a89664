// Values as matrices: all axes but the last count rows.
#pragma once

#include "graph/graph.h"

namespace lh {

inline int64_t rows_of(const Graph& graph, Value v) {
  const Shape& shape = graph.desc(v).shape;
  const int64_t columns = shape.rank() == 0 ? 1 : shape[shape.rank() - 1];
  return columns == 0 ? 0 : shape.numel() / columns;
}

}  // namespace lh
