// y = a (kind) b with broadcasting. The walk leaves an inner axis along which each input either advances by one or
// stands still, so equal shapes, a scalar, a [C] vector and [B, 1, C] all end in a contiguous vector loop.
#include "cpu/broadcast.h"
#include "cpu/convert.h"

namespace lk::cpu {

namespace {

struct Add {
  float operator()(float a, float b) const { return a + b; }
};
struct Sub {
  float operator()(float a, float b) const { return a - b; }
};
struct Mul {
  float operator()(float a, float b) const { return a * b; }
};
struct Div {
  float operator()(float a, float b) const { return a / b; }
};
// NaN in either operand gives NaN.
struct Max {
  float operator()(float a, float b) const { return a > b || a != a ? a : b; }
};
struct Min {
  float operator()(float a, float b) const { return a < b || a != a ? a : b; }
};
struct GreaterEqual {
  float operator()(float a, float b) const { return a >= b ? 1.0f : 0.0f; }
};

template <class F>
void row(F f, const float* a, int64_t a_stride, const float* b, int64_t b_stride, int64_t n, float* y) {
  if (a_stride != 0 && b_stride != 0) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] = f(a[i], b[i]);
  } else if (a_stride != 0) {
    const float scalar = *b;
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] = f(a[i], scalar);
  } else if (b_stride != 0) {
    const float scalar = *a;
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] = f(scalar, b[i]);
  } else {
    std::fill_n(y, n, f(*a, *b));
  }
}

template <class F>
void apply(const Cpu& cpu, F f, const Walk<2>& walk, const float* a, const float* b, float* y) {
  const int64_t inner = walk.inner(), a_stride = walk.inner_stride(0), b_stride = walk.inner_stride(1);
  if (walk.rank == 1) {
    parallel_for(cpu, inner, 1, [=](int64_t begin, int64_t end) {
      row(f, a + begin * a_stride, a_stride, b + begin * b_stride, b_stride, end - begin, y + begin);
    });
    return;
  }
  parallel_for(cpu, walk.rows(), inner, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      row(f, a + walk.offset(0, i), a_stride, b + walk.offset(1, i), b_stride, inner, y + i * inner);
    }
  });
}

}  // namespace

void binary(Cpu& cpu, const lk_binary_params& p) {
  const Walk<2> walk(p.y, {&p.a, &p.b});
  const FloatIn a(cpu, p.a), b(cpu, p.b);
  const FloatOut y(cpu, p.y);
  switch (p.kind) {
    case LK_ADD: return apply(cpu, Add{}, walk, a, b, y);
    case LK_SUB: return apply(cpu, Sub{}, walk, a, b, y);
    case LK_MUL: return apply(cpu, Mul{}, walk, a, b, y);
    case LK_DIV: return apply(cpu, Div{}, walk, a, b, y);
    case LK_MAX: return apply(cpu, Max{}, walk, a, b, y);
    case LK_MIN: return apply(cpu, Min{}, walk, a, b, y);
    case LK_GREATER_EQUAL: return apply(cpu, GreaterEqual{}, walk, a, b, y);
    default: return;  // arguments were checked
  }
}

}  // namespace lk::cpu
