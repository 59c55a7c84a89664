// RMS norms with a rotation behind them where a GPU has many rows to a block: results and gradients against the
// formulas in float64 in both layouts, other types beside each other, the two operations one after the other, and what
// is refused.
#include <gmock/gmock.h>

#include "support/kernel_cases.h"

namespace lk_test::kernels_rms_norm_rope_test {
namespace {

using testing::HasSubstr;

constexpr float eps = 1e-5f;

struct Form {
  Shape x;  // [B, S, H, D]
  bool own_tables, interleaved;
};

// Widths whose pairs a GPU's lanes hold, of heads that are one warp's or several warps', and that end within a block;
// others, which it norms and turns in two passes.
const Form forms[] = {
    {{1, 9, 30, 128}, false, true}, {{2, 5, 29, 64}, false, false}, {{1, 300, 5, 128}, false, true},
    {{2, 33, 3, 128}, true, false}, {{3, 65, 2, 64}, false, false}, {{2, 33, 3, 512}, true, true},
    {{1, 9, 3, 512}, false, false}, {{2, 33, 3, 24}, false, true},  {{1, 33, 3, 96}, false, false},
    {{1, 5, 2, 1032}, true, true},  {{2, 33, 3, 10}, true, false},
};

class KernelNormRope : public testing::TestWithParam<lk_dtype> {
 protected:
  struct Operands {
    reference::Rope turn;
    Angles angles;
    Tensor x, weight, dy;
  };
  // The weight is float32 whatever the rest is.
  Operands operands(const Form& form) {
    const reference::Rope turn{form.x, form.own_tables, form.interleaved};
    return {turn, Angles(turn), tensor(form.x, GetParam(), 2), tensor({form.x[3]}, LK_F32, 1.5),
            tensor(form.x, GetParam(), 1)};
  }
  Tensor tensor(const Shape& shape, lk_dtype type, double high) {
    return random_tensor(context.get(), random, shape, type, high - 2, high);
  }
  Values load(const Tensor& t) { return t.load(context.get()); }
  Tensor empty(const Shape& shape, lk_dtype type) { return poisoned(context.get(), shape, type); }

  static lk_rms_norm_rope_params forward(const Operands& o, const Tensor& y) {
    return {.x = o.x.view(),
            .weight = o.weight.view(),
            .cos = o.angles.cos.view(),
            .sin = o.angles.sin.view(),
            .y = y.view(),
            .eps = eps,
            .interleaved = o.turn.interleaved};
  }
  static lk_rms_norm_rope_backward_params backward(const Operands& o, const Tensor& dx) {
    return {.dy = o.dy.view(),
            .x = o.x.view(),
            .weight = o.weight.view(),
            .cos = o.angles.cos.view(),
            .sin = o.angles.sin.view(),
            .eps = eps,
            .interleaved = o.turn.interleaved,
            .dx = dx.view()};
  }
  template <class Params>
  void run(lk_status (*function)(lk_context*, const Params*), const Params& p) {
    ASSERT_EQ(function(context.get(), &p), LK_OK) << lk_last_error(context.get());
  }

  // y, and with g = rope^-1(dy) w:  dx = r (g - x r^2 mean(g x))
  Values result(const Operands& o, const Values& weight) {
    const reference::Norm law{o.turn.x, static_cast<double>(eps), false};
    return reference::rope(o.turn, reference::norm(law, load(o.x), weight, {}), o.angles.cosines, o.angles.sines);
  }
  Values gradient(const Operands& o, const Values& weight) {
    Values back = o.angles.sines;
    for (double& sine : back) sine = -sine;
    return gradient(o, weight, reference::rope(o.turn, load(o.dy), o.angles.cosines, back));
  }
  // g: dy turned back
  Values gradient(const Operands& o, const Values& weight, Values g) {
    const Values x = load(o.x);
    const auto width = static_cast<size_t>(o.turn.x[3]);
    for (size_t row = 0; row < x.size(); row += width) {
      double squares = 0, product = 0;
      for (size_t i = row; i < row + width; ++i) {
        if (!weight.empty()) g[i] *= weight[i - row];
        squares += x[i] * x[i];
        product += g[i] * x[i];
      }
      const double r = 1 / std::sqrt(squares / static_cast<double>(width) + static_cast<double>(eps));
      for (size_t i = row; i < row + width; ++i)
        g[i] = r * (g[i] - x[i] * r * r * product / static_cast<double>(width));
    }
    return g;
  }

  Context context = make_context();
  std::mt19937 random{13};
};

TEST_P(KernelNormRope, MatchesFormulas) {
  for (const Form& form : forms) {
    const Operands o = operands(form);
    const Values weight = load(o.weight);
    SCOPED_TRACE(testing::Message() << "width " << form.x[3] << ", interleaved " << form.interleaved);
    const Tensor y = empty(form.x, GetParam()), dx = empty(form.x, GetParam());
    run(lk_rms_norm_rope, forward(o, y));
    expect_near("y", load(y), result(o, weight), GetParam(), form.x[3]);
    run(lk_rms_norm_rope_backward, backward(o, dx));
    expect_near("dx", load(dx), gradient(o, weight), GetParam(), form.x[3]);

    lk_rms_norm_rope_params plain = forward(o, y);
    lk_rms_norm_rope_backward_params plain_back = backward(o, dx);
    plain.weight = plain_back.weight = {};
    run(lk_rms_norm_rope, plain);
    expect_near("y without weight", load(y), result(o, {}), GetParam(), form.x[3]);
    run(lk_rms_norm_rope_backward, plain_back);
    expect_near("dx without weight", load(dx), gradient(o, {}), GetParam(), form.x[3]);
  }
}

// Results in another type than the tensors', and everything one element behind an aligned place.
TEST_P(KernelNormRope, OtherTypesAndPlaces) {
  for (const Form& form : forms) {
    const Operands o = operands(form);
    const Values weight = load(o.weight);
    const lk_dtype other = GetParam() == LK_F32 ? LK_BF16 : LK_F32;
    const Tensor y = empty(form.x, other), dx = empty(form.x, other);
    run(lk_rms_norm_rope, forward(o, y));
    expect_near("y", load(y), result(o, weight), other, form.x[3]);
    run(lk_rms_norm_rope_backward, backward(o, dx));
    expect_near("dx", load(dx), gradient(o, weight), other, form.x[3]);

    const Tensor room = empty({count_of(form.x) + 1}, GetParam());
    const auto behind = [&](const Tensor& dense) {
      lk_tensor t = dense.view();
      t.data = static_cast<char*>(room.view().data) + lk_dtype_size(t.dtype);
      return t;
    };
    const auto values_behind = [&] {
      const Values all = load(room);
      EXPECT_TRUE(std::isnan(all[0]));
      return Values(all.begin() + 1, all.end());
    };
    lk_rms_norm_rope_params p = forward(o, y);
    p.y = behind(o.x);
    run(lk_rms_norm_rope, p);
    expect_near("y behind", values_behind(), result(o, weight), GetParam(), form.x[3]);
    lk_rms_norm_rope_backward_params back = backward(o, dx);
    back.dx = behind(o.x);
    run(lk_rms_norm_rope_backward, back);
    expect_near("dx behind", values_behind(), gradient(o, weight), GetParam(), form.x[3]);
  }
}

TEST_P(KernelNormRope, EqualCallsGiveEqualBits) {
  for (const Form& form : forms) {
    const Operands o = operands(form);
    const Tensor y = empty(form.x, GetParam()), again = empty(form.x, GetParam());
    run(lk_rms_norm_rope, forward(o, y));
    run(lk_rms_norm_rope, forward(o, again));
    EXPECT_EQ(y.bytes(), again.bytes());
    run(lk_rms_norm_rope_backward, backward(o, y));
    run(lk_rms_norm_rope_backward, backward(o, again));
    EXPECT_EQ(y.bytes(), again.bytes());
  }
}

TEST_P(KernelNormRope, RefusesTablesOfAnotherShapeAndOverlap) {
  const Operands o = operands({{2, 3, 2, 16}, false, true});
  const Tensor y = empty(o.turn.x, GetParam());
  const std::vector<unsigned char> before = y.bytes();
  const auto refused = [&](auto function, auto params, const auto& change, const char* why) {
    change(params);
    EXPECT_EQ(function(context.get(), &params), LK_E_INVALID);
    EXPECT_THAT(lk_last_error(context.get()), HasSubstr(why));
  };
  const auto both = [&](const auto& change, const std::string& why) {
    refused(lk_rms_norm_rope, forward(o, y), change, ("rms_norm_rope: " + why).c_str());
    refused(lk_rms_norm_rope_backward, backward(o, y), change, ("rms_norm_rope_backward: " + why).c_str());
  };
  both([](auto& p) { p.cos.dims[0] = 2; }, "cos: expected shape [3, 8], found [2, 8]");
  both([](auto& p) { p.sin.dims[1] = 4; }, "sin: expected shape [3, 8], found [3, 4]");
  both([](auto& p) { p.cos.dims[1] = p.sin.dims[1] = 16; }, "cos: expected an angle for each pair of neighbours");
  both([](auto& p) { p.cos.dtype = LK_F16; }, "cos: expected");
  both([](auto& p) { p.weight.dims[0] = 8; }, "weight: expected");
  both([](auto& p) { p.x.dims[3] = 15; }, "x: expected an even last axis");
  both([](auto& p) { p.x.rank = 3; }, "x: expected");
  both([](auto& p) { p.eps = -1; }, "eps: expected at least 0");
  refused(
      lk_rms_norm_rope, forward(o, y), [](auto& p) { p.y = p.x; }, "rms_norm_rope: y: expected");
  refused(
      lk_rms_norm_rope_backward, backward(o, y), [](auto& p) { p.dx = p.dy; }, "rms_norm_rope_backward: dx: expected");
  EXPECT_EQ(y.bytes(), before);
}

// Tables as wide as heads: an angle for each number of a pair. Each half of the result is that of a rotation by one
// half of the tables; what goes back is the transposed matrix.
TEST_P(KernelNormRope, AnglesOfEachNumber) {
  for (const Form& form : forms) {
    if (form.interleaved) continue;
    const Operands o = operands(form);
    const int64_t width = form.x[3], half = width / 2;
    const Shape table = form.own_tables ? Shape{form.x[0], form.x[1], width} : Shape{form.x[1], width};
    const Tensor cos = random_tensor(context.get(), random, table, LK_F32, -1, 1),
                 sin = random_tensor(context.get(), random, table, LK_F32, -1, 1);
    // The columns [first, first + half) of a table.
    const auto cut = [&](const Tensor& t, int64_t first) {
      const Values all = load(t);
      Values part;
      for (int64_t i = 0; i < static_cast<int64_t>(all.size()); ++i)
        if (i % width >= first && i % width < first + half) part.push_back(all[static_cast<size_t>(i)]);
      return part;
    };
    const auto halves = [&](const Values& x, const Values& first, const Values& second) {
      Values y = first;
      for (size_t i = 0; i < x.size(); ++i)
        if (static_cast<int64_t>(i) % width >= half) y[i] = second[i];
      return y;
    };
    const Values cos_a = cut(cos, 0), cos_b = cut(cos, half), sin_a = cut(sin, 0), sin_b = cut(sin, half);
    const auto turned = [&](const Values& x, bool inverse) {
      Values to_a = inverse ? sin_b : sin_a, to_b = inverse ? sin_a : sin_b;
      for (Values* sines : {&to_a, &to_b})
        for (double& sine : *sines) sine = inverse ? -sine : sine;
      return halves(x, reference::rope(o.turn, x, cos_a, to_a), reference::rope(o.turn, x, cos_b, to_b));
    };
    SCOPED_TRACE(testing::Message() << "width " << width);
    const Values weight = load(o.weight);
    const Tensor y = empty(form.x, GetParam()), dx = empty(form.x, GetParam());
    for (const bool weighted : {true, false}) {
      lk_rms_norm_rope_params p = forward(o, y);
      lk_rms_norm_rope_backward_params back = backward(o, dx);
      p.cos = back.cos = cos.view();
      p.sin = back.sin = sin.view();
      if (!weighted) p.weight = back.weight = {};
      const Values w = weighted ? weight : Values{};
      run(lk_rms_norm_rope, p);
      const reference::Norm law{form.x, static_cast<double>(eps), false};
      expect_near("y", load(y), turned(reference::norm(law, load(o.x), w, {}), false), GetParam(), width);
      run(lk_rms_norm_rope_backward, back);
      expect_near("dx", load(dx), gradient(o, w, turned(load(o.dy), true)), GetParam(), width);
    }
    for (const int32_t inverse : {0, 1}) {
      const lk_rope_params p{
          .x = o.dy.view(), .cos = cos.view(), .sin = sin.view(), .y = y.view(), .interleaved = 0, .inverse = inverse};
      ASSERT_EQ(lk_rope(context.get(), &p), LK_OK) << lk_last_error(context.get());
      expect_near("rope", load(y), turned(load(o.dy), inverse != 0), GetParam(), width);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, KernelNormRope, testing::Values(LK_F32, LK_F16, LK_BF16),
                         [](const auto& info) { return std::string(lk_dtype_name(info.param)); });

}  // namespace
}  // namespace lk_test::kernels_rms_norm_rope_test
