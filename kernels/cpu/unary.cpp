// Elementwise functions and their derivatives. Each is a small functor; one loop applies it.
#include "cpu/convert.h"
#include "cpu/unary_functions.h"
#include "integers.h"

namespace lk::cpu {

namespace {

void unary_integers(const Cpu& cpu, const lk_unary_params& p) {
  const auto* const from = static_cast<const int32_t*>(p.x.data);
  auto* const to = static_cast<int32_t*>(p.y.data);
  const auto kind = p.kind;
  const bool plain = kind != LK_AFFINE && kind != LK_CLAMP;
  const int32_t a = plain ? 0 : static_cast<int32_t>(p.a), b = plain ? 0 : static_cast<int32_t>(p.b);
  parallel_for(cpu, numel(p.x), 1, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = integer_unary(kind, a, b, from[i]);
  });
}

}  // namespace

void unary(Cpu& cpu, const lk_unary_params& p) {
  if (p.x.dtype == LK_I32) return unary_integers(cpu, p);
  const FloatIn x(cpu, p.x);
  const FloatOut y(cpu, p.y);
  const float* const from = x;
  float* const to = y;
  with_function(p.kind, p.a, p.b, [&](auto function) {
    parallel_for(cpu, numel(p.x), 1, [=](int64_t begin, int64_t end) {
      const auto f = function;
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) to[i] = f.value(from[i]);
    });
  });
}

void unary_backward(Cpu& cpu, const lk_unary_backward_params& p) {
  const FloatIn dy(cpu, p.dy), x(cpu, p.x);
  const FloatOut dx(cpu, p.dx);
  const float *const g = dy, *const from = x;
  float* const to = dx;
  with_function(p.kind, p.a, p.b, [&](auto function) {
    parallel_for(cpu, numel(p.x), 1, [=](int64_t begin, int64_t end) {
      const auto f = function;
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) to[i] = g[i] * f.slope(from[i]);
    });
  });
}

}  // namespace lk::cpu
