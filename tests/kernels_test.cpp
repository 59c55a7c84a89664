// Every differentiable operation of liblora_kernels against a plain float64 loop, in f32, f16 and bf16. Gradients are
// compared with central differences of that same loop, so a case needs one reference only.
#include <gtest/gtest.h>

#include "support/kernel_cases.h"

namespace lk_test::kernels_test {
namespace {

// The derivative of sum(dy * reference) by input `input`, element `element`; the references are smooth and of order
// one, so a step of 1e-5 leaves about 1e-10 of error.
double difference(const Case& c, Inputs values, const Values& dy, size_t input, size_t element) {
  constexpr double step = 1e-5;
  double result = 0;
  const double center = values[input][element];
  for (const double sign : {1.0, -1.0}) {
    values[input][element] = center + sign * step;
    const Values y = c.changed ? c.changed(values, input, element) : c.reference(values);
    for (size_t i = 0; i < y.size(); ++i) result += sign * dy[i] * y[i] / (2 * step);
  }
  return result;
}

class KernelOps : public testing::TestWithParam<lk_dtype> {
 protected:
  void SetUp() override {
    context = make_context();
    random.seed(20240501);
  }
  Inputs make_inputs(const Case& c) {
    Inputs values;
    storage.clear();
    views.clear();
    for (const Shape& shape : c.inputs) {
      storage.push_back(random_tensor(context.get(), random, shape, GetParam(), c.low, c.high));
      values.push_back(storage.back().load(context.get()));
      views.push_back(storage.back().view());
    }
    return values;
  }
  lk_dtype output_type(const Case& c) const { return count_of(c.output) == 1 ? LK_F32 : GetParam(); }

  Context context;
  std::mt19937 random;
  std::vector<Tensor> storage;
  Views views;
};

TEST_P(KernelOps, ForwardMatchesFloat64) {
  for (const Case& c : all_cases()) {
    const Inputs values = make_inputs(c);
    const Tensor y = poisoned(context.get(), c.output, output_type(c));
    ASSERT_EQ(c.forward(context.get(), views, y.view()), LK_OK) << lk_last_error(context.get());
    expect_near(c.name, y.load(context.get()), c.reference(values), output_type(c), c.depth, c.inner);
  }
}

TEST_P(KernelOps, GradientsMatchDifferences) {
  for (const Case& c : all_cases()) {
    const Inputs values = make_inputs(c);
    Tensor dy = random_tensor(context.get(), random, c.output, output_type(c), -1, 1);
    if (count_of(c.output) == 1 && c.name != "linear") dy.store(context.get(), {1.0});
    const Values dy_values = dy.load(context.get());
    const Tensor y = poisoned(context.get(), c.output, output_type(c));
    std::vector<Tensor> grads;
    Views grad_views;
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      grads.push_back(poisoned(context.get(), c.inputs[i], GetParam()));
      grad_views.push_back(c.differentiable[i] ? grads[i].view() : lk_tensor{});
    }
    ASSERT_EQ(c.backward(context.get(), views, y.view(), dy.view(), grad_views), LK_OK)
        << c.name << ": " << lk_last_error(context.get());
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      if (!c.differentiable[i]) continue;
      const Values got = grads[i].load(context.get());
      // A sample of the elements against differences; all of them for having been written at all.
      const size_t stride = std::max<size_t>(1, got.size() / 24);
      Values found, expected;
      for (size_t e = random() % stride; e < got.size(); e += stride) {
        found.push_back(got[e]);
        expected.push_back(difference(c, values, dy_values, i, e));
      }
      for (const double value : got) ASSERT_TRUE(std::isfinite(value)) << c.name << " gradient " << i;
      const double noise = 1e-8;  // of the differences
      for (size_t e = 0; e < found.size(); ++e) {
        const double largest = std::max(largest_of(got), 1e-2);  // of all, not of the sample
        ASSERT_NEAR(found[e], expected[e], tolerance(GetParam(), expected[e], largest, c.depth, c.inner) + noise)
            << c.name << " gradient of input " << i << ", sample " << e;
      }
    }
  }
}

TEST_P(KernelOps, BrokenArgumentsAreNamedAndNothingIsWritten) {
  for (const Case& c : all_cases()) {
    make_inputs(c);
    const Tensor y = poisoned(context.get(), c.output, output_type(c));
    const std::vector<unsigned char> before = y.bytes();
    lk_tensor wrong = y.view();
    wrong.dims[wrong.rank - 1] += 1;
    EXPECT_EQ(c.forward(context.get(), views, wrong), LK_E_INVALID) << c.name;
    EXPECT_NE(std::string(lk_last_error(context.get())).find("expected"), std::string::npos) << c.name;
    Views missing = views;
    missing[0].data = nullptr;
    EXPECT_EQ(c.forward(context.get(), missing, y.view()), LK_E_INVALID) << c.name;
    EXPECT_NE(std::string(lk_last_error(context.get())).find("data NULL"), std::string::npos) << c.name;
    missing = views;
    missing[0].dtype = LK_I64;
    EXPECT_EQ(c.forward(context.get(), missing, y.view()), LK_E_INVALID) << c.name;
    EXPECT_EQ(before, y.bytes()) << c.name;
  }
}

TEST_P(KernelOps, EqualCallsGiveEqualBits) {
  for (const Case& c : {linear_case(257, 257, 257), attention_case({2, 129, 257, 4, 16}), norm_case(2, 257, 64, 32),
                        conv_case(2, 33, 31, 8, 8, 3, 1, 1)}) {
    make_inputs(c);
    const Tensor first = poisoned(context.get(), c.output, GetParam());
    ASSERT_EQ(c.forward(context.get(), views, first.view()), LK_OK);
    for (int repeat = 0; repeat < 5; ++repeat) {
      const Tensor again = poisoned(context.get(), c.output, GetParam());
      ASSERT_EQ(c.forward(context.get(), views, again.view()), LK_OK);
      ASSERT_EQ(first.bytes(), again.bytes()) << c.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, KernelOps, testing::Values(LK_F32, LK_F16, LK_BF16),
                         [](const auto& info) { return std::string(lk_dtype_name(info.param)); });

}  // namespace

}  // namespace lk_test::kernels_test
