// y = act(a) * b. Backward: da = dy b act'(a), db = dy act(a). Products are rounded where separate ops would store
// them.
#include "cpu/activations.h"
#include "cpu/convert.h"
#include "cpu/formats.h"

namespace lk::cpu {

namespace {

struct Unrounded {
  float operator()(float v) const { return v; }
};

template <class Format>
struct RoundedTo {
  float operator()(float v) const { return Format::widen(Format::narrow(v)); }
};

// Calls body with the activation and with the rounding of the storage type.
template <class Body>
void with_functions(lk_unary_kind kind, lk_dtype dtype, const Body& body) {
  const auto with_rounding = [&](auto activation) {
    switch (dtype) {
      case LK_F16: return body(activation, RoundedTo<Float16>{});
      case LK_BF16: return body(activation, RoundedTo<BFloat16>{});
      default: return body(activation, Unrounded{});
    }
  };
  switch (kind) {
    case LK_SILU: return with_rounding(Silu{});
    case LK_SIGMOID: return with_rounding(Sigmoid{});
    case LK_GELU_ERF: return with_rounding(GeluErf{});
    default: return with_rounding(GeluTanh{});  // arguments were checked
  }
}

}  // namespace

void gated_activation(Cpu& cpu, const lk_gated_activation_params& p) {
  const FloatIn a_in(cpu, p.a), b_in(cpu, p.b);
  const FloatOut y_out(cpu, p.y);
  const float *const a = a_in, *const b = b_in;
  float* const y = y_out;
  with_functions(p.kind, p.a.dtype, [&](auto activation, auto rounding) {
    parallel_for(cpu, numel(p.a), 1, [=](int64_t begin, int64_t end) {
      const auto f = activation;
      const auto rounded = rounding;
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) y[i] = rounded(f.value(a[i])) * b[i];
    });
  });
}

void gated_activation_backward(Cpu& cpu, const lk_gated_activation_backward_params& p) {
  const FloatIn dy_in(cpu, p.dy), a_in(cpu, p.a), b_in(cpu, p.b);
  const FloatOut da_out(cpu, p.da), db_out(cpu, p.db);
  const float *const dy = dy_in, *const a = a_in, *const b = b_in;
  float *const da = da_out, *const db = db_out;
  with_functions(p.kind, p.a.dtype, [&](auto activation, auto rounding) {
    parallel_for(cpu, numel(p.a), 1, [=](int64_t begin, int64_t end) {
      const auto f = activation;
      const auto rounded = rounding;
      if (da != nullptr) {
#pragma omp simd
        for (int64_t i = begin; i < end; ++i) da[i] = rounded(dy[i] * b[i]) * f.slope(a[i]);
      }
      if (db != nullptr) {
#pragma omp simd
        for (int64_t i = begin; i < end; ++i) db[i] = dy[i] * rounded(f.value(a[i]));
      }
    });
  });
}

}  // namespace lk::cpu
