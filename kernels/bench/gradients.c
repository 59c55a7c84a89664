/* The adapters' gradients of the layers of a block, at once and one after the other. */
#include <stdio.h>

#include "bench.h"
#include "lora_kernels_group.h"

typedef struct block {
  lk_lora_gradients_layer layers[LK_LORA_GRADIENTS_MAX];
  int32_t count;
  int32_t at_once; /* in each call, but for the last */
} block;

static lk_status run_block(lk_context* context, const void* copies, int copy) {
  const block* const all = (const block*)copies + copy;
  lk_lora_gradients_params p = {.struct_size = sizeof p};
  int32_t first;
  for (first = 0; first < all->count; first += all->at_once) {
    const int32_t left = all->count - first;
    lk_status status;
    p.layers = all->layers + first;
    p.count = left < all->at_once ? left : all->at_once;
    status = lk_lora_gradients(context, &p);
    if (status != LK_OK) return status;
  }
  return LK_OK;
}

static double block_bytes(const block* all) {
  double bytes = 0;
  int32_t i;
  for (i = 0; i < all->count; ++i) {
    const lk_lora_gradients_layer* const p = &all->layers[i];
    bytes += (double)(bytes_of(p->x) + bytes_of(p->dy) + bytes_of(p->s) + bytes_of(p->ds) + bytes_of(p->ddown) +
                      bytes_of(p->dup));
  }
  return bytes;
}

static double block_flops(const lora_shape* shapes, int count) {
  double flops = 0;
  int i;
  for (i = 0; i < count; ++i)
    flops += 2.0 * (double)(shapes[i].tokens * (shapes[i].in + shapes[i].out) * shapes[i].rank);
  return flops;
}

void time_lora_gradients(bench* b, const char* name, const lora_shape* shapes, int count, int at_once) {
  block copies[COPIES] = {0};
  timed_call call = {0};
  int copy, i;
  for (copy = 0; copy < COPIES; ++copy) {
    block* const all = &copies[copy];
    all->count = count;
    all->at_once = at_once;
    for (i = 0; i < count; ++i) {
      lk_lora_gradients_layer* const p = &all->layers[i];
      p->struct_size = sizeof *p;
      p->x = matrix(b, LK_BF16, shapes[i].tokens, shapes[i].in);
      p->dy = matrix(b, LK_BF16, shapes[i].tokens, shapes[i].out);
      p->s = matrix(b, LK_BF16, shapes[i].tokens, shapes[i].rank);
      p->ds = matrix(b, LK_BF16, shapes[i].tokens, shapes[i].rank);
      p->scale = 1.0f;
      p->ddown = matrix(b, LK_F32, shapes[i].rank, shapes[i].in);
      p->dup = matrix(b, LK_F32, shapes[i].out, shapes[i].rank);
    }
  }
  call.name = at_once == 1 ? "lora gradients, one by one" : "lora gradients, at once";
  call.dtype = LK_BF16;
  snprintf(call.shape, sizeof call.shape, "%s, %d layers", name, count);
  call.bytes = block_bytes(copies);
  call.flops = block_flops(shapes, count);
  call.run = run_block;
  call.copies = copies;
  print_times(b, &call);
  release(b);
}
