// The arguments of a compiled program (pointwise_source.h). Also compiled at run time.
#pragma once

#include <cstdint>

namespace lk::cuda {

constexpr int pointwise_inputs = 24, pointwise_outputs = 12, pointwise_axes = 8;
constexpr int pointwise_arrivals = 16384;      // groups of tasks that share results
constexpr int pointwise_warps = 8;             // of a block
constexpr int pointwise_rows_in_float32 = 32;  // that a lane adds down a column before it goes on in float64

// How a program that reduces goes over its elements, [outer, rows, columns]: a task is a warp's, the rows of one slab
// over the columns of one. Results that tasks share go through partial ones: of a block where they are over rows or
// over both, of a warp where they are over columns.
struct PointwiseTasks {
  int64_t outer, rows, columns;
  int64_t slab_rows, slab_columns, row_slabs, column_slabs;
  int64_t blocks;      // of one `outer`; they take its tasks in their order, or
  int64_t row_blocks;  // where sums go down columns, this many share a slab of columns: each warp takes a slab of rows
  int32_t down;
  int32_t lanes;  // side by side along a row, 8 columns each: a power of two; a warp takes 32 / lanes rows at a time
  // Where the counters begin of blocks that share a slab of columns, and of those that share an `outer`; warps that
  // share a slab of rows have the first.
  int32_t rows_counters, both_counters;
};

struct PointwiseArguments {
  const void* inputs[pointwise_inputs];
  const float* input_scales[pointwise_inputs];
  void* outputs[pointwise_outputs];
  float* output_scales[pointwise_outputs];
  int64_t count;  // elements
  // The loop over them, the outermost axis first, and the strides of inputs that are repeated along some.
  int64_t dims[pointwise_axes];
  int64_t strides[pointwise_inputs][pointwise_axes];
  // Of outputs that are reduced.
  double* partial[pointwise_outputs];
  float scale[pointwise_outputs];
  uint32_t* arrivals;  // [pointwise_arrivals], 0 between launches
  PointwiseTasks tasks;
  int32_t wide;   // whether all tensors may be read and written in chunks of 8 elements
  uint32_t zero;  // 0, which the compiler does not know
};

}  // namespace lk::cuda
