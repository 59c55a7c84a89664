// y = a (kind) b with broadcasting. The walk leaves an inner axis along which each input either advances by one or
// stands still, so equal shapes, a scalar, a [C] vector and [B, 1, C] all end in a contiguous vector loop.
#include "cpu/binary_functions.h"
#include "cpu/broadcast.h"
#include "cpu/convert.h"
#include "integers.h"

namespace lk::cpu {

namespace {

struct Integers {
  lk_binary_kind kind;
  int32_t operator()(int32_t a, int32_t b) const { return integer_binary(kind, a, b); }
};

template <class T, class R, class F>
void row(F f, const T* a, int64_t a_stride, const T* b, int64_t b_stride, int64_t n, R* y) {
  if (a_stride != 0 && b_stride != 0) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] = static_cast<R>(f(a[i], b[i]));
  } else if (a_stride != 0) {
    const T scalar = *b;
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] = static_cast<R>(f(a[i], scalar));
  } else if (b_stride != 0) {
    const T scalar = *a;
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] = static_cast<R>(f(scalar, b[i]));
  } else {
    std::fill_n(y, n, static_cast<R>(f(*a, *b)));
  }
}

template <class T, class R, class F>
void apply(const Cpu& cpu, F f, const Walk<2>& walk, const T* a, const T* b, R* y) {
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

template <class R>
void compare(const Cpu& cpu, lk_binary_kind kind, const Walk<2>& walk, const float* a, const float* b, R* y) {
  switch (kind) {
    case LK_GREATER_EQUAL: return apply(cpu, GreaterEqual{}, walk, a, b, y);
    case LK_EQUAL: return apply(cpu, Equal{}, walk, a, b, y);
    case LK_LESS: return apply(cpu, Less{}, walk, a, b, y);
    case LK_LESS_EQUAL: return apply(cpu, LessEqual{}, walk, a, b, y);
    default: return apply(cpu, Greater{}, walk, a, b, y);
  }
}

void combine(const Cpu& cpu, lk_binary_kind kind, const Walk<2>& walk, const float* a, const float* b, float* y) {
  switch (kind) {
    case LK_ADD: return apply(cpu, Add{}, walk, a, b, y);
    case LK_SUB: return apply(cpu, Sub{}, walk, a, b, y);
    case LK_MUL: return apply(cpu, Mul{}, walk, a, b, y);
    case LK_DIV: return apply(cpu, Div{}, walk, a, b, y);
    case LK_MAX: return apply(cpu, Max{}, walk, a, b, y);
    case LK_MIN: return apply(cpu, Min{}, walk, a, b, y);
    default: return compare(cpu, kind, walk, a, b, y);
  }
}

}  // namespace

void binary(Cpu& cpu, const lk_binary_params& p) {
  const Walk<2> walk(p.y, {&p.a, &p.b});
  const bool to_integer = p.y.dtype == LK_I32;
  if (p.a.dtype == LK_I32) {
    const auto *const a = static_cast<const int32_t*>(p.a.data), *const b = static_cast<const int32_t*>(p.b.data);
    if (to_integer) return apply(cpu, Integers{p.kind}, walk, a, b, static_cast<int32_t*>(p.y.data));
    const FloatOut y(cpu, p.y);
    return apply(cpu, Integers{p.kind}, walk, a, b, y.data());
  }
  const FloatIn a(cpu, p.a), b(cpu, p.b);
  if (to_integer) return compare(cpu, p.kind, walk, a.data(), b.data(), static_cast<int32_t*>(p.y.data));
  const FloatOut y(cpu, p.y);
  combine(cpu, p.kind, walk, a, b, y);
}

}  // namespace lk::cpu
