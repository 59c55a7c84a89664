/* The backward pass of a LoRA layer with liblora_kernels, checked against plain loops.
 *
 *   lora_backward [cpu|cuda]
 *
 *   y [m, out] = x W^T + scale (x A^T) B^T      W [out, in] frozen, A [rank, in], B [out, rank] trained
 *
 * Given dy, one call computes
 *   dB = scale dy^T (x A^T)      dA = scale (dy B)^T x      dx = dy W + scale (dy B) A
 *
 * Build it with the CMakeLists.txt beside it, or, with lora-host installed in PREFIX:
 *   cc -std=c99 -I PREFIX/include lora_backward.c -L PREFIX/lib -llora_kernels -Wl,-rpath,PREFIX/lib -o lora_backward
 */
#include <lora_kernels.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { M = 33, IN = 48, OUT = 40, RANK = 4 };
static const float scale = 0.5f; /* alpha / rank */

static lk_context* context;

static void check(lk_status status) {
  if (status == LK_OK) return;
  fprintf(stderr, "lora_backward: %s\n", lk_last_error(context));
  exit(1);
}

/* A matrix in the context's memory, holding a copy of `values`. */
static lk_tensor matrix(int64_t rows, int64_t columns, const float* values) {
  const int64_t bytes = rows * columns * (int64_t)sizeof(float);
  lk_tensor tensor = {0};
  tensor.dtype = LK_F32;
  tensor.rank = 2;
  tensor.dims[0] = rows;
  tensor.dims[1] = columns;
  check(lk_alloc(context, bytes, &tensor.data));
  if (values != NULL) check(lk_upload(context, tensor.data, values, bytes));
  return tensor;
}

/* Numbers in [-1, 1), the same on every run. */
static void fill(float* values, int count) {
  static uint32_t state = 1;
  int i;
  for (i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    values[i] = (float)(state >> 8) / 8388608.0f - 1.0f;
  }
}

/* Whether the largest difference from the expected numbers is a rounding error beside the largest of those; prints it.
 * The download waits for the kernels. Frees the tensor. */
static int compare(const char* name, lk_tensor got, const double* want, int count) {
  float* values = malloc((size_t)count * sizeof(float));
  double largest = 0, worst = 0;
  int i;
  if (values == NULL) return 0;
  check(lk_download(context, values, got.data, (int64_t)count * (int64_t)sizeof(float)));
  for (i = 0; i < count; ++i) {
    const double size = want[i] < 0 ? -want[i] : want[i], error = values[i] - want[i];
    if (size > largest) largest = size;
    if (error > worst) worst = error;
    if (-error > worst) worst = -error;
  }
  free(values);
  lk_free(context, got.data);
  printf("%-5s error %.2g of the largest value\n", name, worst / largest);
  return worst <= 1e-6 * largest;
}

static float x[M * IN], dy[M * OUT], weight[OUT * IN], down[RANK * IN], up[OUT * RANK];
static double s[M * RANK], ds[M * RANK], dx[M * IN], ddown[RANK * IN], dup[OUT * RANK];

/* The formulas above, in double. */
static void plain_loops(void) {
  int m, i, o, r;
  for (m = 0; m < M; ++m) {
    for (r = 0; r < RANK; ++r) {
      for (i = 0; i < IN; ++i) s[m * RANK + r] += (double)x[m * IN + i] * down[r * IN + i];
      for (o = 0; o < OUT; ++o) ds[m * RANK + r] += (double)scale * dy[m * OUT + o] * up[o * RANK + r];
    }
    for (r = 0; r < RANK; ++r) {
      for (i = 0; i < IN; ++i) ddown[r * IN + i] += ds[m * RANK + r] * x[m * IN + i];
      for (o = 0; o < OUT; ++o) dup[o * RANK + r] += (double)scale * dy[m * OUT + o] * s[m * RANK + r];
    }
    for (i = 0; i < IN; ++i) {
      for (o = 0; o < OUT; ++o) dx[m * IN + i] += (double)dy[m * OUT + o] * weight[o * IN + i];
      for (r = 0; r < RANK; ++r) dx[m * IN + i] += ds[m * RANK + r] * down[r * IN + i];
    }
  }
}

/* The backend that the command line names; it must be in this build of the library and have its device. */
static void open_context(int argc, char** argv) {
  const char* const name = argc > 1 ? argv[1] : "cpu";
  lk_context_params options = {.struct_size = sizeof options};
  if (argc > 2 || (strcmp(name, "cpu") != 0 && strcmp(name, "cuda") != 0)) {
    fprintf(stderr, "usage: lora_backward [cpu|cuda]\n");
    exit(2);
  }
  options.backend = strcmp(name, "cuda") == 0 ? LK_CUDA : LK_CPU;
  check(lk_context_create(&options, &context));
}

int main(int argc, char** argv) {
  lk_lora_backward_params p = {.struct_size = sizeof p};
  int good;

  open_context(argc, argv);
  fill(x, M * IN);
  fill(dy, M * OUT);
  fill(weight, OUT * IN);
  fill(down, RANK * IN);
  fill(up, OUT * RANK);
  plain_loops();

  p.dy = matrix(M, OUT, dy);
  p.x = matrix(M, IN, x);
  p.weight = matrix(OUT, IN, weight);
  p.down = matrix(RANK, IN, down);
  p.up = matrix(OUT, RANK, up);
  p.scale = scale;
  p.dx = matrix(M, IN, NULL); /* a gradient that is left out is not computed */
  p.ddown = matrix(RANK, IN, NULL);
  p.dup = matrix(OUT, RANK, NULL);
  check(lk_lora_backward(context, &p));

  good = compare("dx", p.dx, dx, M * IN);
  good &= compare("ddown", p.ddown, ddown, RANK * IN);
  good &= compare("dup", p.dup, dup, OUT * RANK);
  lk_free(context, p.dy.data);
  lk_free(context, p.x.data);
  lk_free(context, p.weight.data);
  lk_free(context, p.down.data);
  lk_free(context, p.up.data);
  lk_context_destroy(context);
  printf(good ? "the gradients agree\n" : "the gradients differ\n");
  return good ? 0 : 1;
}
