/* Times of liblora_kernels from plain C: matrix product rate, then the LoRA backward pass (dx, ddown, dup through a
 * frozen weight) for three layer shapes, [tokens x width], rank r. The best of several repetitions is shown.
 * Usage: lora_kernels_bench [threads]
 */
#define _POSIX_C_SOURCE 199309L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "lora_kernels.h"

#define REPEATS 30

static lk_context* context;

static void check(lk_status status) {
  if (status == LK_OK) return;
  fprintf(stderr, "lora_kernels_bench: %s\n", lk_last_error(context));
  exit(1);
}

static lk_tensor matrix(int64_t rows, int64_t cols) {
  lk_tensor tensor = {NULL, LK_F32, 2, {0}};
  float* data;
  int64_t i;
  tensor.dims[0] = rows;
  tensor.dims[1] = cols;
  check(lk_alloc(context, rows * cols * (int64_t)sizeof(float), &tensor.data));
  data = (float*)tensor.data;
  for (i = 0; i < rows * cols; ++i) data[i] = (float)(i * 7919 % 1000) * 0.002f - 1.0f;
  return tensor;
}

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void time_matmul(int64_t m, int64_t n, int64_t k) {
  lk_matmul_params p = {0};
  double best = 1e30;
  int i;
  p.a = matrix(m, k);
  p.b = matrix(n, k);
  p.c = matrix(m, n);
  p.transpose_b = 1;
  for (i = 0; i < REPEATS; ++i) {
    double start = seconds(), elapsed;
    check(lk_matmul(context, &p));
    elapsed = seconds() - start;
    if (elapsed < best) best = elapsed;
  }
  printf("matmul %lldx%lldx%lld: %.3f ms, %.1f GFLOP/s\n", (long long)m, (long long)n, (long long)k, 1e3 * best,
         2e-9 * (double)(m * n * k) / best);
  lk_free(context, p.a.data);
  lk_free(context, p.b.data);
  lk_free(context, p.c.data);
}

static void time_lora_backward(int64_t tokens, int64_t width, int64_t rank) {
  /* Two products with the rank on the side of dy, two on the side of x, one with the frozen weight. */
  const double flops = 2.0 * (double)(tokens * width) * (double)(4 * rank + width);
  lk_lora_backward_params p = {0};
  double best = 1e30;
  int i;
  p.dy = matrix(tokens, width);
  p.x = matrix(tokens, width);
  p.s = matrix(tokens, rank);
  p.weight = matrix(width, width);
  p.down = matrix(rank, width);
  p.up = matrix(width, rank);
  p.dx = matrix(tokens, width);
  p.ddown = matrix(rank, width);
  p.dup = matrix(width, rank);
  p.scale = 1.0f;
  for (i = 0; i < REPEATS; ++i) {
    double start = seconds(), elapsed;
    check(lk_lora_backward(context, &p));
    elapsed = seconds() - start;
    if (elapsed < best) best = elapsed;
  }
  printf("lora_backward %lldx%lld r%lld: %.3f ms, %.1f GFLOP/s\n", (long long)tokens, (long long)width, (long long)rank,
         1e3 * best, 1e-9 * flops / best);
  lk_free(context, p.dy.data);
  lk_free(context, p.x.data);
  lk_free(context, p.s.data);
  lk_free(context, p.weight.data);
  lk_free(context, p.down.data);
  lk_free(context, p.up.data);
  lk_free(context, p.dx.data);
  lk_free(context, p.ddown.data);
  lk_free(context, p.dup.data);
}

int main(int argc, char** argv) {
  lk_context_params params = {LK_CPU, 0, 0};
  if (argc > 1) params.threads = (int32_t)atoi(argv[1]);
  check(lk_context_create(&params, &context));
  printf("liblora_kernels %s, %d threads\n", lk_version(), (int)lk_context_threads(context));
  time_matmul(1024, 1024, 1024);
  time_matmul(1300, 1024, 256);
  time_lora_backward(77, 768, 16);
  time_lora_backward(256, 1536, 32);
  time_lora_backward(256, 3072, 64);
  lk_context_destroy(context);
  return 0;
}
