/* Sums of products of two matrices, of each element as it passes: programs of one instruction (lk_pointwise). */
#include <stdio.h>

#include "bench.h"

typedef struct program {
  lk_pointwise_input inputs[2];
  lk_pointwise_instruction product;
  lk_pointwise_output sum;
  lk_pointwise_params params;
} program;

static lk_status run_program(lk_context* context, const void* copies, int copy) {
  return lk_pointwise(context, &((const program*)copies)[copy].params);
}

void time_product_sums(bench* b, sum_over over, int64_t rows, int64_t columns) {
  static const char* const names[] = {"product sums of rows", "product sums of columns", "product sum"};
  timed_call call = {0};
  program copies[COPIES] = {0};
  int i;
  for (i = 0; i < COPIES; ++i) {
    program* const q = &copies[i];
    q->inputs[0].x = matrix(b, LK_BF16, rows, columns);
    q->inputs[1].x = matrix(b, LK_BF16, rows, columns);
    q->product.code = LK_POINTWISE_BINARY;
    q->product.kind = LK_MUL;
    q->product.operands[1] = 1;
    q->sum.value = 2;
    q->sum.reduction = LK_POINTWISE_SUM;
    q->sum.scale = 1;
    q->sum.y = matrix(b, LK_F32, over == OVER_COLUMNS ? rows : 1, over == OVER_ROWS ? columns : 1);
    q->params.struct_size = sizeof q->params;
    q->params.inputs = q->inputs;
    q->params.input_count = 2;
    q->params.instructions = &q->product;
    q->params.instruction_count = 1;
    q->params.outputs = &q->sum;
    q->params.output_count = 1;
    q->params.rank = 2;
    q->params.dims[0] = rows;
    q->params.dims[1] = columns;
  }
  call.name = names[over];
  snprintf(call.shape, sizeof call.shape, "%lldx%lld", (long long)rows, (long long)columns);
  call.dtype = LK_BF16;
  call.bytes = 2.0 * (double)bytes_of(copies[0].inputs[0].x) + (double)bytes_of(copies[0].sum.y);
  call.run = run_program;
  call.copies = copies;
  print_times(b, &call);
  release(b);
}
