// Weights in fewer bits in the products that read them: every form, every type of the other operands, against float64
// loops over what codes and factors mean (support/reference/quantise.h).
#include <gmock/gmock.h>

#include "support/kernel_tensors.h"
#include "support/reference/products.h"
#include "support/reference/quantise.h"

namespace lk_test::kernels_weights_test {
namespace {

using ::testing::HasSubstr;

enum class Form { e4m3, e4m3_one, e4m3_rows, e5m2_rows, i8_one, i8_rows, nf4 };
constexpr std::pair<Form, const char*> forms[] = {{Form::e4m3, "e4m3"},
                                                  {Form::e4m3_one, "e4m3_one"},
                                                  {Form::e4m3_rows, "e4m3_rows"},
                                                  {Form::e5m2_rows, "e5m2_rows"},
                                                  {Form::i8_one, "i8_one"},
                                                  {Form::i8_rows, "i8_rows"},
                                                  {Form::nf4, "nf4"}};

struct Weight {
  Tensor codes, scale;
  bool scaled;
  Values values;
  lk_tensor scale_view() const { return scaled ? scale.view() : lk_tensor{}; }
};

class KernelsWeights : public Kernels, public testing::WithParamInterface<std::pair<Form, const char*>> {
 protected:
  Form form() const { return GetParam().first; }

  Weight weight(int64_t out, int64_t in) { return form() == Form::nf4 ? nf4(out, in) : by_rows(out, in); }

  // Any byte is two codes, and any byte a factor's.
  Weight nf4(int64_t out, int64_t in) {
    const reference::Nf4 law{out, in};
    std::vector<std::byte> codes(static_cast<size_t>(law.code_bytes())), scale(static_cast<size_t>(law.scale_bytes()));
    for (std::byte& b : codes) b = static_cast<std::byte>(random() & 0xff);
    for (std::byte& b : scale) b = static_cast<std::byte>(random() & 0xff);
    const int64_t floats = 1 + (law.blocks() + 255) / 256;
    for (int64_t i = 0; i < floats; ++i) {
      const float value = i == 0 ? 0.75f : 0.25f + static_cast<float>(i) / 16;
      std::memcpy(scale.data() + 4 * i, &value, 4);
    }
    Weight w{Tensor({out, in}, LK_NF4), Tensor({law.scale_bytes()}, LK_U8), true, law.values(codes, scale)};
    w.codes.write(codes.data(), 0, law.code_bytes());
    w.scale.write(scale.data(), 0, law.scale_bytes());
    return w;
  }

  Weight by_rows(int64_t out, int64_t in) {
    const bool i8 = form() == Form::i8_one || form() == Form::i8_rows, scaled = form() != Form::e4m3;
    const bool rows = form() == Form::e4m3_rows || form() == Form::e5m2_rows || form() == Form::i8_rows;
    const lk_dtype dtype = i8 ? LK_I8 : form() == Form::e5m2_rows ? LK_F8_E5M2 : LK_F8_E4M3;
    const double size = i8 ? 127 : 2;
    Weight w{random_tensor(context.get(), random, {out, in}, dtype, -size, size),
             random_tensor(context.get(), random, {rows ? out : 1}, LK_F32, 0.5 / size, 2 / size),
             scaled,
             {}};
    w.values = load(w.codes);
    const Values factors = load(w.scale);
    for (size_t i = 0; scaled && i < w.values.size(); ++i)
      w.values[i] *= factors[rows ? i / static_cast<size_t>(in) : 0];
    return w;
  }

  // Sizes that fill blocks and that do not, for few rows (the weight is streamed) and many (it is widened first).
  void each_size(const std::function<void(lk_dtype type, int64_t rows, int64_t in, int64_t out)>& test) {
    for (const lk_dtype type : {LK_F32, LK_F16, LK_BF16})
      for (const int64_t rows : {1, 8, 33})
        for (const auto& [in, out] : {std::pair<int64_t, int64_t>{31, 7}, {130, 9}, {256, 64}}) {
          SCOPED_TRACE(std::string(lk_dtype_name(type)) + " rows " + std::to_string(rows) + " in " +
                       std::to_string(in) + " out " + std::to_string(out));
          test(type, rows, in, out);
        }
  }
  Tensor drawn(const Shape& shape, lk_dtype type) { return random_tensor(context.get(), random, shape, type, -1, 1); }
};

// One intermediate more than in a product of plain weights: their values may be rounded to the other operand's type
// first, and the errors of a sum's terms, which are independent, add up to one of the size of the result.
constexpr int rounded_weight = 1;

TEST_P(KernelsWeights, Linear) {
  each_size([&](lk_dtype type, int64_t rows, int64_t in, int64_t out) {
    const Weight w = weight(out, in);
    const Tensor x = drawn({rows, in}, type), bias = drawn({out}, type), y = poisoned(context.get(), {rows, out}, type);
    const lk_linear_params p{.x = x.view(),
                             .weight = w.codes.view(),
                             .weight_scale = w.scale_view(),
                             .bias = bias.view(),
                             .y = y.view(),
                             .products = LK_PRODUCTS_WIDE};
    ASSERT_EQ(lk_linear(context.get(), &p), LK_OK) << lk_last_error(context.get());
    expect_near("y", load(y), reference::linear(load(x), w.values, load(bias), in, out), type, in, 1 + rounded_weight);

    const Tensor dy = drawn({rows, out}, type), dx = poisoned(context.get(), {rows, in}, type);
    lk_linear_backward_params b{};
    b.dy = dy.view(), b.weight = w.codes.view(), b.weight_scale = w.scale_view(), b.dx = dx.view();
    ASSERT_EQ(lk_linear_backward(context.get(), &b), LK_OK) << lk_last_error(context.get());
    expect_near("dx", load(dx), reference::matmul({1, rows, out, in, false, false}, load(dy), w.values), type, out,
                rounded_weight);
  });
}

TEST_P(KernelsWeights, Lora) {
  constexpr int64_t rank = 5;
  constexpr double scale = 0.5;
  each_size([&](lk_dtype type, int64_t rows, int64_t in, int64_t out) {
    const Weight w = weight(out, in);
    const Tensor x = drawn({rows, in}, type), down = drawn({rank, in}, LK_F32), up = drawn({out, rank}, LK_F32);
    const Tensor y = poisoned(context.get(), {rows, out}, type), s = poisoned(context.get(), {rows, rank}, type);
    lk_lora_forward_params p{};
    p.x = x.view(), p.weight = w.codes.view(), p.weight_scale = w.scale_view(), p.down = down.view(), p.up = up.view();
    p.scale = scale, p.y = y.view(), p.s = s.view();
    ASSERT_EQ(lk_lora_forward(context.get(), &p), LK_OK) << lk_last_error(context.get());
    const Values want = reference::lora({in, out, rank, scale}, load(x), w.values, load(down), load(up),
                                        Values(static_cast<size_t>(rows * rank), 1.0));
    expect_near("y", load(y), want, type, in, 4 + rounded_weight);

    const Tensor dy = drawn({rows, out}, type), dx = poisoned(context.get(), {rows, in}, type);
    lk_lora_backward_params b{};
    b.dy = dy.view(), b.x = x.view(), b.s = s.view(), b.weight = w.codes.view(), b.weight_scale = w.scale_view();
    b.down = down.view(), b.up = up.view(), b.scale = scale, b.dx = dx.view();
    ASSERT_EQ(lk_lora_backward(context.get(), &b), LK_OK) << lk_last_error(context.get());
    Values want_dx = reference::matmul({1, rows, out, in, false, false}, load(dy), w.values);
    const Values ds = reference::matmul({1, rows, out, rank, false, false}, load(dy), load(up));
    const Values added = reference::matmul({1, rows, rank, in, false, false}, ds, load(down));
    for (size_t i = 0; i < want_dx.size(); ++i) want_dx[i] += scale * added[i];
    expect_near("dx", load(dx), want_dx, type, out, 4 + rounded_weight);
  });
}

// Not a product: the values themselves, rounded once from float32.
TEST_P(KernelsWeights, CastGivesTheValues) {
  for (const lk_dtype type : {LK_F32, LK_F16, LK_BF16})
    for (const int64_t in : {31, 64, 144}) {
      const Weight w = weight(9, in);
      const Tensor y = poisoned(context.get(), {9, in}, type);
      const lk_cast_params p{.x = w.codes.view(), .scale = w.scale_view(), .y = y.view()};
      ASSERT_EQ(lk_cast(context.get(), &p), LK_OK) << lk_last_error(context.get());
      const Values got = load(y);
      for (size_t i = 0; i < got.size(); ++i)  // float32 tables and the factor's own rounding: a few units
        ASSERT_NEAR(got[i], w.values[i], rounding(type) * std::fabs(w.values[i]) * 1.01 + 1e-6) << i;
    }
}

INSTANTIATE_TEST_SUITE_P(Forms, KernelsWeights, testing::ValuesIn(forms),
                         [](const auto& info) { return info.param.second; });

TEST_F(Kernels, WeightsInFewerBitsAreRefusedElsewhere) {
  const Tensor x({3, 70}, LK_F32), weight({5, 70}, LK_NF4), y({3, 5}, LK_F32), integers({5, 70}, LK_I32);
  const Tensor factors({5}, LK_F32), scale({18}, LK_U8), short_scale({17}, LK_U8), other({5, 70}, LK_NF4);
  EXPECT_EQ(lk_nf4_scale_bytes(10), 18);  // offset, one range, ten codes
  const auto refused = [&](lk_status status, const char* words) {
    EXPECT_EQ(status, LK_E_INVALID);
    EXPECT_THAT(lk_last_error(context.get()), HasSubstr(words));
  };
  lk_linear_params linear{.x = x.view(), .weight = weight.view(), .y = y.view(), .products = LK_PRODUCTS_WIDE};
  refused(lk_linear(context.get(), &linear), "weight_scale: expected a tensor, found data NULL");
  linear.weight_scale = factors.view();
  refused(lk_linear(context.get(), &linear), "weight_scale: expected u8, found f32");
  linear.weight_scale = short_scale.view();
  refused(lk_linear(context.get(), &linear), "weight_scale: expected shape [18], found [17]");
  linear.weight_scale = scale.view();
  EXPECT_EQ(lk_linear(context.get(), &linear), LK_OK) << lk_last_error(context.get());
  linear.y = weight.view();
  refused(lk_linear(context.get(), &linear), "y: expected another type than nf4");
  lk_cast_params cast{.x = weight.view(), .scale = scale.view(), .y = integers.view()};
  refused(lk_cast(context.get(), &cast), "y: expected f32, f16 or bf16, found i32");
  cast = {.x = x.view(), .y = weight.view()};
  refused(lk_cast(context.get(), &cast), "y: expected another type than nf4");
  const lk_fill_params fill{.y = weight.view(), .value = 1};
  refused(lk_fill(context.get(), &fill), "y: expected another type than nf4");
  const lk_permute_params permute{.x = weight.view(), .y = other.view(), .axes = {1, 0}};
  refused(lk_permute(context.get(), &permute), "x: expected another type than nf4");
  EXPECT_EQ(lk_tensor_bytes(&linear.x), 3 * 70 * 4);
  const lk_tensor odd{nullptr, LK_NF4, 2, {5, 71}};
  EXPECT_EQ(lk_tensor_bytes(&odd), 5 * 36);
}

}  // namespace

}  // namespace lk_test::kernels_weights_test
