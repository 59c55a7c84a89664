/* What the LoRA calls are measured against: matrix products, attention, and copies as the ceiling of bandwidth. */
#include <math.h>
#include <stdio.h>

#include "bench.h"

static lk_status run_matmul(lk_context* context, const void* copies, int copy) {
  return lk_matmul(context, (const lk_matmul_params*)copies + copy);
}

void time_matmul(bench* b, int64_t m, int64_t n, int64_t k, lk_dtype dtype) {
  timed_call call = {0};
  lk_matmul_params copies[COPIES] = {0};
  int i;
  for (i = 0; i < COPIES; ++i) {
    copies[i].struct_size = sizeof copies[i];
    copies[i].a = matrix(b, dtype, m, k);
    copies[i].b = matrix(b, dtype, n, k);
    copies[i].c = matrix(b, dtype, m, n);
    copies[i].transpose_b = 1;
  }
  call.name = "matrix product";
  snprintf(call.shape, sizeof call.shape, "%lldx%lldx%lld", (long long)m, (long long)n, (long long)k);
  call.dtype = dtype;
  call.bytes = (double)(bytes_of(copies[0].a) + bytes_of(copies[0].b) + bytes_of(copies[0].c));
  call.flops = 2.0 * (double)m * (double)n * (double)k;
  call.run = run_matmul;
  call.copies = copies;
  print_times(b, &call);
  release(b);
}

static lk_status run_attention(lk_context* context, const void* copies, int copy) {
  return lk_attention(context, (const lk_attention_params*)copies + copy);
}

static lk_status run_attention_backward(lk_context* context, const void* copies, int copy) {
  return lk_attention_backward(context, (const lk_attention_backward_params*)copies + copy);
}

static lk_tensor log_sums(bench* b, int64_t heads, int64_t tokens) { /* [1, heads, tokens] */
  lk_tensor lse = matrix(b, LK_F32, heads, tokens);
  lse.rank = 3;
  lse.dims[0] = 1;
  lse.dims[1] = heads;
  lse.dims[2] = tokens;
  return lse;
}

static lk_attention_backward_params backward_of(bench* b, const lk_attention_params* p) {
  const int64_t* const d = p->q.dims;
  lk_attention_backward_params g = {.struct_size = sizeof g};
  g.d_o = tensor4(b, p->q.dtype, d[0], d[1], d[2], d[3]);
  g.q = p->q;
  g.k = p->k;
  g.v = p->v;
  g.o = p->o;
  g.lse = p->lse;
  g.scale = p->scale;
  g.dq = tensor4(b, p->q.dtype, d[0], d[1], d[2], d[3]);
  g.dk = tensor4(b, p->q.dtype, d[0], p->k.dims[1], d[2], d[3]);
  g.dv = tensor4(b, p->q.dtype, d[0], p->k.dims[1], d[2], d[3]);
  return g;
}

/* Forward, two products with the scores, then backward, five. */
void time_attention(bench* b, int64_t tokens, int64_t keys, int64_t heads, int64_t width, lk_dtype dtype) {
  const double product = 2.0 * (double)heads * (double)tokens * (double)keys * (double)width;
  timed_call call = {0};
  lk_attention_params forward[COPIES] = {0};
  lk_attention_backward_params backward[COPIES];
  double rows, both, lse;
  int i;
  for (i = 0; i < COPIES; ++i) {
    lk_attention_params* const p = &forward[i];
    p->struct_size = sizeof *p;
    p->q = tensor4(b, dtype, 1, tokens, heads, width);
    p->k = tensor4(b, dtype, 1, keys, heads, width);
    p->v = tensor4(b, dtype, 1, keys, heads, width);
    p->scale = 1.0f / sqrtf((float)width);
    p->o = tensor4(b, dtype, 1, tokens, heads, width);
    p->lse = log_sums(b, heads, tokens);
    backward[i] = backward_of(b, p);
  }
  rows = (double)bytes_of(forward[0].q);
  both = 2 * (double)bytes_of(forward[0].k); /* k and v */
  lse = (double)bytes_of(forward[0].lse);
  snprintf(call.shape, sizeof call.shape, "%lldx%lldx%lldx%lld", (long long)tokens, (long long)keys, (long long)heads,
           (long long)width);
  call.dtype = dtype;
  call.name = "attention";
  call.bytes = 2 * rows + both + lse;
  call.flops = 2 * product;
  call.run = run_attention;
  call.copies = forward;
  print_times(b, &call);
  call.name = "attention backward";
  call.bytes = 4 * rows + 2 * both + lse;
  call.flops = 5 * product;
  call.run = run_attention_backward;
  call.copies = backward;
  print_times(b, &call);
  release(b);
}

typedef struct copy_params {
  void *to, *from;
  int64_t bytes;
} copy_params;

static lk_status run_copy(lk_context* context, const void* copies, int copy) {
  const copy_params* const p = (const copy_params*)copies + copy;
  return lk_copy_async(context, LK_COMPUTE, p->to, p->from, p->bytes);
}

void time_copy(bench* b, int64_t bytes) {
  timed_call call = {0};
  copy_params copies[COPIES];
  int i;
  for (i = 0; i < COPIES; ++i) {
    copies[i].to = matrix(b, LK_F32, 1, bytes / (int64_t)sizeof(float)).data;
    copies[i].from = matrix(b, LK_F32, 1, bytes / (int64_t)sizeof(float)).data;
    copies[i].bytes = bytes;
  }
  call.name = "copy";
  snprintf(call.shape, sizeof call.shape, "%lld MiB", (long long)(bytes >> 20));
  call.dtype = LK_F32;
  call.bytes = 2.0 * (double)bytes; /* read and written */
  call.run = run_copy;
  call.copies = copies;
  print_times(b, &call);
  release(b);
}
