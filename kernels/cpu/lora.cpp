// A linear layer with a low-rank adapter. With M rows: x [M, in], s and mask [M, r], y [M, out].
//   s = (x down^T) mask,  y = x weight^T + bias + scale s up^T + added
//   ds = scale (dy up) mask,  ddown = ds^T x,  dup = scale dy^T s,  dx = added + dy weight + ds down
// The adapter's share of y and dx is added into the base product's result (beta = 1), so no [M, out] sum is stored.
// An activation is a pass over y.
#include "cpu/lora.h"

#include <cstring>

#include "activated.h"
#include "cpu/convert.h"
#include "cpu/gemm.h"
#include "cpu/linear.h"
#include "cpu/weight_product.h"

namespace lk::cpu {

namespace {

// s [M, r] = (a [M, k] b) mask, where mask may be nullptr.
void project(const Cpu& cpu, int64_t rows, int64_t rank, int64_t k, float scale, Matrix a, Matrix b, const float* mask,
             float* s) {
  gemm(cpu, rows, rank, k, scale, a, b, 0.0f, s, rank);
  if (mask == nullptr) return;
  parallel_for(cpu, rows * rank, 1, [=](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) s[i] *= mask[i];
  });
}

void layer_forward(Cpu& cpu, const lk_lora_forward_params& p) {
  const int64_t rank = p.down.dims[0], in = p.down.dims[1], out = p.up.dims[0], rows = numel(p.x) / in;
  const FloatIn x(cpu, p.x), bias(cpu, p.bias);
  const FloatIn down(cpu, p.down), up(cpu, p.up), mask(cpu, p.mask);
  const FloatOut y(cpu, p.y), s(cpu, p.s);
  project(cpu, rows, rank, in, 1.0f, {x, in}, {down, in, true}, mask, s);
  float beta = 0.0f;
  if (present(p.weight)) {
    if (bias != nullptr) fill_rows(cpu, bias, rows, out, y);
    weight_product(cpu, {p.products, true, rows, p.weight, p.weight_scale, p.x, x}, bias != nullptr ? 1.0f : 0.0f, y);
    beta = 1.0f;
  }
  gemm(cpu, rows, out, rank, p.scale, {s, rank}, {up, rank, true}, beta, y, out);
  if (!present(p.added)) return;
  const FloatIn added(cpu, p.added);
  float* const sum = y;
  const float* const more = added;
  parallel_for(cpu, rows * out, 1, [=](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) sum[i] += more[i];
  });
}

}  // namespace

void lora_forward(Cpu& cpu, const lk_lora_forward_params& p) {
  layer_forward(cpu, p);
  if (present(p.activated)) activate(cpu, {&p, 1}, activated_of(p));
}

void lora_backward(Cpu& cpu, const lk_lora_backward_params& p, float* dx, float so_far) {
  const int64_t rank = p.down.dims[0], in = p.down.dims[1], out = p.up.dims[0], rows = numel(p.x) / in;
  const FloatIn dy(cpu, p.dy), down(cpu, p.down), up(cpu, p.up), mask(cpu, p.mask);
  const bool reads_x = present(p.ddown) || (present(p.dup) && !present(p.s));
  const FloatIn x(cpu, reads_x ? p.x : lk_tensor{}), given(cpu, p.s);
  const float* s = given;
  Scratch<float> recomputed;
  if (present(p.dup) && s == nullptr) {
    recomputed.take(cpu, rows * rank);
    project(cpu, rows, rank, in, 1.0f, {x, in}, {down, in, true}, mask, recomputed.data());
    s = recomputed.data();
  }
  Scratch<float> own;
  const FloatOut wanted(cpu, p.ds);
  float* ds = wanted;
  if (ds == nullptr && (present(p.ddown) || dx != nullptr)) {
    own.take(cpu, rows * rank);
    ds = own.data();
  }
  if (ds != nullptr) project(cpu, rows, rank, out, p.scale, {dy, out}, {up, rank}, mask, ds);
  adapter_gradients(cpu, {.rows = rows,
                          .in = in,
                          .out = out,
                          .rank = rank,
                          .x = x,
                          .dy = dy,
                          .s = s,
                          .ds = ds,
                          .scale = p.scale,
                          .accumulate = p.accumulate != 0,
                          .ddown = p.ddown,
                          .dup = p.dup});
  if (dx == nullptr) return;
  if (present(p.weight)) {
    weight_product(cpu, {p.products, false, rows, p.weight, p.weight_scale, p.dy, dy}, so_far, dx);
    so_far = 1.0f;
  }
  gemm(cpu, rows, in, rank, 1.0f, {ds, rank}, {down, in}, so_far, dx, in);
}

void lora_backward(Cpu& cpu, const lk_lora_backward_params& p) {
  const FloatOut dx(cpu, p.dx);
  if (present(p.added)) {
    const FloatIn added(cpu, p.added);
    std::memcpy(dx, added, static_cast<size_t>(numel(p.dx)) * sizeof(float));
  }
  lora_backward(cpu, p, dx, present(p.added) ? 1.0f : 0.0f);
}

}  // namespace lk::cpu
