// Storage formats, the accuracy of elementary functions, and the operations of a training step.
#include <gtest/gtest.h>

#include "support/kernel_tensors.h"
#include "support/reference/elementwise.h"

namespace lk_test::kernels_numeric_test {
namespace {

// The value of code `v`, from the definition.
double small_float(uint32_t v, int exponent_bits, int mantissa_bits, bool finite) {
  const int bias = (1 << (exponent_bits - 1)) - 1, top = (1 << exponent_bits) - 1;
  const int exponent = static_cast<int>(v >> mantissa_bits) & top,
            mantissa = static_cast<int>(v) & ((1 << mantissa_bits) - 1);
  const double sign = v >> (exponent_bits + mantissa_bits) ? -1 : 1;
  if (finite ? exponent == top && mantissa == (1 << mantissa_bits) - 1 : exponent == top && mantissa != 0) return NAN;
  if (!finite && exponent == top) return sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

struct Format {
  lk_dtype dtype;
  int exponent_bits, mantissa_bits;
  bool finite;
};
constexpr Format formats[] = {
    {LK_F16, 5, 10, false}, {LK_BF16, 8, 7, false}, {LK_F8_E4M3, 4, 3, true}, {LK_F8_E5M2, 5, 2, false}};

TEST_F(Kernels, CastReadsEveryCodeAndRoundsToNearestEven) {
  for (const Format& f : formats) {
    const uint32_t codes = 1u << (1 + f.exponent_bits + f.mantissa_bits);
    Tensor all({codes}, f.dtype);
    std::vector<unsigned char> raw(codes * static_cast<size_t>(lk_dtype_size(f.dtype)));
    for (uint32_t v = 0; v < codes; ++v)
      std::memcpy(raw.data() + v * lk_dtype_size(f.dtype), &v, static_cast<size_t>(lk_dtype_size(f.dtype)));
    all.write(raw.data(), 0, static_cast<int64_t>(raw.size()));
    const Values values = load(all);
    Values inputs, expected;
    for (uint32_t v = 0; v < codes; ++v) {
      const double exact = small_float(v, f.exponent_bits, f.mantissa_bits, f.finite);
      ASSERT_TRUE(values[v] == exact || (std::isnan(values[v]) && std::isnan(exact))) << lk_dtype_name(f.dtype) << v;
      const double next = small_float(v + 1, f.exponent_bits, f.mantissa_bits, f.finite);
      if (v + 1 >= codes / 2 || !std::isfinite(exact) || !std::isfinite(next)) continue;
      const double middle = (exact + next) / 2;  // a float for each of these formats
      for (const double sign : {1.0, -1.0}) {
        inputs.insert(inputs.end(), {sign * exact, sign * middle, sign * std::nextafter(float(middle), 0.0f),
                                     sign * std::nextafter(float(middle), INFINITY)});
        expected.insert(expected.end(), {sign * exact, sign * (v % 2 == 0 ? exact : next), sign * exact, sign * next});
      }
    }
    const double beyond = f.finite ? NAN : INFINITY, large = f.dtype == LK_BF16 ? INFINITY : 1e30;
    inputs.insert(inputs.end(), {NAN, INFINITY, -INFINITY, large});
    expected.insert(expected.end(), {NAN, beyond, -beyond, beyond});
    Tensor rounded({static_cast<int64_t>(inputs.size())}, f.dtype);
    rounded.store(context.get(), inputs);
    const Values got = load(rounded);
    for (size_t i = 0; i < got.size(); ++i) {
      const bool same = got[i] == expected[i] || (std::isnan(got[i]) && std::isnan(expected[i]));
      ASSERT_TRUE(same) << lk_dtype_name(f.dtype) << ": " << inputs[i] << " became " << got[i] << ", expected "
                        << expected[i];
    }
  }
}

TEST_F(Kernels, CastConvertsIntegersAndAppliesScales) {
  const Tensor x = floats({2, 2}, {1.5, 2.5, -3.7, 300});
  const Tensor scale = floats({2}, {1, 2}), y({2, 2}, LK_I32), bytes({2, 2}, LK_U8), back({2, 2}, LK_F32);
  lk_cast_params p{.x = x.view(), .scale = scale.view(), .y = y.view()};
  ASSERT_EQ(lk_cast(context.get(), &p), LK_OK);
  p = {.x = y.view(), .y = back.view()};
  ASSERT_EQ(lk_cast(context.get(), &p), LK_OK);
  EXPECT_EQ(load(back), (Values{2, 2, -7, 600}));
  p = {.x = y.view(), .y = bytes.view()};
  ASSERT_EQ(lk_cast(context.get(), &p), LK_OK);
  EXPECT_EQ(bytes.bytes(), (std::vector<unsigned char>{2, 2, 0, 255}));
  const Tensor small({2, 2}, LK_I8);
  p = {.x = x.view(), .y = small.view()};
  ASSERT_EQ(lk_cast(context.get(), &p), LK_OK);
  EXPECT_EQ(load(small), (Values{2, 2, -4, 127}));
}

TEST_F(Kernels, ElementaryFunctionsAreWithinUlps) {
  // Limits in units of the last place of the result: the polynomials' own error, their evaluation, and one rounding
  // for each further operation. Of results below 1e-30 only the absolute size counts.
  const struct {
    lk_unary_kind kind;
    double low, high, ulps;
  } functions[] = {
      {LK_EXP, -87, 88, 2},
      {LK_SIGMOID, -30, 30, 3},
      {LK_TANH, -12, 12, 3},
      {LK_SILU, -30, 30, 4},
      // The argument u of the exponential is rounded too, each time by up to |u| / 2 units of the result's last place:
      // three times with |u| <= 7 where the tanh form is not yet close to x, twice with |u| <= 14 in the quick one.
      {LK_GELU_TANH, -3, 12, 16},
      {LK_GELU_ERF, -3, 12, 12},
      {LK_SIN, -100, 100, 2},
      {LK_COS, -100, 100, 2},
      {LK_LOG, 1e-6, 1e6, 2},
      {LK_GELU_QUICK, -8, 30, 16},
  };
  constexpr int64_t count = 1 << 18;
  for (const auto& f : functions) {
    Tensor x = random_tensor(context.get(), random, {count}, LK_F32, f.low, f.high);
    const Tensor y({count}, LK_F32);
    const lk_unary_params p{.kind = f.kind, .a = 0, .b = 0, .x = x.view(), .y = y.view()};
    ASSERT_EQ(lk_unary(context.get(), &p), LK_OK);
    const Values in = load(x), out = load(y);
    double worst = 0, where = 0;
    for (size_t i = 0; i < in.size(); ++i) {
      const double exact = reference::unary(f.kind, 0, 0, in[i]);
      const double ulp = std::ldexp(1.0, std::max(std::ilogb(std::max(std::fabs(exact), 1e-30)), -126) - 23);
      const double error = std::fabs(out[i] - exact) / ulp;
      if (error > worst) worst = error, where = in[i];
    }
    EXPECT_LE(worst, f.ulps) << "kind " << f.kind << " at " << where;
    RecordProperty("ulps_of_kind_" + std::to_string(f.kind), std::to_string(worst));
  }
}

TEST_F(Kernels, NanAndInfinityPropagate) {
  for (lk_unary_kind kind = LK_SILU; kind <= LK_ROUND; ++kind) {
    const Tensor x = floats({2}, {NAN, INFINITY}), y({2}, LK_F32);
    const lk_unary_params p{.kind = kind, .a = 1, .b = 2, .x = x.view(), .y = y.view()};
    ASSERT_EQ(lk_unary(context.get(), &p), LK_OK);
    EXPECT_TRUE(std::isnan(load(y)[0])) << "kind " << kind;
    const bool periodic = kind == LK_SIN || kind == LK_COS;
    EXPECT_EQ(std::isnan(load(y)[1]), periodic) << "kind " << kind;
  }
  const Tensor low = floats({3}, {-INFINITY, -200, 200}), y({3}, LK_F32);
  const lk_unary_params p{.kind = LK_EXP, .a = 0, .b = 0, .x = low.view(), .y = y.view()};
  ASSERT_EQ(lk_unary(context.get(), &p), LK_OK);
  EXPECT_EQ(load(y), (Values{0, 0, INFINITY}));
}

TEST_F(Kernels, ClipGradNormAndLossScale) {
  const Tensor a = floats({2}, {3, 0}), b = floats({20000}, Values(20000, 0.0)), norm({1}, LK_F32);
  b.put(19999, 4.0f);
  lk_tensor gradients[] = {a.view(), b.view()};
  const Tensor two = floats({1}, {2});
  const lk_clip_grad_norm_params p{
      .gradients = gradients, .count = 2, .max_norm = 0.5f, .loss_scale = two.view(), .norm = norm.view()};
  ASSERT_EQ(lk_clip_grad_norm(context.get(), &p), LK_OK);
  EXPECT_FLOAT_EQ(load(norm)[0], 2.5);
  EXPECT_NEAR(load(a)[0], 3 * 0.5 * 0.5 / (2.5 + 1e-6), 1e-7);
  EXPECT_NEAR(load(b)[19999], 4 * 0.5 * 0.5 / (2.5 + 1e-6), 1e-7);
  a.put(1, static_cast<float>(INFINITY));
  const auto before = b.bytes();
  ASSERT_EQ(lk_clip_grad_norm(context.get(), &p), LK_OK);
  EXPECT_TRUE(std::isinf(load(norm)[0]));
  EXPECT_EQ(b.bytes(), before);

  const Tensor state = floats({2}, {1024, 1});
  lk_loss_scale_update_params update{
      .norm = norm.view(), .state = state.view(), .growth = 2, .backoff = 0.5f, .largest = 2048, .growth_interval = 2};
  ASSERT_EQ(lk_loss_scale_update(context.get(), &update), LK_OK);
  EXPECT_EQ(load(state), (Values{512, 0}));
  norm.put(0, 1.0f);
  for (int i = 0; i < 6; ++i) ASSERT_EQ(lk_loss_scale_update(context.get(), &update), LK_OK);
  EXPECT_EQ(load(state), (Values{2048, 0}));
}

TEST_F(Kernels, AdamwFollowsItsDefinition) {
  const int64_t n = 257;
  Tensor p = random_tensor(context.get(), random, {n}, LK_F32, -1, 1), m = floats({n}, Values(n, 0.0));
  Tensor v = floats({n}, Values(n, 0.0));
  Values vp = load(p), vm(n, 0.0), vv(n, 0.0);
  const double lr = 1e-3f, b1 = 0.9f, b2 = 0.999f, eps = 1e-8f, decay = 0.01f;
  for (int step = 1; step <= 5; ++step) {
    const Tensor g = random_tensor(context.get(), random, {n}, LK_F32, -1, 1);
    const Tensor rate = floats({1}, {lr}), count = floats({1}, {double(step)});
    const lk_adamw_update_params params{.p = p.view(),
                                        .g = g.view(),
                                        .m = m.view(),
                                        .v = v.view(),
                                        .lr = rate.view(),
                                        .step = count.view(),
                                        .beta1 = float(b1),
                                        .beta2 = float(b2),
                                        .eps = float(eps),
                                        .weight_decay = float(decay)};
    ASSERT_EQ(lk_adamw_update(context.get(), &params), LK_OK) << lk_last_error(context.get());
    const Values vg = load(g);
    for (int64_t i = 0; i < n; ++i) {
      vm[i] = b1 * vm[i] + (1 - b1) * vg[i];
      vv[i] = b2 * vv[i] + (1 - b2) * vg[i] * vg[i];
      vp[i] = vp[i] * (1 - lr * decay) -
              lr / (1 - std::pow(b1, step)) * vm[i] / (std::sqrt(vv[i]) / std::sqrt(1 - std::pow(b2, step)) + eps);
    }
    expect_near("p", load(p), vp, LK_F32, 1);
    expect_near("m", load(m), vm, LK_F32, 1);
    expect_near("v", load(v), vv, LK_F32, 1);
  }
}

TEST_F(Kernels, DropoutMaskIsPhilox) {
  // The published first block of Philox-4x32-10 for a zero key and counter.
  const double words[] = {double(0x6627e8d5), double(0xe169c58d), double(0xbc57ac4c), double(0x9b00dbd8)};
  const Tensor step = integers({1}, {0}), y({4}, LK_F32);
  for (const double word : words) {
    for (const double offset : {-1e-6, 1e-6}) {
      const double p = word / 4294967296.0 + offset;
      const lk_dropout_mask_params params{
          .step = step.view(), .y = y.view(), .p = static_cast<float>(p), .seed = 0, .stream = 0};
      ASSERT_EQ(lk_dropout_mask(context.get(), &params), LK_OK);
      for (int i = 0; i < 4; ++i) {
        EXPECT_NEAR(load(y)[i], words[i] / 4294967296.0 < p ? 0.0 : 1 / (1 - p), 1e-4);
      }
    }
  }
  const Tensor large({100001}, LK_F32), same({100001}, LK_F32);
  const Context single = make_context(1);
  const lk_dropout_mask_params params{.step = step.view(), .y = large.view(), .p = 0.25f, .seed = 5, .stream = 9};
  lk_dropout_mask_params again = params;
  again.y = same.view();
  ASSERT_EQ(lk_dropout_mask(context.get(), &params), LK_OK);
  ASSERT_EQ(lk_dropout_mask(single.get(), &again), LK_OK);
  EXPECT_EQ(large.bytes(), same.bytes());
  const Values values = load(large);
  EXPECT_NEAR(std::accumulate(values.begin(), values.end(), 0.0) / 100001, 1.0, 0.01);
}

}  // namespace

}  // namespace lk_test::kernels_numeric_test
