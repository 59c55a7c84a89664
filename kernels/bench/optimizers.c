/* Updates of optimizers over one flat tensor: programs of elementwise operations (lk_pointwise) as the host makes them
 * of rules, and lk_adamw_update. What they read and write is beside what a copy of it takes. */
#include <stdio.h>

#include "bench.h"

/* p, g, lr and step are inputs 0 to 3, states come behind them. */
enum { P, G, LR, STEP, STATE, MOST_INPUTS = 8, MOST_INSTRUCTIONS = 40, MOST_OUTPUTS = 4 };

typedef struct program {
  lk_pointwise_input inputs[MOST_INPUTS];
  lk_pointwise_instruction instructions[MOST_INSTRUCTIONS];
  lk_pointwise_output outputs[MOST_OUTPUTS];
  lk_pointwise_params params;
  double bytes;
} program;

static lk_tensor vector(bench* b, lk_dtype dtype, int64_t count) {
  lk_tensor t = matrix(b, dtype, 1, count);
  t.rank = 1;
  t.dims[0] = count;
  return t;
}

static void input(program* q, lk_tensor x) {
  lk_pointwise_input in = {0};
  in.x = x;
  q->inputs[q->params.input_count++] = in;
  if (lk_numel(&x) > 1) q->bytes += (double)bytes_of(x);
}

/* A state of codes: zeros. */
static void codes(bench* b, program* q, int64_t count, int is_signed) {
  lk_quantize_blockwise_params zeros = {.struct_size = sizeof zeros};
  lk_fill_params fill = {.struct_size = sizeof fill};
  lk_pointwise_input in = {0};
  fill.y = zeros.x = vector(b, LK_F32, count);
  zeros.codes = fill.y;
  zeros.codes.dtype = LK_U8;
  zeros.codes.data = memory(b, count);
  zeros.scales = vector(b, LK_F32, (count + 255) / 256);
  zeros.is_signed = is_signed;
  check(b, lk_fill(b->context, &fill));
  check(b, lk_quantize_blockwise(b->context, &zeros));
  in.x = zeros.codes;
  in.scales = zeros.scales;
  in.is_signed = is_signed;
  q->inputs[q->params.input_count++] = in;
  q->bytes += (double)(bytes_of(in.x) + bytes_of(in.scales));
}

/* Instructions give the number of their value; all inputs are there before the first. */
static int emit(program* q, lk_pointwise_code code, int32_t kind, int x, int y) {
  lk_pointwise_instruction i = {0};
  i.code = code;
  i.kind = kind;
  i.operands[0] = x;
  i.operands[1] = y;
  q->instructions[q->params.instruction_count++] = i;
  return q->params.input_count + q->params.instruction_count - 1;
}

static int unary(program* q, lk_unary_kind kind, int x) { return emit(q, LK_POINTWISE_UNARY, kind, x, 0); }
static int binary(program* q, lk_binary_kind kind, int x, int y) { return emit(q, LK_POINTWISE_BINARY, kind, x, y); }
static int affine(program* q, int x, float scale, float shift) {
  const int value = unary(q, LK_AFFINE, x);
  q->instructions[q->params.instruction_count - 1].a = scale;
  q->instructions[q->params.instruction_count - 1].b = shift;
  return value;
}
static int mix(program* q, int a, float keep, int x) {
  return binary(q, LK_ADD, affine(q, a, keep, 0), affine(q, x, 1 - keep, 0));
}

/* Over the input of this number. */
static void output(program* q, int value, int over) {
  lk_pointwise_output out = {0};
  out.value = value;
  out.y = q->inputs[over].x;
  out.scales = q->inputs[over].scales;
  out.is_signed = q->inputs[over].is_signed;
  q->outputs[q->params.output_count++] = out;
  q->bytes += (double)bytes_of(out.y) + (out.scales.data != NULL ? (double)bytes_of(out.scales) : 0.0);
}

static void begin(bench* b, program* q, int64_t count) {
  int i;
  input(q, vector(b, LK_F32, count));
  input(q, vector(b, LK_F32, count));
  for (i = LR; i <= STEP; ++i) {
    lk_fill_params fill = {.struct_size = sizeof fill};
    fill.y = vector(b, LK_F32, 1);
    fill.value = i == LR ? 1e-4 : 10;
    check(b, lk_fill(b->context, &fill));
    input(q, fill.y);
  }
}

static int decayed(program* q) { return binary(q, LK_MUL, P, affine(q, LR, -0.01f, 1)); }
/* 1 - e^(step log_beta) */
static int correction(program* q, float log_beta) {
  return affine(q, unary(q, LK_EXP, affine(q, STEP, log_beta, 0)), -1, 1);
}

static void adamw(program* q) {
  const int m = mix(q, STATE, 0.9f, G), v = mix(q, STATE + 1, 0.999f, unary(q, LK_SQUARE, G));
  const int root = binary(q, LK_DIV, unary(q, LK_SQRT, v), unary(q, LK_SQRT, correction(q, -0.0010005f)));
  const int rate = binary(q, LK_DIV, LR, correction(q, -0.1053605f));
  const int change = binary(q, LK_MUL, rate, binary(q, LK_DIV, m, affine(q, root, 1, 1e-8f)));
  output(q, binary(q, LK_SUB, decayed(q), change), P);
  output(q, m, STATE);
  output(q, v, STATE + 1);
}

static void lion(program* q) {
  const int direction = unary(q, LK_SIGN, mix(q, STATE, 0.9f, G));
  output(q, binary(q, LK_SUB, decayed(q), binary(q, LK_MUL, direction, LR)), P);
  output(q, mix(q, STATE, 0.99f, G), STATE);
}

static lk_status run_program(lk_context* context, const void* copies, int copy) {
  return lk_pointwise(context, &((const program*)copies)[copy].params);
}

void time_update(bench* b, update_rule rule, int64_t count) {
  static const char* const names[] = {"pointwise adamw", "pointwise adamw 8 bit", "pointwise lion"};
  timed_call call = {0};
  program copies[COPIES] = {0};
  int i;
  for (i = 0; i < COPIES; ++i) {
    program* const q = &copies[i];
    begin(b, q, count);
    if (rule == ADAMW_8BIT) {
      codes(b, q, count, 1);
      codes(b, q, count, 0);
    } else {
      input(q, vector(b, LK_F32, count));
    }
    if (rule == ADAMW) {
      lk_unary_params square = {.struct_size = sizeof square}; /* the second moment is not negative */
      square.kind = LK_SQUARE;
      square.x = square.y = vector(b, LK_F32, count);
      check(b, lk_unary(b->context, &square));
      input(q, square.y);
    }
    q->params.struct_size = sizeof q->params;
    q->params.inputs = q->inputs;
    q->params.instructions = q->instructions;
    q->params.outputs = q->outputs;
    if (rule == LION)
      lion(q);
    else
      adamw(q);
  }
  call.name = names[rule];
  snprintf(call.shape, sizeof call.shape, "%lldM", (long long)(count / 1000000));
  call.dtype = LK_F32;
  call.bytes = copies[0].bytes;
  call.run = run_program;
  call.copies = copies;
  print_times(b, &call);
  release(b);
}

static lk_status run_adamw_update(lk_context* context, const void* copies, int copy) {
  return lk_adamw_update(context, (const lk_adamw_update_params*)copies + copy);
}

void time_adamw_update(bench* b, int64_t count) {
  timed_call call = {0};
  lk_adamw_update_params copies[COPIES] = {0};
  int i;
  for (i = 0; i < COPIES; ++i) {
    program q = {0};
    lk_unary_params square = {.struct_size = sizeof square};
    begin(b, &q, count);
    copies[i].struct_size = sizeof copies[i];
    copies[i].p = q.inputs[P].x;
    copies[i].g = q.inputs[G].x;
    copies[i].lr = q.inputs[LR].x;
    copies[i].step = q.inputs[STEP].x;
    copies[i].m = vector(b, LK_F32, count);
    square.kind = LK_SQUARE;
    square.x = square.y = copies[i].v = vector(b, LK_F32, count);
    check(b, lk_unary(b->context, &square));
    copies[i].beta1 = 0.9f;
    copies[i].beta2 = 0.999f;
    copies[i].eps = 1e-8f;
    copies[i].weight_decay = 0.01f;
  }
  call.name = "adamw_update";
  snprintf(call.shape, sizeof call.shape, "%lldM", (long long)(count / 1000000));
  call.dtype = LK_F32;
  call.bytes = 7.0 * (double)bytes_of(copies[0].p);
  call.run = run_adamw_update;
  call.copies = copies;
  print_times(b, &call);
  release(b);
}
