// The operations of liblora_kernels that move data, convert types or update parameters, the accuracy of elementary
// functions, and the contexts themselves.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "support/kernel_tensors.h"

namespace {

using namespace lk_test;

class Kernels : public testing::Test {
 protected:
  Context context = make_context();
  std::mt19937 random{7};

  Tensor floats(const Shape& shape, const Values& values) {
    Tensor tensor(shape, LK_F32);
    tensor.store(context.get(), values);
    return tensor;
  }
  Tensor integers(const Shape& shape, const std::vector<int32_t>& values) {
    Tensor tensor(shape, LK_I32);
    std::memcpy(tensor.view().data, values.data(), values.size() * sizeof(int32_t));
    return tensor;
  }
  Tensor counting(const Shape& shape) {
    Values values(static_cast<size_t>(count_of(shape)));
    std::iota(values.begin(), values.end(), 1.0);
    return floats(shape, values);
  }
  Values load(const Tensor& tensor) { return tensor.load(context.get()); }
};

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
    for (uint32_t v = 0; v < codes; ++v) {
      std::memcpy(static_cast<char*>(all.view().data) + v * lk_dtype_size(f.dtype), &v, lk_dtype_size(f.dtype));
    }
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
  lk_cast_params p{x.view(), scale.view(), y.view()};
  ASSERT_EQ(lk_cast(context.get(), &p), LK_OK);
  p = {y.view(), {}, back.view()};
  ASSERT_EQ(lk_cast(context.get(), &p), LK_OK);
  EXPECT_EQ(load(back), (Values{2, 2, -7, 600}));
  p = {y.view(), {}, bytes.view()};
  ASSERT_EQ(lk_cast(context.get(), &p), LK_OK);
  EXPECT_EQ(bytes.bytes(), (std::vector<unsigned char>{2, 2, 0, 255}));
}

TEST_F(Kernels, ElementaryFunctionsAreWithinUlps) {
  // Limits in units of the last place of the result: the polynomials' own error, their evaluation, and one rounding
  // for each further operation. Of results below 1e-30 only the absolute size counts.
  const struct {
    lk_unary_kind kind;
    double low, high, ulps;
    double (*reference)(double);
  } functions[] = {
      {LK_EXP, -87, 88, 2, [](double x) { return std::exp(x); }},
      {LK_SIGMOID, -30, 30, 3, [](double x) { return 1 / (1 + std::exp(-x)); }},
      {LK_TANH, -12, 12, 3, [](double x) { return std::tanh(x); }},
      {LK_SILU, -30, 30, 4, [](double x) { return x / (1 + std::exp(-x)); }},
      // The argument u of the exponential is rounded too, each time by up to |u| / 2 units of the result's last place:
      // three times with |u| <= 7 where the tanh form is not yet close to x, twice with |u| <= 14 in the quick one.
      {LK_GELU_TANH, -3, 12, 16,
       [](double x) { return x / (1 + std::exp(-2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }},
      {LK_GELU_ERF, -3, 12, 12, [](double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }},
      {LK_GELU_QUICK, -8, 30, 16, [](double x) { return x / (1 + std::exp(-1.702 * x)); }},
  };
  constexpr int64_t count = 1 << 18;
  for (const auto& f : functions) {
    Tensor x = random_tensor(context.get(), random, {count}, LK_F32, f.low, f.high);
    const Tensor y({count}, LK_F32);
    const lk_unary_params p{f.kind, 0, 0, x.view(), y.view()};
    ASSERT_EQ(lk_unary(context.get(), &p), LK_OK);
    const Values in = load(x), out = load(y);
    double worst = 0, where = 0;
    for (size_t i = 0; i < in.size(); ++i) {
      const double exact = f.reference(in[i]);
      const double ulp = std::ldexp(1.0, std::max(std::ilogb(std::max(std::fabs(exact), 1e-30)), -126) - 23);
      const double error = std::fabs(out[i] - exact) / ulp;
      if (error > worst) worst = error, where = in[i];
    }
    EXPECT_LE(worst, f.ulps) << "kind " << f.kind << " at " << where;
    RecordProperty("ulps_of_kind_" + std::to_string(f.kind), std::to_string(worst));
  }
}

TEST_F(Kernels, NanAndInfinityPropagate) {
  for (lk_unary_kind kind = LK_SILU; kind <= LK_CLAMP; ++kind) {
    const Tensor x = floats({2}, {NAN, INFINITY}), y({2}, LK_F32);
    const lk_unary_params p{kind, 1, 2, x.view(), y.view()};
    ASSERT_EQ(lk_unary(context.get(), &p), LK_OK);
    EXPECT_TRUE(std::isnan(load(y)[0])) << "kind " << kind;
    EXPECT_FALSE(std::isnan(load(y)[1])) << "kind " << kind;
  }
  const Tensor low = floats({3}, {-INFINITY, -200, 200}), y({3}, LK_F32);
  const lk_unary_params p{LK_EXP, 0, 0, low.view(), y.view()};
  ASSERT_EQ(lk_unary(context.get(), &p), LK_OK);
  EXPECT_EQ(load(y), (Values{0, 0, INFINITY}));
}

TEST_F(Kernels, BinaryBroadcasts) {
  const std::vector<std::pair<Shape, Shape>> shapes = {
      {{2, 3, 31}, {2, 3, 31}}, {{2, 3, 31}, {1}},    {{2, 3, 31}, {31}}, {{2, 3, 31}, {2, 1, 31}},
      {{3, 1}, {2, 1, 33}},     {{2, 3, 31}, {3, 1}}, {{1}, {1}},         {{2, 1, 4, 1}, {3, 1, 5}}};
  for (const auto& [a_shape, b_shape] : shapes) {
    for (lk_binary_kind kind = LK_ADD; kind <= LK_GREATER_EQUAL; ++kind) {
      const Tensor a = random_tensor(context.get(), random, a_shape, LK_F32, 0.5, 2);
      const Tensor b = random_tensor(context.get(), random, b_shape, LK_F32, 0.5, 2);
      Shape shape(std::max(a_shape.size(), b_shape.size()));
      for (size_t i = 0; i < shape.size(); ++i) {
        const int64_t da = i < a_shape.size() ? a_shape[a_shape.size() - 1 - i] : 1;
        const int64_t db = i < b_shape.size() ? b_shape[b_shape.size() - 1 - i] : 1;
        shape[shape.size() - 1 - i] = std::max(da, db);
      }
      const Tensor y = poisoned(context.get(), shape, LK_F32);
      const lk_binary_params p{kind, a.view(), b.view(), y.view()};
      ASSERT_EQ(lk_binary(context.get(), &p), LK_OK) << lk_last_error(context.get());
      const Values va = load(a), vb = load(b), vy = load(y);
      for (int64_t i = 0; i < count_of(shape); ++i) {
        const auto at = [&](const Shape& from) {
          int64_t rest = i, offset = 0, stride = 1;
          for (size_t k = 0; k < shape.size(); ++k) {
            const int64_t place = rest % shape[shape.size() - 1 - k];
            rest /= shape[shape.size() - 1 - k];
            if (k >= from.size()) continue;
            const int64_t dim = from[from.size() - 1 - k];
            offset += (dim == 1 ? 0 : place) * stride;
            stride *= dim;
          }
          return offset;
        };
        const double l = va[at(a_shape)], r = vb[at(b_shape)];
        const double expected[] = {l + r, l - r, l * r, l / r, std::max(l, r), std::min(l, r), l >= r ? 1.0 : 0.0};
        ASSERT_NEAR(vy[i], expected[kind], 4e-7) << "kind " << kind << " element " << i;
      }
    }
  }
}

TEST_F(Kernels, PermuteMatchesIndexing) {
  const Shape shape = {3, 1, 33, 5};
  std::vector<int32_t> axes = {0, 1, 2, 3};
  const Tensor x = counting(shape);
  const Values from = load(x);
  do {
    Shape out;
    for (const int32_t axis : axes) out.push_back(shape[axis]);
    const Tensor y = poisoned(context.get(), out, LK_F32);
    lk_permute_params p{x.view(), y.view(), {}};
    std::copy(axes.begin(), axes.end(), p.axes);
    ASSERT_EQ(lk_permute(context.get(), &p), LK_OK) << lk_last_error(context.get());
    const Values got = load(y);
    const int64_t strides[] = {165, 165, 5, 1};
    for (int64_t i = 0; i < count_of(out); ++i) {
      int64_t rest = i, offset = 0;
      for (int k = 3; k >= 0; --k) {
        offset += rest % out[k] * strides[axes[k]];
        rest /= out[k];
      }
      ASSERT_EQ(got[i], from[offset]);
    }
  } while (std::next_permutation(axes.begin(), axes.end()));
}

TEST_F(Kernels, CopyBlockExpandFillWhere) {
  const Tensor x = counting({2, 3, 4});
  Tensor y = floats({2, 2, 5}, Values(20, -1.0));
  lk_copy_block_params copy{x.view(), y.view(), {1, 2, 3}, {1, 1, 1}, {0, 0, 2}};
  ASSERT_EQ(lk_copy_block(context.get(), &copy), LK_OK) << lk_last_error(context.get());
  EXPECT_EQ(load(y), (Values{-1, -1, 18, 19, 20, -1, -1, 22, 23, 24, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1}));
  copy.x_offset[2] = 2;
  EXPECT_EQ(lk_copy_block(context.get(), &copy), LK_E_INVALID);
  EXPECT_NE(std::string(lk_last_error(context.get())).find("x_offset"), std::string::npos);

  const Tensor row = counting({2, 1, 2}), wide = poisoned(context.get(), {2, 3, 2}, LK_BF16);
  const lk_expand_params expand{row.view(), wide.view()};
  ASSERT_EQ(lk_expand(context.get(), &expand), LK_OK);
  EXPECT_EQ(load(wide), (Values{1, 2, 1, 2, 1, 2, 3, 4, 3, 4, 3, 4}));

  for (const lk_dtype dtype : {LK_F32, LK_F16, LK_BF16, LK_F8_E4M3, LK_F8_E5M2, LK_I32, LK_I64, LK_U8}) {
    const Tensor filled({33}, dtype);
    const lk_fill_params fill{filled.view(), 3.0};
    ASSERT_EQ(lk_fill(context.get(), &fill), LK_OK);
    EXPECT_EQ(load(filled), Values(33, 3.0)) << lk_dtype_name(dtype);
  }
  const Tensor a = floats({3}, {1, 2, 3}), b = floats({3}, {-1, -2, -3}), chosen({3}, LK_F32);
  const Tensor condition = integers({3}, {0, 5, 0});
  const lk_where_params where{condition.view(), a.view(), b.view(), chosen.view()};
  ASSERT_EQ(lk_where(context.get(), &where), LK_OK);
  EXPECT_EQ(load(chosen), (Values{-1, 2, -3}));
}

TEST_F(Kernels, EmbeddingGatherFindFirst) {
  const Tensor table = counting({3, 2}), ids = integers({2, 2}, {2, 0, 1, 1}), y({2, 2, 2}, LK_F32);
  lk_embedding_params embedding{ids.view(), table.view(), y.view()};
  ASSERT_EQ(lk_embedding(context.get(), &embedding), LK_OK);
  EXPECT_EQ(load(y), (Values{5, 6, 1, 2, 3, 4, 3, 4}));
  const Tensor outside = integers({2, 2}, {2, 0, 3, 1});
  embedding.ids = outside.view();
  EXPECT_EQ(lk_embedding(context.get(), &embedding), LK_E_INVALID);
  EXPECT_STREQ(lk_last_error(context.get()), "embedding: ids[2]: expected 0 to 2, found 3");

  const Tensor x = counting({2, 3, 2}), index = integers({2}, {2, 0}), row({2, 2}, LK_F32);
  const lk_gather_params gather{x.view(), index.view(), row.view()};
  ASSERT_EQ(lk_gather(context.get(), &gather), LK_OK);
  EXPECT_EQ(load(row), (Values{5, 6, 7, 8}));
  const Tensor dx = poisoned(context.get(), {2, 3, 2}, LK_F16);
  const lk_gather_backward_params back{row.view(), index.view(), dx.view()};
  ASSERT_EQ(lk_gather_backward(context.get(), &back), LK_OK);
  EXPECT_EQ(load(dx), (Values{0, 0, 0, 0, 5, 6, 7, 8, 0, 0, 0, 0}));

  const Tensor tokens = integers({2, 3}, {4, 9, 9, 1, 2, 3}), place({2}, LK_I32);
  const lk_find_first_params find{tokens.view(), place.view(), 9};
  ASSERT_EQ(lk_find_first(context.get(), &find), LK_OK);
  EXPECT_EQ(load(place), (Values{1, 2}));
}

TEST_F(Kernels, UpsampleRopeTimestep) {
  const Tensor x = counting({1, 1, 2, 1}), y({1, 2, 4, 1}, LK_F32), back({1, 1, 2, 1}, LK_F32);
  const lk_upsample_nearest2x_params up{x.view(), y.view()}, down{y.view(), back.view()};
  ASSERT_EQ(lk_upsample_nearest2x(context.get(), &up), LK_OK);
  EXPECT_EQ(load(y), (Values{1, 1, 2, 2, 1, 1, 2, 2}));
  ASSERT_EQ(lk_upsample_nearest2x_backward(context.get(), &down), LK_OK);
  EXPECT_EQ(load(back), (Values{4, 8}));

  for (const int32_t interleaved : {0, 1}) {
    const Tensor q = random_tensor(context.get(), random, {2, 3, 2, 4}, LK_F32, -1, 1);
    const Tensor angles = random_tensor(context.get(), random, {3, 2}, LK_F32, -3, 3);
    Values cosines, sines;
    for (const double angle : load(angles)) cosines.push_back(std::cos(angle)), sines.push_back(std::sin(angle));
    const Tensor cos = floats({3, 2}, cosines), sin = floats({3, 2}, sines);
    const Tensor turned({2, 3, 2, 4}, LK_F32), again({2, 3, 2, 4}, LK_F32);
    const lk_rope_params p{q.view(), cos.view(), sin.view(), turned.view(), interleaved, 0};
    const lk_rope_params inverse{turned.view(), cos.view(), sin.view(), again.view(), interleaved, 1};
    ASSERT_EQ(lk_rope(context.get(), &p), LK_OK);
    ASSERT_EQ(lk_rope(context.get(), &inverse), LK_OK);
    const Values from = load(q), to = load(turned), restored = load(again);
    for (int64_t i = 0; i < 24; ++i) {  // pairs
      const int64_t vector = i / 2, pair = i % 2, angle = vector / 2 % 3 * 2 + pair;
      const int64_t first = vector * 4 + (interleaved ? 2 * pair : pair), second = first + (interleaved ? 1 : 2);
      EXPECT_NEAR(to[first], from[first] * cosines[angle] - from[second] * sines[angle], 3e-7);
      EXPECT_NEAR(to[second], from[first] * sines[angle] + from[second] * cosines[angle], 3e-7);
      EXPECT_NEAR(restored[first], from[first], 5e-7);
    }
  }
  const Tensor t = floats({2}, {0.5, 999.25}), embedding({2, 6}, LK_F32);
  const lk_timestep_embedding_params p{t.view(), embedding.view(), 10000, 1000, 0};
  ASSERT_EQ(lk_timestep_embedding(context.get(), &p), LK_OK);
  const Values got = load(embedding);
  for (int b = 0; b < 2; ++b) {
    for (int k = 0; k < 3; ++k) {
      const double angle = 1000 * load(t)[b] * std::exp(-std::log(10000.0) * k / 3);
      EXPECT_NEAR(got[b * 6 + k], std::cos(angle), 1e-7);
      EXPECT_NEAR(got[b * 6 + 3 + k], std::sin(angle), 1e-7);
    }
  }
}

TEST_F(Kernels, ReduceSumMatchesLoopsForEveryChoiceOfAxes) {
  const Shape shape = {3, 31, 4, 33};
  const Tensor x = random_tensor(context.get(), random, shape, LK_F32, -1, 1);
  const Values from = load(x);
  for (int mask = 0; mask < 16; ++mask) {
    Shape out = shape;
    for (int i = 0; i < 4; ++i) out[i] = mask >> i & 1 ? 1 : shape[i];
    const Tensor y = poisoned(context.get(), out, LK_F32);
    const lk_reduce_sum_params p{x.view(), y.view(), 0.5f};
    ASSERT_EQ(lk_reduce_sum(context.get(), &p), LK_OK);
    Values expected(static_cast<size_t>(count_of(out)), 0.0);
    for (int64_t i = 0; i < count_of(shape); ++i) {
      int64_t rest = i, offset = 0, stride = 1;
      for (int k = 3; k >= 0; --k) {
        offset += (out[k] == 1 ? 0 : rest % shape[k]) * stride;
        stride *= out[k];
        rest /= shape[k];
      }
      expected[offset] += 0.5 * from[i];
    }
    const Values got = load(y);
    for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 1e-5) << "axes " << mask;
  }
}

TEST_F(Kernels, Fp8WeightsAreDequantised) {
  const Tensor x = random_tensor(context.get(), random, {33, 31}, LK_F32, -1, 1);
  const Tensor weight = random_tensor(context.get(), random, {7, 31}, LK_F8_E4M3, -2, 2);
  const Tensor scale = random_tensor(context.get(), random, {7}, LK_F32, 0.5, 2);
  const Tensor y = poisoned(context.get(), {33, 7}, LK_F32);
  const lk_linear_params p{x.view(), weight.view(), scale.view(), {}, y.view()};
  ASSERT_EQ(lk_linear(context.get(), &p), LK_OK) << lk_last_error(context.get());
  const Values vx = load(x), vw = load(weight), vs = load(scale);
  Values expected(33 * 7, 0.0);
  for (int i = 0; i < 33 * 7; ++i) {
    for (int j = 0; j < 31; ++j) expected[i] += vx[i / 7 * 31 + j] * vw[i % 7 * 31 + j] * vs[i % 7];
  }
  expect_near("fp8 linear", load(y), expected, LK_F32, 31);
}

TEST_F(Kernels, LoraGradientsAccumulate) {
  const auto make = [&](const Shape& shape) { return random_tensor(context.get(), random, shape, LK_F32, -1, 1); };
  const Tensor dy = make({33, 7}), x = make({33, 31}), down = make({4, 31}), up = make({7, 4});
  const Tensor ddown = poisoned(context.get(), {4, 31}, LK_F32), dup = poisoned(context.get(), {7, 4}, LK_F32);
  lk_lora_backward_params p{dy.view(), x.view(), {}, {}, {},           down.view(), up.view(),
                            {},        0.5f,     0,  {}, ddown.view(), dup.view()};
  ASSERT_EQ(lk_lora_backward(context.get(), &p), LK_OK) << lk_last_error(context.get());
  Values once = load(ddown), once_up = load(dup);
  p.accumulate = 1;
  ASSERT_EQ(lk_lora_backward(context.get(), &p), LK_OK);
  for (double& value : once) value *= 2;
  for (double& value : once_up) value *= 2;
  expect_near("ddown", load(ddown), once, LK_F32, 33);
  expect_near("dup", load(dup), once_up, LK_F32, 33);

  const Tensor total = poisoned(context.get(), {33, 7}, LK_F32);
  for (const int32_t add : {0, 1}) {
    const lk_accumulate_params accumulate{dy.view(), total.view(), 0.5f, add};
    ASSERT_EQ(lk_accumulate(context.get(), &accumulate), LK_OK);
  }
  EXPECT_EQ(load(total), load(dy));
}

TEST_F(Kernels, MatmulTransposes) {
  for (const int32_t variant : {0, 1, 2, 3}) {
    const int32_t ta = variant & 1, tb = variant >> 1;
    const int64_t batch = 3, m = 31, k = 33, n = 5;
    const Tensor a = random_tensor(context.get(), random, ta ? Shape{batch, k, m} : Shape{batch, m, k}, LK_F32, -1, 1);
    const Tensor b = random_tensor(context.get(), random, tb ? Shape{batch, n, k} : Shape{batch, k, n}, LK_F32, -1, 1);
    const Tensor c = poisoned(context.get(), {batch, m, n}, LK_F32);
    const lk_matmul_params p{a.view(), b.view(), c.view(), ta, tb};
    ASSERT_EQ(lk_matmul(context.get(), &p), LK_OK) << lk_last_error(context.get());
    const Values va = load(a), vb = load(b);
    Values expected;
    for (int64_t i = 0; i < batch * m * n; ++i) {
      const int64_t t = i / (m * n), row = i / n % m, col = i % n;
      double sum = 0;
      for (int64_t j = 0; j < k; ++j) {
        sum += va[t * m * k + (ta ? j * m + row : row * k + j)] * vb[t * k * n + (tb ? col * k + j : j * n + col)];
      }
      expected.push_back(sum);
    }
    expect_near("matmul", load(c), expected, LK_F32, k);
  }
}

TEST_F(Kernels, ClipGradNormAndLossScale) {
  const Tensor a = floats({2}, {3, 0}), b = floats({20000}, Values(20000, 0.0)), norm({1}, LK_F32);
  static_cast<float*>(b.view().data)[19999] = 4;
  lk_tensor gradients[] = {a.view(), b.view()};
  lk_clip_grad_norm_params p{gradients, 2, 0.5f, 0.5f, norm.view()};
  ASSERT_EQ(lk_clip_grad_norm(context.get(), &p), LK_OK);
  EXPECT_FLOAT_EQ(load(norm)[0], 2.5);
  EXPECT_NEAR(load(a)[0], 3 * 0.5 * 0.5 / (2.5 + 1e-6), 1e-7);
  EXPECT_NEAR(load(b)[19999], 4 * 0.5 * 0.5 / (2.5 + 1e-6), 1e-7);
  static_cast<float*>(a.view().data)[1] = INFINITY;
  const auto before = b.bytes();
  ASSERT_EQ(lk_clip_grad_norm(context.get(), &p), LK_OK);
  EXPECT_TRUE(std::isinf(load(norm)[0]));
  EXPECT_EQ(b.bytes(), before);

  const Tensor state = floats({2}, {1024, 1});
  lk_loss_scale_update_params update{norm.view(), state.view(), 2, 0.5f, 2048, 2};
  ASSERT_EQ(lk_loss_scale_update(context.get(), &update), LK_OK);
  EXPECT_EQ(load(state), (Values{512, 0}));
  static_cast<float*>(norm.view().data)[0] = 1;
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
    const lk_adamw_update_params params{p.view(),     g.view(),  m.view(),  v.view(),   rate.view(),
                                        count.view(), float(b1), float(b2), float(eps), float(decay)};
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
      const lk_dropout_mask_params params{step.view(), y.view(), static_cast<float>(p), 0, 0};
      ASSERT_EQ(lk_dropout_mask(context.get(), &params), LK_OK);
      for (int i = 0; i < 4; ++i) {
        EXPECT_NEAR(load(y)[i], words[i] / 4294967296.0 < p ? 0.0 : 1 / (1 - p), 1e-4);
      }
    }
  }
  const Tensor large({100001}, LK_F32), same({100001}, LK_F32);
  const Context single = make_context(1);
  const lk_dropout_mask_params params{step.view(), large.view(), 0.25f, 5, 9};
  lk_dropout_mask_params again = params;
  again.y = same.view();
  ASSERT_EQ(lk_dropout_mask(context.get(), &params), LK_OK);
  ASSERT_EQ(lk_dropout_mask(single.get(), &again), LK_OK);
  EXPECT_EQ(large.bytes(), same.bytes());
  const Values values = load(large);
  EXPECT_NEAR(std::accumulate(values.begin(), values.end(), 0.0) / 100001, 1.0, 0.01);
}

TEST_F(Kernels, ContextsReportWhatIsWrong) {
  lk_context* other = nullptr;
  const lk_context_params cuda{LK_CUDA, 0, 0};
  if (!lk_backend_available(LK_CUDA)) {
    EXPECT_EQ(lk_context_create(&cuda, &other), LK_E_UNSUPPORTED);
    EXPECT_NE(std::string(lk_last_error(nullptr)).find("CUDA"), std::string::npos);
    EXPECT_EQ(other, nullptr);
  }
  EXPECT_EQ(lk_context_threads(context.get()), 2);
  EXPECT_EQ(lk_linear(context.get(), nullptr), LK_E_INVALID);
  EXPECT_STREQ(lk_last_error(context.get()), "linear: params is NULL");
  void* data = nullptr;
  ASSERT_EQ(lk_alloc(context.get(), 1000, &data), LK_OK);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 256, 0u);
  const std::vector<char> text(1000, 'x');
  std::vector<char> read(1000);
  ASSERT_EQ(lk_upload(context.get(), data, text.data(), 1000), LK_OK);
  ASSERT_EQ(lk_download(context.get(), read.data(), data, 1000), LK_OK);
  EXPECT_EQ(text, read);
  lk_free(context.get(), data);
  EXPECT_EQ(lk_alloc(context.get(), INT64_MAX, &data), LK_E_MEMORY);

  const Tensor x = counting({4});
  const lk_softmax_params overlapping{x.view(), x.view()};
  EXPECT_EQ(lk_softmax(context.get(), &overlapping), LK_E_INVALID);
  EXPECT_STREQ(lk_last_error(context.get()), "softmax: y: expected no overlap with x, found shared memory");
}

}  // namespace
