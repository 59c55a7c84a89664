/* Times of liblora_kernels from plain C: the LoRA backward and forward pass at the shapes of diffusion models, beside
 * matrix products, attention, what is bound by memory, updates of optimizers and the bandwidth of a copy.
 *
 *   lora_kernels_bench [cpu|cuda]
 *
 * The last two columns are rates of "us": bytes that have to move at least, and arithmetic.
 */
#include <stdio.h>
#include <string.h>

#include "bench.h"

static const lora_shape shapes[] = {
    {77, 768, 768, 16}, {256, 1536, 1536, 32}, {256, 3072, 3072, 64}, {4608, 3072, 3072, 16}, {4608, 3072, 3072, 64}};
/* Flux.1's, whose dx and y the frozen layer's product makes. */
static const lora_shape wide[] = {
    {4608, 3072, 3072, 16}, {4096, 12288, 3072, 16}, {4608, 15360, 3072, 16}, {4608, 3072, 21504, 16}};
enum { SHAPES = sizeof shapes / sizeof *shapes, WIDE = sizeof wide / sizeof *wide };
/* Layers of a block, as the backward pass comes to them. */
typedef struct layers {
  const char* name;
  int count;
  lora_shape shapes[12];
} layers;
static const layers blocks[] = {
    {"SDXL 32 x 32",
     10,
     {{1024, 5120, 1280, 16},
      {1024, 1280, 10240, 16},
      {1024, 1280, 1280, 16},
      {77, 2048, 1280, 16},
      {77, 2048, 1280, 16},
      {1024, 1280, 1280, 16},
      {1024, 1280, 1280, 16},
      {1024, 1280, 1280, 16},
      {1024, 1280, 1280, 16},
      {1024, 1280, 1280, 16}}},
    {"SDXL 64 x 64", 3, {{4096, 2560, 640, 16}, {4096, 640, 5120, 16}, {4096, 640, 640, 16}}},
    {"SD 3.5 medium", 3, {{4096, 6144, 1536, 16}, {4096, 1536, 6144, 16}, {4096, 1536, 1536, 16}}},
    {"SD 3.5 medium, attention",
     4,
     {{4096, 1536, 1536, 16}, {4096, 1536, 1536, 16}, {4096, 1536, 1536, 16}, {333, 1536, 1536, 16}}},
    {"Flux 512, single", 2, {{1536, 15360, 3072, 16}, {1536, 3072, 21504, 16}}},
};
enum { BLOCKS = sizeof blocks / sizeof *blocks };

static void time_blocks(bench* b) {
  int i;
  for (i = 0; i < BLOCKS; ++i) {
    time_lora_gradients(b, blocks[i].name, blocks[i].shapes, blocks[i].count, 1);
    time_lora_gradients(b, blocks[i].name, blocks[i].shapes, blocks[i].count, blocks[i].count);
  }
}

static void time_updates(bench* b, int64_t count) {
  time_adamw_update(b, count);
  time_update(b, ADAMW, count);
  time_update(b, ADAMW_8BIT, count);
  time_update(b, LION, count);
}

static void time_sums(bench* b, int64_t rows, int64_t columns) {
  static const sum_over overs[] = {OVER_COLUMNS, OVER_ROWS, OVER_BOTH};
  int i;
  for (i = 0; i < 3; ++i) time_product_sums(b, overs[i], rows, columns);
}

static void time_cuda(bench* b) {
  static const lk_dtype dtypes[] = {LK_F32, LK_F16, LK_BF16};
  int shape, dtype;
  time_copy(b, (int64_t)256 << 20);
  for (shape = 0; shape < SHAPES; ++shape)
    for (dtype = 0; dtype < 3; ++dtype) time_lora_backward(b, shapes[shape], dtypes[dtype], ADAPTER);
  for (shape = 0; shape < SHAPES; ++shape)
    for (dtype = 0; dtype < 3; ++dtype) time_lora_forward(b, shapes[shape], dtypes[dtype]);
  for (shape = 0; shape < WIDE; ++shape) time_lora_backward(b, wide[shape], LK_BF16, ADAPTER_WITHOUT_DX);
  for (shape = 1; shape < WIDE; ++shape) time_lora_forward(b, wide[shape], LK_BF16);
  time_blocks(b);
  time_matmul(b, 8192, 8192, 8192, LK_BF16);
  time_attention(b, 4608, 4608, 24, 128, LK_BF16);
  time_attention(b, 4608, 4608, 24, 128, LK_F16);
  time_attention(b, 256, 256, 8, 160, LK_F16);  /* Stable Diffusion 1 at 512 x 512 */
  time_attention(b, 1024, 77, 20, 64, LK_BF16); /* SDXL, to its text */
  time_attention(b, 4096, 77, 10, 64, LK_BF16);
  time_modulation(b, 4608, 3072);         /* Flux.1 */
  time_modulation(b, 4096, 2432);         /* 3.5 large */
  time_copy(b, (int64_t)4608 * 3072 * 2); /* what each pass of the first of these reads, and writes */
  time_layer_norm(b, 1024, 1280);         /* SDXL */
  time_positions(b, 4608, 24, 128);
  time_activation(b, LK_GELU_TANH, 4608, 12288);
  time_gate(b, LK_SILU, 4352, 10240);    /* Z-Image */
  time_gate(b, LK_GELU_ERF, 1024, 5120); /* SDXL */
  time_sums(b, 1024, 1280);
  time_sums(b, 4608, 3072);
  time_sums(b, 4608, 27648); /* FLUX.2 klein, of a single block */
  time_updates(b, 90000000); /* as a LoRA of rank 16 on a model of 12 billion */
}

/* Sizes that a processor finishes in a few minutes. */
static void time_cpu(bench* b) {
  int shape;
  time_copy(b, (int64_t)64 << 20);
  for (shape = 0; shape < SHAPES; ++shape) time_lora_backward(b, shapes[shape], LK_F32, ADAPTER);
  for (shape = 0; shape < 3; ++shape) time_lora_backward(b, shapes[shape], LK_F32, LAYER);
  for (shape = 0; shape < 3; ++shape) time_lora_backward(b, shapes[shape], LK_BF16, LAYER);
  for (shape = 0; shape < SHAPES; ++shape) time_lora_forward(b, shapes[shape], LK_F32);
  time_matmul(b, 1024, 1024, 1024, LK_F32);
  time_matmul(b, 1300, 1024, 256, LK_F32);
  time_attention(b, 512, 512, 24, 128, LK_F32);
  time_updates(b, 4000000);
}

int main(int argc, char** argv) {
  const char* const name = argc > 1 ? argv[1] : "cpu";
  const int cuda = strcmp(name, "cuda") == 0;
  lk_context_params params = {.struct_size = sizeof params};
  lk_device_info info = {.struct_size = sizeof info};
  bench b = {0};
  if (argc > 2 || (!cuda && strcmp(name, "cpu") != 0)) {
    fprintf(stderr, "usage: lora_kernels_bench [cpu|cuda]\n");
    return 2;
  }
  params.backend = cuda ? LK_CUDA : LK_CPU;
  check(&b, lk_context_create(&params, &b.context));
  check(&b, lk_get_device_info(b.context, &info));
  printf("liblora_kernels %s on %s", lk_version(), info.name);
  if (!cuda) printf(", %d threads", (int)lk_context_threads(b.context));
  printf(", %s\n", info.libraries);
  print_header();
  if (cuda)
    time_cuda(&b);
  else
    time_cpu(&b);
  lk_context_destroy(b.context);
  return 0;
}
