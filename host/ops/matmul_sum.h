// The sum of a batch of products: the gradient of an operand of matmul that all of a batch have.
#pragma once

#include "graph/op.h"

namespace lh {

// Of a, b and an operand, of whose type and shape it is: the sum over the leading axes of matmul(a, b).
extern const OpDef matmul_sum_op;

}  // namespace lh
