/* Tensors of the benchmark: memory that goes back together, and normal values from the library's own generator. */
#include <stdio.h>
#include <stdlib.h>

#include "bench.h"

void check(const bench* b, lk_status status) {
  if (status == LK_OK) return;
  fprintf(stderr, "lora_kernels_bench: %s\n", lk_last_error(b->context));
  exit(1);
}

void* memory(bench* b, int64_t bytes) {
  void* data = NULL;
  if (b->count == MOST_TENSORS) {
    fprintf(stderr, "lora_kernels_bench: a case has more than %d tensors\n", (int)MOST_TENSORS);
    exit(1);
  }
  check(b, lk_alloc(b->context, bytes, &data));
  b->memory[b->count++] = data;
  return data;
}

int64_t bytes_of(lk_tensor tensor) { return lk_numel(&tensor) * lk_dtype_size(tensor.dtype); }

/* Values small enough that no product leaves the range of f16. */
static lk_tensor filled(bench* b, lk_tensor tensor) {
  lk_random_normal_params p = {.struct_size = sizeof p};
  tensor.data = memory(b, bytes_of(tensor));
  p.y = tensor;
  p.scale = 0.02f;
  p.seed = 1;
  p.stream = (uint64_t)b->count;
  check(b, lk_random_normal(b->context, &p));
  return tensor;
}

lk_tensor matrix(bench* b, lk_dtype dtype, int64_t rows, int64_t columns) {
  lk_tensor tensor = {0};
  tensor.dtype = dtype;
  tensor.rank = 2;
  tensor.dims[0] = rows;
  tensor.dims[1] = columns;
  return filled(b, tensor);
}

lk_tensor tensor4(bench* b, lk_dtype dtype, int64_t d0, int64_t d1, int64_t d2, int64_t d3) {
  lk_tensor tensor = {0};
  tensor.dtype = dtype;
  tensor.rank = 4;
  tensor.dims[0] = d0;
  tensor.dims[1] = d1;
  tensor.dims[2] = d2;
  tensor.dims[3] = d3;
  return filled(b, tensor);
}

void release(bench* b) {
  check(b, lk_synchronize(b->context));
  while (b->count > 0) lk_free(b->context, b->memory[--b->count]);
}
