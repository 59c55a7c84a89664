/* The LoRA calls: activations in the given type, down, up and their gradients in f32, as in training. */
#include <stdio.h>

#include "bench.h"

/* dy, x and dx are read or written once each, like s, down, up, ddown and dup. */
static double backward_bytes(const lk_lora_backward_params* p) {
  const int64_t frozen = p->weight.data != NULL ? bytes_of(p->weight) : 0;
  const int64_t dx = p->dx.data != NULL ? bytes_of(p->dx) : 0;
  return (double)(bytes_of(p->dy) + bytes_of(p->x) + bytes_of(p->s) + bytes_of(p->down) + bytes_of(p->up) + frozen +
                  dx + bytes_of(p->ddown) + bytes_of(p->dup));
}

static double forward_bytes(const lk_lora_forward_params* p) {
  return (double)(bytes_of(p->x) + bytes_of(p->down) + bytes_of(p->up) + bytes_of(p->y) + bytes_of(p->s));
}

static lk_status run_backward(lk_context* context, const void* copies, int copy) {
  return lk_lora_backward(context, (const lk_lora_backward_params*)copies + copy);
}

static lk_status run_forward(lk_context* context, const void* copies, int copy) {
  return lk_lora_forward(context, (const lk_lora_forward_params*)copies + copy);
}

static timed_call lora_call(const char* name, lora_shape shape, lk_dtype dtype) {
  timed_call call = {0};
  call.name = name;
  call.dtype = dtype;
  if (shape.in == shape.out)
    snprintf(call.shape, sizeof call.shape, "%lldx%lld r%lld", (long long)shape.tokens, (long long)shape.in,
             (long long)shape.rank);
  else
    snprintf(call.shape, sizeof call.shape, "%lldx%lld->%lld r%lld", (long long)shape.tokens, (long long)shape.in,
             (long long)shape.out, (long long)shape.rank);
  return call;
}

void time_lora_backward(bench* b, lora_shape shape, lk_dtype dtype, gradients which) {
  static const char* const names[] = {"lora backward", "lora backward, no dx", "layer backward"};
  timed_call call = lora_call(names[which], shape, dtype);
  lk_lora_backward_params copies[COPIES] = {0};
  /* dy up, ds^T x, dy^T s and ds down, and dy weight. */
  const double rank = (double)shape.rank, in = (double)shape.in, out = (double)shape.out;
  const double products =
      2 * rank * out + (which == ADAPTER_WITHOUT_DX ? 1 : 2) * rank * in + (which == LAYER ? in * out : 0);
  const lk_tensor down = matrix(b, LK_F32, shape.rank, shape.in), up = matrix(b, LK_F32, shape.out, shape.rank);
  const lk_tensor ddown = matrix(b, LK_F32, shape.rank, shape.in), dup = matrix(b, LK_F32, shape.out, shape.rank);
  lk_tensor weight = {0};
  int i;
  if (which == LAYER) weight = matrix(b, dtype, shape.out, shape.in);
  for (i = 0; i < COPIES; ++i) {
    lk_lora_backward_params* const p = &copies[i];
    p->struct_size = sizeof *p;
    p->dy = matrix(b, dtype, shape.tokens, shape.out);
    p->x = matrix(b, dtype, shape.tokens, shape.in);
    p->s = matrix(b, dtype, shape.tokens, shape.rank);
    p->weight = weight;
    p->down = down;
    p->up = up;
    p->scale = 1.0f;
    if (which != ADAPTER_WITHOUT_DX) p->dx = matrix(b, dtype, shape.tokens, shape.in);
    p->ddown = ddown;
    p->dup = dup;
  }
  call.bytes = backward_bytes(copies);
  call.flops = 2.0 * (double)shape.tokens * products;
  call.run = run_backward;
  call.copies = copies;
  print_times(b, &call);
  release(b);
}

void time_lora_forward(bench* b, lora_shape shape, lk_dtype dtype) {
  timed_call call = lora_call("lora forward", shape, dtype);
  lk_lora_forward_params copies[COPIES] = {0};
  const lk_tensor down = matrix(b, LK_F32, shape.rank, shape.in), up = matrix(b, LK_F32, shape.out, shape.rank);
  int i;
  for (i = 0; i < COPIES; ++i) {
    lk_lora_forward_params* const p = &copies[i];
    p->struct_size = sizeof *p;
    p->x = matrix(b, dtype, shape.tokens, shape.in);
    p->down = down;
    p->up = up;
    p->scale = 1.0f;
    p->y = matrix(b, dtype, shape.tokens, shape.out);
    p->s = matrix(b, dtype, shape.tokens, shape.rank);
  }
  call.bytes = forward_bytes(copies);
  call.flops = 2.0 * (double)(shape.tokens * (shape.in + shape.out) * shape.rank);
  call.run = run_forward;
  call.copies = copies;
  print_times(b, &call);
  release(b);
}
