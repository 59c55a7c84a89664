// What the weight of a linear layer becomes by an adapter, read from the nodes that make it [out, in] of the base
// weight W, as far as it is
//   W' = rows (W + scale up down) columns      rows [out, 1], columns [1, in], up [out, r], down [r, in]
// so that the layer can be applied to its input one factor after the other and no change of the weight [out, in] is
// made, nor its gradient. Known are
//   matmul(a, b), an inner product of two weights matmul(a, b) * matmul(c, d)   (Khatri-Rao: a rank of p q)
//   their sum with W, factors of rows and columns before or behind it
//   sum(square(M)) over rows or columns of such an M without factors, in which with Z = W + scale / 2 up down
//     sum_i M^2 = sum_i W^2 + 2 scale sum_r up (Z down^T),   sum_o M^2 = sum_o W^2 + 2 scale sum_r down (up^T Z)
//   so that the norms of a decomposed weight read W and not M.
// The products with W have the type of computation and are summed in float32; a sum of squares is taken to be at least
// 2^-10 of W's own, below which nothing of it would be exact.
#pragma once

#include <functional>
#include <optional>

#include "graph/graph.h"

namespace lh {

struct FactoredWeight {
  Value up, down;  // f32; none: the weight is scaled only
  double scale = 1;
  Value rows, columns;  // f32; none: 1
};

// A layer's weight: as the nodes read it, f32, and in the type of computation, which is made where it is asked for.
struct FrozenWeight {
  Value weight;
  std::function<Value()> computed;
};

// Of the nodes from number `first` on, which make `result`. Sums of squares there are rewritten; what nothing reads any
// more is left. None, and nothing is changed, where the weight is something else or where applying its factors would
// take more products than applying the change as a whole.
std::optional<FactoredWeight> factor_weight(Graph& graph, size_t first, Value result, const FrozenWeight& base,
                                            int32_t scope);

}  // namespace lh
