// CUDA C++ for a program of elementwise operations.
//
// Why source, and not a kernel that interprets the program: an instruction that is decoded needs its operands at places
// known only at run time, which registers do not have. In shared memory, 25 instructions move ten times the bytes that
// the operands of AdamW have, at six times the rate; selected out of registers by branches, an instruction on 8
// elements takes about 50 where a compiled one takes 8. A compiled program has its values in registers, issues all its
// loads first, and leaves most of the time to memory. The price is the compiler, once for each kind of program: sizes
// and addresses are arguments, so the same rule over other tensors is the same program.
#pragma once

#include <string>

#include "pointwise.h"

namespace lk::cuda {

// The axes of a reduction where the program's are [outer, rows, columns].
enum class PointwiseOver { columns, rows, both };

// How a program goes over its elements: what it is compiled for besides instructions and types.
struct PointwiseLoop {
  int32_t rank = 1;         // axes
  bool short_index = true;  // 32 bits do for elements
  bool whole_rows = true;   // the inner axis is a multiple of 8: a chunk of 8 elements lies within a row
  // By input that is repeated along some axes: whether it stands still along the inner one.
  bool repeated[LK_POINTWISE_MAX_INPUTS] = {}, still[LK_POINTWISE_MAX_INPUTS] = {};
  PointwiseOver over[LK_POINTWISE_MAX_OUTPUTS] = {};  // by output that is reduced
};

// The kernel `pointwise`, of one argument PointwiseArguments, in blocks whose threads are a multiple of 32, those of a
// program that reduces of pointwise_warps warps.
std::string pointwise_source(const PointwiseProgram& program, const PointwiseLoop& loop);

}  // namespace lk::cuda
