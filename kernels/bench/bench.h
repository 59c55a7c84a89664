/* What the files of lora_kernels_bench share: its tensors, the timing of a kernel call, and the calls that are timed.
 */
#ifndef LORA_KERNELS_BENCH_H
#define LORA_KERNELS_BENCH_H

#include <stdint.h>

#include "lora_kernels.h"

/* Every call exists with this many sets of tensors, used in turn: what a large call reads is then not what the one
 * before it left in the caches. Small shapes do stay there, as they do in a network, where the neighbour has just
 * written them. */
enum { COPIES = 4, MOST_TENSORS = 512 };

typedef struct bench {
  lk_context* context;
  void* memory[MOST_TENSORS]; /* of the tensors of the running case */
  int count;
} bench;

/* Ends the program with the library's text unless status is LK_OK. */
void check(const bench* b, lk_status status);

/* tensors.c: dense tensors of normal values, until release(). */
void* memory(bench* b, int64_t bytes);
lk_tensor matrix(bench* b, lk_dtype dtype, int64_t rows, int64_t columns);
lk_tensor tensor4(bench* b, lk_dtype dtype, int64_t d0, int64_t d1, int64_t d2, int64_t d3);
int64_t bytes_of(lk_tensor tensor);
void release(bench* b);

/* timing.c: one kernel call, and the row of the table that says how long it takes. */
typedef struct timed_call {
  const char* name;
  char shape[40];
  lk_dtype dtype;
  double bytes; /* that have to be read and written, each once */
  double flops; /* 2 for a multiply-add */
  lk_status (*run)(lk_context* context, const void* copies, int copy);
  const void* copies; /* the arguments, COPIES of them */
} timed_call;
void print_header(void);
void print_times(bench* b, const timed_call* call);

/* lora.c, gradients.c, cases.c, elementwise.c, reductions.c and optimizers.c: the calls. */
typedef struct lora_shape {
  int64_t tokens, in, out, rank;
} lora_shape;
void time_lora_forward(bench* b, lora_shape shape, lk_dtype dtype);
/* The adapter's own gradients: dx, ddown and dup; without dx, as where the frozen layer's product makes it; or dx
 * through the frozen weight too, as in a layer. */
typedef enum gradients { ADAPTER, ADAPTER_WITHOUT_DX, LAYER } gradients;
void time_lora_backward(bench* b, lora_shape shape, lk_dtype dtype, gradients which);
/* Of a block's layers in bf16, `at_once` in a call. */
void time_lora_gradients(bench* b, const char* name, const lora_shape* shapes, int count, int at_once);
void time_matmul(bench* b, int64_t m, int64_t n, int64_t k, lk_dtype dtype);
void time_attention(bench* b, int64_t tokens, int64_t keys, int64_t heads, int64_t width, lk_dtype dtype);
void time_copy(bench* b, int64_t bytes);
/* In bf16, forward and backward. */
void time_modulation(bench* b, int64_t rows, int64_t columns);
void time_layer_norm(bench* b, int64_t rows, int64_t columns); /* whose weight is not trained */
void time_positions(bench* b, int64_t tokens, int64_t heads, int64_t width);
void time_activation(bench* b, lk_unary_kind kind, int64_t rows, int64_t columns); /* LK_SILU to LK_GELU_TANH */
void time_gate(bench* b, lk_unary_kind kind, int64_t rows, int64_t columns);       /* the same */

/* Of two matrices in bf16, a sum for each row (over columns), for each column (over rows), or one of all. */
typedef enum sum_over { OVER_COLUMNS, OVER_ROWS, OVER_BOTH } sum_over;
void time_product_sums(bench* b, sum_over over, int64_t rows, int64_t columns);

/* Updates of `count` numbers. */
typedef enum update_rule { ADAMW, ADAMW_8BIT, LION } update_rule;
void time_update(bench* b, update_rule rule, int64_t count); /* as a program of elementwise operations */
void time_adamw_update(bench* b, int64_t count);

#endif
