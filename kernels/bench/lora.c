/* The LoRA calls: activations in the given type, down, up and their gradients in f32, as in training. */
#include <stdio.h>

#include "bench.h"

/* dy, x and dx are read or written once each, like s, down, up, ddown and dup. */
static double backward_bytes(const lk_lora_backward_params* p) {
  const int64_t frozen = p->weight.data != NULL ? bytes_of(p->weight) : 0;
  return (double)(bytes_of(p->dy) + bytes_of(p->x) + bytes_of(p->s) + bytes_of(p->down) + bytes_of(p->up) + frozen +
                  bytes_of(p->dx) + bytes_of(p->ddown) + bytes_of(p->dup));
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
  snprintf(call.shape, sizeof call.shape, "%lldx%lld r%lld", (long long)shape.tokens, (long long)shape.width,
           (long long)shape.rank);
  return call;
}

void time_lora_backward(bench* b, lora_shape shape, lk_dtype dtype, int frozen) {
  timed_call call = lora_call(frozen ? "layer backward" : "lora backward", shape, dtype);
  lk_lora_backward_params copies[COPIES] = {0};
  /* dy up, ds^T x, dy^T s and ds down, and dy weight. */
  const double products = 4.0 * (double)shape.rank + (frozen ? (double)shape.width : 0.0);
  const lk_tensor down = matrix(b, LK_F32, shape.rank, shape.width), up = matrix(b, LK_F32, shape.width, shape.rank);
  const lk_tensor ddown = matrix(b, LK_F32, shape.rank, shape.width), dup = matrix(b, LK_F32, shape.width, shape.rank);
  lk_tensor weight = {0};
  int i;
  if (frozen) weight = matrix(b, dtype, shape.width, shape.width);
  for (i = 0; i < COPIES; ++i) {
    lk_lora_backward_params* const p = &copies[i];
    p->struct_size = sizeof *p;
    p->dy = matrix(b, dtype, shape.tokens, shape.width);
    p->x = matrix(b, dtype, shape.tokens, shape.width);
    p->s = matrix(b, dtype, shape.tokens, shape.rank);
    p->weight = weight;
    p->down = down;
    p->up = up;
    p->scale = 1.0f;
    p->dx = matrix(b, dtype, shape.tokens, shape.width);
    p->ddown = ddown;
    p->dup = dup;
  }
  call.bytes = backward_bytes(copies);
  call.flops = 2.0 * (double)(shape.tokens * shape.width) * products;
  call.run = run_backward;
  call.copies = copies;
  print_times(b, &call);
  release(b);
}

void time_lora_forward(bench* b, lora_shape shape, lk_dtype dtype) {
  timed_call call = lora_call("lora forward", shape, dtype);
  lk_lora_forward_params copies[COPIES] = {0};
  const lk_tensor down = matrix(b, LK_F32, shape.rank, shape.width), up = matrix(b, LK_F32, shape.width, shape.rank);
  int i;
  for (i = 0; i < COPIES; ++i) {
    lk_lora_forward_params* const p = &copies[i];
    p->struct_size = sizeof *p;
    p->x = matrix(b, dtype, shape.tokens, shape.width);
    p->down = down;
    p->up = up;
    p->scale = 1.0f;
    p->y = matrix(b, dtype, shape.tokens, shape.width);
    p->s = matrix(b, dtype, shape.tokens, shape.rank);
  }
  call.bytes = forward_bytes(copies);
  call.flops = 4.0 * (double)(shape.tokens * shape.width * shape.rank);
  call.run = run_forward;
  call.copies = copies;
  print_times(b, &call);
  release(b);
}
