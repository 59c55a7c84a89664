// Products with weights of 8 bits in 8 bits (LK_PRODUCTS_E4M3, LK_PRODUCTS_I8): every type, sizes that fill tiles and
// that do not, against the rule of lora_kernels.h. Codes are chosen by float32 arithmetic, which is the rule;
// everything after it is float64.
#include <gmock/gmock.h>

#include "support/device.h"
#include "support/kernel_tensors.h"
#include "support/reference/products.h"

namespace lk_test::kernels_products_test {
namespace {

using ::testing::HasSubstr;

// The number of e4m3 nearest to v, in the middle the one with an even last bit; three bits follow the first.
double to_e4m3(float v) {
  if (std::isnan(v)) return std::numeric_limits<double>::quiet_NaN();
  const double size = std::fabs(static_cast<double>(v));
  const int exponent = size == 0 ? -6 : std::max(static_cast<int>(std::floor(std::log2(size))), -6);
  const double step = std::ldexp(1.0, exponent - 3);
  return std::copysign(std::min(std::nearbyint(size / step) * step, 448.0), v);
}

double to_i8(float v) {
  if (std::isnan(v)) return std::numeric_limits<double>::quiet_NaN();
  return std::clamp(std::nearbyint(static_cast<double>(v)), -127.0, 127.0);
}

struct Rounded {
  Values codes, factors;
};

// Rows of a [rows, cols], after its columns were multiplied with `columns`.
Rounded round_rows(bool integers, const Values& a, int64_t rows, int64_t cols, const Values& columns) {
  Rounded out;
  for (int64_t r = 0; r < rows; ++r) {
    std::vector<float> row;
    float most = 0;
    for (int64_t i = 0; i < cols; ++i) {
      row.push_back(static_cast<float>(a[static_cast<size_t>(r * cols + i)]) *
                    static_cast<float>(columns[static_cast<size_t>(i)]));
      most = std::fmax(most, std::fabs(row.back()));
    }
    const float factor = std::max(most / (integers ? 127.0f : 448.0f), 0x1p-126f), inverse = 1 / factor;
    out.factors.push_back(factor);
    for (const float v : row) out.codes.push_back(integers ? to_i8(v * inverse) : to_e4m3(v * inverse));
  }
  return out;
}

Values absolute(Values values) {
  for (double& v : values) v = std::fabs(v);
  return values;
}

struct Weight {
  Tensor codes, scale;
  bool scaled;
  Values values, factors;  // of codes; of rows
  lk_tensor scale_view() const { return scaled ? scale.view() : lk_tensor{}; }
};

enum class Form { e4m3, e4m3_one, e4m3_rows, e5m2_rows, i8_one, i8_rows };

class KernelsProducts : public Kernels, public testing::WithParamInterface<Form> {
 protected:
  bool integers() const { return GetParam() == Form::i8_one || GetParam() == Form::i8_rows; }
  lk_products products() const { return integers() ? LK_PRODUCTS_I8 : LK_PRODUCTS_E4M3; }
  Rounded rounded(const Tensor& a, int64_t rows, const Values& columns) {
    return round_rows(integers(), a.load(context.get()), rows, static_cast<int64_t>(columns.size()), columns);
  }

  Weight weight(int64_t out, int64_t in) {
    const Form form = GetParam();
    const bool rows = form == Form::e4m3_rows || form == Form::e5m2_rows || form == Form::i8_rows;
    const bool scaled = form != Form::e4m3;
    const double size = integers() ? 127 : 2;
    Weight w{random_tensor(context.get(), random, {out, in},
                           integers()                ? LK_I8
                           : form == Form::e5m2_rows ? LK_F8_E5M2
                                                     : LK_F8_E4M3,
                           -size, size),
             random_tensor(context.get(), random, {rows ? out : 1}, LK_F32, 0.5 / size, 2 / size),
             scaled,
             {},
             {}};
    w.values = w.codes.load(context.get());
    const Values factors = w.scale.load(context.get());
    for (size_t i = 0; i < static_cast<size_t>(out); ++i) w.factors.push_back(!scaled ? 1 : factors[rows ? i : 0]);
    return w;
  }

  // got = sum of products of codes times factors, + added. Tensor cores keep a part of each term's bits
  // (lora_kernels.h), of which the last may be lost at each of a few additions of many terms at once.
  void expect_product(const std::string& what, const Tensor& got, lk_dtype type, const Rounded& a, const Values& sums,
                      const Values& sizes, int64_t rows, const Values& columns, const Values& added, int64_t depth,
                      int inner) {
    const int64_t cols = static_cast<int64_t>(columns.size());
    const double kept = lh::test::tested_device() == "cpu" || integers() ? 0 : std::ldexp(1.0, -12);
    Values want, lost;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c) {
        const auto at = static_cast<size_t>(r * cols + c);
        const double factor = a.factors[static_cast<size_t>(r)] * columns[static_cast<size_t>(c)];
        want.push_back(sums[at] * factor + added[at]);
        lost.push_back(sizes[at] * factor * kept);
      }
    const Values found = got.load(context.get());
    const double largest = largest_of(want);
    for (size_t i = 0; i < want.size(); ++i)
      ASSERT_LE(std::fabs(found[i] - want[i]), tolerance(type, want[i], largest, depth, inner) + lost[i])
          << what << " element " << i << ": found " << found[i] << ", expected " << want[i];
  }

  struct Case {
    int64_t rows, in, out;
  };
  // Tiles that are full and not, widths that the tensor cores take and not, rows for more than one part of sums, and
  // rows of every length that is kept in registers, and a longer one.
  void each_size(const std::function<void(lk_dtype, const Case&)>& test) {
    const auto run = [&](lk_dtype type, const Case& size) {
      SCOPED_TRACE(std::string(lk_dtype_name(type)) + " rows " + std::to_string(size.rows) + " in " +
                   std::to_string(size.in) + " out " + std::to_string(size.out));
      test(type, size);
    };
    for (const lk_dtype type : {LK_F32, LK_F16, LK_BF16})
      for (const Case& size : {Case{9, 31, 7}, {33, 130, 9}, {33, 256, 144}, {70, 48, 400}}) run(type, size);
    for (const Case& size : {Case{1100, 64, 32}, {12, 4112, 16}, {12, 16, 13312}, {10, 25600, 16}}) run(LK_BF16, size);
  }
  Tensor drawn(const Shape& shape, lk_dtype type) { return random_tensor(context.get(), random, shape, type, -1, 1); }
  static Values ones(int64_t count) { return Values(static_cast<size_t>(count), 1.0); }
};

TEST_P(KernelsProducts, Linear) {
  each_size([&](lk_dtype type, const Case& n) {
    const Weight w = weight(n.out, n.in);
    const Tensor x = drawn({n.rows, n.in}, type), bias = drawn({n.out}, type);
    const Tensor y = poisoned(context.get(), {n.rows, n.out}, type);
    const lk_linear_params p{.x = x.view(),
                             .weight = w.codes.view(),
                             .weight_scale = w.scale_view(),
                             .bias = bias.view(),
                             .y = y.view(),
                             .products = products()};
    ASSERT_EQ(lk_linear(context.get(), &p), LK_OK) << lk_last_error(context.get());
    const Rounded a = rounded(x, n.rows, ones(n.in));
    const Values of_bias = bias.load(context.get());
    Values added;
    for (int64_t r = 0; r < n.rows; ++r) added.insert(added.end(), of_bias.begin(), of_bias.end());
    const auto product = [&](const Values& left, const Values& right) {
      return reference::matmul({1, n.rows, n.in, n.out, false, true}, left, right);
    };
    expect_product("y", y, type, a, product(a.codes, w.values), product(absolute(a.codes), absolute(w.values)), n.rows,
                   w.factors, added, n.in, 1);

    const Tensor dy = drawn({n.rows, n.out}, type), dx = poisoned(context.get(), {n.rows, n.in}, type);
    lk_linear_backward_params b{};
    b.dy = dy.view(), b.weight = w.codes.view(), b.weight_scale = w.scale_view(), b.dx = dx.view();
    b.products = products();
    ASSERT_EQ(lk_linear_backward(context.get(), &b), LK_OK) << lk_last_error(context.get());
    const Rounded d = rounded(dy, n.rows, w.factors);
    const auto back = [&](const Values& left, const Values& right) {
      return reference::matmul({1, n.rows, n.out, n.in, false, false}, left, right);
    };
    expect_product("dx", dx, type, d, back(d.codes, w.values), back(absolute(d.codes), absolute(w.values)), n.rows,
                   ones(n.in), Values(static_cast<size_t>(n.rows * n.in)), n.out, 0);
  });
}

TEST_P(KernelsProducts, AdaptersAreAddedInFull) {
  constexpr int64_t rank = 5;
  constexpr double scale = 0.5;
  each_size([&](lk_dtype type, const Case& n) {
    const Weight w = weight(n.out, n.in);
    const Tensor x = drawn({n.rows, n.in}, type), down = drawn({rank, n.in}, LK_F32), up = drawn({n.out, rank}, LK_F32);
    const Tensor y = poisoned(context.get(), {n.rows, n.out}, type), s = poisoned(context.get(), {n.rows, rank}, type);
    lk_lora_forward_params p{};
    p.x = x.view(), p.weight = w.codes.view(), p.weight_scale = w.scale_view(), p.down = down.view(), p.up = up.view();
    p.scale = scale, p.y = y.view(), p.s = s.view(), p.products = products();
    ASSERT_EQ(lk_lora_forward(context.get(), &p), LK_OK) << lk_last_error(context.get());
    const auto values = [&](const Tensor& tensor) { return tensor.load(context.get()); };
    const Rounded a = rounded(x, n.rows, ones(n.in));
    const auto product = [&](const Values& left, const Values& right) {
      return reference::matmul({1, n.rows, n.in, n.out, false, true}, left, right);
    };
    Values added = reference::lora({n.in, n.out, rank, scale}, values(x), Values(w.values.size()), values(down),
                                   values(up), ones(n.rows * rank));
    expect_product("y", y, type, a, product(a.codes, w.values), product(absolute(a.codes), absolute(w.values)), n.rows,
                   w.factors, added, n.in, 4);

    const Tensor dy = drawn({n.rows, n.out}, type), dx = poisoned(context.get(), {n.rows, n.in}, type);
    const Tensor so_far = drawn({n.rows, n.in}, type);
    lk_lora_backward_params b{};
    b.dy = dy.view(), b.x = x.view(), b.s = s.view(), b.weight = w.codes.view(), b.weight_scale = w.scale_view();
    b.down = down.view(), b.up = up.view(), b.scale = scale, b.dx = dx.view(), b.products = products();
    b.added = so_far.view();
    ASSERT_EQ(lk_lora_backward(context.get(), &b), LK_OK) << lk_last_error(context.get());
    const Rounded d = rounded(dy, n.rows, w.factors);
    const auto back = [&](const Values& left, const Values& right) {
      return reference::matmul({1, n.rows, n.out, n.in, false, false}, left, right);
    };
    const Values ds = reference::matmul({1, n.rows, n.out, rank, false, false}, values(dy), values(up));
    added = reference::matmul({1, n.rows, rank, n.in, false, false}, ds, values(down));
    const Values before = values(so_far);
    for (size_t i = 0; i < added.size(); ++i) added[i] = added[i] * scale + before[i];
    expect_product("dx", dx, type, d, back(d.codes, w.values), back(absolute(d.codes), absolute(w.values)), n.rows,
                   ones(n.in), added, n.out, 5);
  });
}

std::string name_of(const testing::TestParamInfo<Form>& info) {
  constexpr const char* names[] = {"e4m3", "e4m3_one", "e4m3_rows", "e5m2_rows", "i8_one", "i8_rows"};
  return names[static_cast<int>(info.param)];
}
INSTANTIATE_TEST_SUITE_P(Forms, KernelsProducts,
                         testing::Values(Form::e4m3, Form::e4m3_one, Form::e4m3_rows, Form::e5m2_rows, Form::i8_one,
                                         Form::i8_rows),
                         name_of);

TEST_F(Kernels, FewRowsAreMultipliedInFull) {
  const Tensor weight = random_tensor(context.get(), random, {32, 64}, LK_F8_E4M3, -2, 2);
  const Tensor x = random_tensor(context.get(), random, {LK_FEW_ROWS, 64}, LK_BF16, -1, 1);
  const Tensor full({LK_FEW_ROWS, 32}, LK_BF16), fp8({LK_FEW_ROWS, 32}, LK_BF16);
  lk_linear_params p{.x = x.view(), .weight = weight.view(), .y = full.view(), .products = LK_PRODUCTS_WIDE};
  ASSERT_EQ(lk_linear(context.get(), &p), LK_OK) << lk_last_error(context.get());
  p.y = fp8.view(), p.products = LK_PRODUCTS_E4M3;
  ASSERT_EQ(lk_linear(context.get(), &p), LK_OK) << lk_last_error(context.get());
  EXPECT_EQ(full.load(context.get()), fp8.load(context.get()));
}

// A step whose activations overflowed must be seen as one: no row hides it, and no other row has it.
TEST_P(KernelsProducts, RowsThatAreNotFiniteStayThat) {
  constexpr double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  constexpr int64_t rows = 12, width = 32;
  const Weight w = weight(16, width);
  for (const lk_dtype type : {LK_F32, LK_F16, LK_BF16}) {
    Values values(rows * width, 1.0);
    values[3 * width + 5] = inf, values[4 * width + 6] = -inf, values[5 * width + 31] = nan;
    for (int64_t i = 0; i < width; ++i) values[static_cast<size_t>(6 * width + i)] = 0;
    Tensor x({rows, width}, type), y({rows, 16}, type);
    x.store(context.get(), values);
    const lk_linear_params p{
        .x = x.view(), .weight = w.codes.view(), .weight_scale = w.scale_view(), .y = y.view(), .products = products()};
    ASSERT_EQ(lk_linear(context.get(), &p), LK_OK) << lk_last_error(context.get());
    const Values got = y.load(context.get());
    for (int64_t i = 0; i < rows * 16; ++i) {
      const int64_t row = i / 16;
      EXPECT_EQ(std::isnan(got[static_cast<size_t>(i)]), row >= 3 && row <= 5) << lk_dtype_name(type) << " row " << row;
      if (row == 6) {
        EXPECT_EQ(got[static_cast<size_t>(i)], 0);
      }
    }
  }
}

TEST_F(Kernels, ProductsWantWeightsOfTheirType) {
  const Tensor x({9, 32}, LK_F32), y({9, 16}, LK_F32), integers({16, 32}, LK_I8), codes({16, 32}, LK_F8_E4M3);
  lk_linear_params p{.x = x.view(), .weight = integers.view(), .y = y.view(), .products = LK_PRODUCTS_E4M3};
  const auto refused = [&](const char* words) {
    EXPECT_EQ(lk_linear(context.get(), &p), LK_E_INVALID);
    EXPECT_THAT(lk_last_error(context.get()), HasSubstr(words));
  };
  refused("weight: expected f8_e4m3 or f8_e5m2 for products of fp8, found i8");
  p.weight = codes.view(), p.products = LK_PRODUCTS_I8;
  refused("weight: expected i8 for products of i8, found f8_e4m3");
  p.products = 7;
  refused("products: expected one of LK_PRODUCTS_..., found 7");
}

}  // namespace

}  // namespace lk_test::kernels_products_test
