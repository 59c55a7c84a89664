/* What is bound by reading and writing: norms, modulation, gates, rotation, activations. Beside the copy of this table,
 * the column of bytes says how near they come to it. */
#include <stdio.h>

#include "bench.h"

typedef union pass {
  lk_modulated_norm_params modulated_norm;
  lk_modulated_norm_backward_params modulated_norm_backward;
  lk_layer_norm_params layer_norm;
  lk_layer_norm_backward_params layer_norm_backward;
  lk_rms_norm_params rms_norm;
  lk_rms_norm_backward_params rms_norm_backward;
  lk_rope_params rope;
  lk_rms_norm_rope_params rms_norm_rope;
  lk_rms_norm_rope_backward_params rms_norm_rope_backward;
  lk_gated_residual_params gated_residual;
  lk_gated_residual_backward_params gated_residual_backward;
  lk_unary_params unary;
  lk_unary_backward_params unary_backward;
  lk_gated_activation_params gated_activation;
  lk_gated_activation_backward_params gated_activation_backward;
} pass;

/* Runs copy i of an operation, and begins its parameters. */
#define OPERATION(op)                                                            \
  static lk_status run_##op(lk_context* context, const void* copies, int copy) { \
    return lk_##op(context, &((const pass*)copies)[copy].op);                    \
  }                                                                              \
  static lk_##op##_params* begin_##op(pass* p) {                                 \
    const lk_##op##_params empty = {.struct_size = sizeof empty};                \
    p->op = empty;                                                               \
    return &p->op;                                                               \
  }
OPERATION(modulated_norm)
OPERATION(modulated_norm_backward)
OPERATION(layer_norm)
OPERATION(layer_norm_backward)
OPERATION(rms_norm)
OPERATION(rms_norm_backward)
OPERATION(rope)
OPERATION(rms_norm_rope)
OPERATION(rms_norm_rope_backward)
OPERATION(gated_residual)
OPERATION(gated_residual_backward)
OPERATION(unary)
OPERATION(unary_backward)
OPERATION(gated_activation)
OPERATION(gated_activation_backward)

static const lk_dtype dtype = LK_BF16;

/* [1, rows, columns], and [1, columns] for the whole image. */
static lk_tensor image(bench* b, int64_t rows, int64_t columns) {
  lk_tensor t = matrix(b, dtype, rows, columns);
  t.rank = 3;
  t.dims[2] = columns;
  t.dims[1] = rows;
  t.dims[0] = 1;
  return t;
}

/* Of a norm: a weight or bias for each column. */
static lk_tensor vector(bench* b, int64_t columns) {
  lk_tensor t = matrix(b, dtype, 1, columns);
  t.rank = 1;
  t.dims[0] = columns;
  return t;
}

/* `passes` times the tensor of `rows` x `columns` is read or written. */
static void print_pass(bench* b, const char* name, int64_t rows, int64_t columns, int passes,
                       lk_status (*run)(lk_context*, const void*, int), const pass* copies) {
  timed_call call = {0};
  call.name = name;
  snprintf(call.shape, sizeof call.shape, "%lldx%lld", (long long)rows, (long long)columns);
  call.dtype = dtype;
  call.bytes = (double)passes * (double)rows * (double)columns * (double)lk_dtype_size(dtype);
  call.run = run;
  call.copies = copies;
  print_times(b, &call);
  release(b);
}

void time_modulation(bench* b, int64_t rows, int64_t columns) {
  pass copies[COPIES];
  int i;
  for (i = 0; i < COPIES; ++i) {
    lk_modulated_norm_params* const p = begin_modulated_norm(&copies[i]);
    p->x = image(b, rows, columns);
    p->scale = matrix(b, dtype, 1, columns);
    p->shift = matrix(b, dtype, 1, columns);
    p->y = image(b, rows, columns);
    p->eps = 1e-6f;
  }
  print_pass(b, "modulated norm", rows, columns, 2, run_modulated_norm, copies);
  for (i = 0; i < COPIES; ++i) {
    lk_modulated_norm_backward_params* const p = begin_modulated_norm_backward(&copies[i]);
    p->dy = image(b, rows, columns);
    p->x = image(b, rows, columns);
    p->scale = matrix(b, dtype, 1, columns);
    p->eps = 1e-6f;
    p->dx = image(b, rows, columns);
    p->dscale = matrix(b, dtype, 1, columns);
    p->dshift = matrix(b, dtype, 1, columns);
  }
  print_pass(b, "modulated norm backward", rows, columns, 3, run_modulated_norm_backward, copies);
  for (i = 0; i < COPIES; ++i) {
    lk_gated_residual_params* const p = begin_gated_residual(&copies[i]);
    p->x = image(b, rows, columns);
    p->gate = matrix(b, dtype, 1, columns);
    p->z = image(b, rows, columns);
    p->y = image(b, rows, columns);
  }
  print_pass(b, "gated residual", rows, columns, 3, run_gated_residual, copies);
  for (i = 0; i < COPIES; ++i) {
    lk_gated_residual_backward_params* const p = begin_gated_residual_backward(&copies[i]);
    p->dy = image(b, rows, columns);
    p->gate = matrix(b, dtype, 1, columns);
    p->z = image(b, rows, columns);
    p->dz = image(b, rows, columns);
    p->dgate = matrix(b, dtype, 1, columns);
  }
  print_pass(b, "gated residual backward", rows, columns, 3, run_gated_residual_backward, copies);
}

void time_layer_norm(bench* b, int64_t rows, int64_t columns) {
  pass copies[COPIES];
  int i;
  for (i = 0; i < COPIES; ++i) {
    lk_layer_norm_params* const p = begin_layer_norm(&copies[i]);
    p->x = image(b, rows, columns);
    p->weight = vector(b, columns);
    p->bias = vector(b, columns);
    p->y = image(b, rows, columns);
    p->eps = 1e-5f;
  }
  print_pass(b, "layer norm", rows, columns, 2, run_layer_norm, copies);
  for (i = 0; i < COPIES; ++i) {
    lk_layer_norm_backward_params* const p = begin_layer_norm_backward(&copies[i]);
    p->dy = image(b, rows, columns);
    p->x = image(b, rows, columns);
    p->weight = vector(b, columns);
    p->eps = 1e-5f;
    p->dx = image(b, rows, columns);
  }
  print_pass(b, "layer norm backward", rows, columns, 3, run_layer_norm_backward, copies);
}

static lk_tensor table(bench* b, int64_t tokens, int64_t width) { return matrix(b, LK_F32, tokens, width / 2); }

/* Of the queries of an attention with so many heads. */
void time_positions(bench* b, int64_t tokens, int64_t heads, int64_t width) {
  const int64_t columns = heads * width;
  pass copies[COPIES];
  int i;
  for (i = 0; i < COPIES; ++i) {
    lk_rms_norm_params* const p = begin_rms_norm(&copies[i]);
    p->x = tensor4(b, dtype, 1, tokens, heads, width);
    p->y = tensor4(b, dtype, 1, tokens, heads, width);
    p->eps = 1e-6f;
  }
  print_pass(b, "rms norm of heads", tokens, columns, 2, run_rms_norm, copies);
  for (i = 0; i < COPIES; ++i) {
    lk_rms_norm_backward_params* const p = begin_rms_norm_backward(&copies[i]);
    p->dy = tensor4(b, dtype, 1, tokens, heads, width);
    p->x = tensor4(b, dtype, 1, tokens, heads, width);
    p->eps = 1e-6f;
    p->dx = tensor4(b, dtype, 1, tokens, heads, width);
  }
  print_pass(b, "rms norm backward", tokens, columns, 3, run_rms_norm_backward, copies);
  for (i = 0; i < COPIES; ++i) {
    lk_rope_params* const p = begin_rope(&copies[i]);
    p->x = tensor4(b, dtype, 1, tokens, heads, width);
    p->cos = table(b, tokens, width);
    p->sin = table(b, tokens, width);
    p->y = tensor4(b, dtype, 1, tokens, heads, width);
    p->interleaved = 1;
  }
  print_pass(b, "rope", tokens, columns, 2, run_rope, copies);
  for (i = 0; i < COPIES; ++i) {
    lk_rms_norm_rope_params* const p = begin_rms_norm_rope(&copies[i]);
    p->x = tensor4(b, dtype, 1, tokens, heads, width);
    p->weight = vector(b, width);
    p->cos = table(b, tokens, width);
    p->sin = table(b, tokens, width);
    p->y = tensor4(b, dtype, 1, tokens, heads, width);
    p->eps = 1e-6f;
    p->interleaved = 1;
  }
  print_pass(b, "rms norm and rope", tokens, columns, 2, run_rms_norm_rope, copies);
  for (i = 0; i < COPIES; ++i) {
    lk_rms_norm_rope_backward_params* const p = begin_rms_norm_rope_backward(&copies[i]);
    p->dy = tensor4(b, dtype, 1, tokens, heads, width);
    p->x = tensor4(b, dtype, 1, tokens, heads, width);
    p->weight = vector(b, width);
    p->cos = table(b, tokens, width);
    p->sin = table(b, tokens, width);
    p->eps = 1e-6f;
    p->interleaved = 1;
    p->dx = tensor4(b, dtype, 1, tokens, heads, width);
  }
  print_pass(b, "rms norm and rope backward", tokens, columns, 3, run_rms_norm_rope_backward, copies);
}

void time_activation(bench* b, lk_unary_kind kind, int64_t rows, int64_t columns) {
  const char* const names[] = {"silu", "gelu", "gelu tanh"};
  char name[32];
  pass copies[COPIES];
  int i;
  for (i = 0; i < COPIES; ++i) {
    lk_unary_params* const p = begin_unary(&copies[i]);
    p->kind = kind;
    p->x = matrix(b, dtype, rows, columns);
    p->y = matrix(b, dtype, rows, columns);
  }
  print_pass(b, names[kind], rows, columns, 2, run_unary, copies);
  for (i = 0; i < COPIES; ++i) {
    lk_unary_backward_params* const p = begin_unary_backward(&copies[i]);
    p->kind = kind;
    p->dy = matrix(b, dtype, rows, columns);
    p->x = matrix(b, dtype, rows, columns);
    p->dx = matrix(b, dtype, rows, columns);
  }
  snprintf(name, sizeof name, "%s backward", names[kind]);
  print_pass(b, name, rows, columns, 3, run_unary_backward, copies);
}

void time_gate(bench* b, lk_unary_kind kind, int64_t rows, int64_t columns) {
  const char* const names[] = {"silu gate", "gelu gate", "gelu tanh gate"};
  char name[32];
  pass copies[COPIES];
  int i;
  for (i = 0; i < COPIES; ++i) {
    lk_gated_activation_params* const p = begin_gated_activation(&copies[i]);
    p->kind = kind;
    p->a = matrix(b, dtype, rows, columns);
    p->b = matrix(b, dtype, rows, columns);
    p->y = matrix(b, dtype, rows, columns);
  }
  print_pass(b, names[kind], rows, columns, 3, run_gated_activation, copies);
  for (i = 0; i < COPIES; ++i) {
    lk_gated_activation_backward_params* const p = begin_gated_activation_backward(&copies[i]);
    p->kind = kind;
    p->dy = matrix(b, dtype, rows, columns);
    p->a = matrix(b, dtype, rows, columns);
    p->b = matrix(b, dtype, rows, columns);
    p->da = matrix(b, dtype, rows, columns);
    p->db = matrix(b, dtype, rows, columns);
  }
  snprintf(name, sizeof name, "%s backward", names[kind]);
  print_pass(b, name, rows, columns, 5, run_gated_activation_backward, copies);
}
