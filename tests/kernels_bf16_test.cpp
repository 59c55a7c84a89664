// Products of bf16 matrices with results in float32, which show what bf16 results would round away. On the CPU they are
// oneDNN's where the processor has instructions for them, else OpenBLAS's of widened values; both are held to the
// bounds of a sum in float32.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "support/kernel_tensors.h"
#include "support/reference/products.h"
#include "support/run_host.h"

namespace lk_test::kernels_bf16_test {
namespace {

class KernelsBf16 : public Kernels {
 protected:
  void SetUp() override {
    if (lh::test::tested_device() != "cpu") GTEST_SKIP() << "the CPU's products";
  }
  Tensor drawn(const Shape& shape) { return random_tensor(context.get(), random, shape, LK_BF16, -1, 1); }
  Tensor stored(const Shape& shape, const Values& values) {
    Tensor tensor(shape, LK_BF16);
    tensor.store(context.get(), values);
    return tensor;
  }
  Tensor empty(const Shape& shape) { return poisoned(context.get(), shape, LK_F32); }
  Tensor linear(const Tensor& x, const Tensor& weight, const lk_tensor& bias, const Shape& shape) {
    const Tensor y = empty(shape);
    const lk_linear_params p{.x = x.view(), .weight = weight.view(), .bias = bias, .y = y.view()};
    EXPECT_EQ(lk_linear(context.get(), &p), LK_OK) << lk_last_error(context.get());
    return y;
  }
};

// One row and few, widths that are odd and that fill blocks, parts cut over rows and over columns.
TEST_F(KernelsBf16, ProductsAreSumsInFloat32) {
  for (const int64_t rows : {1, 8, 33, 250})
    for (const auto& [in, out] : {std::pair<int64_t, int64_t>{1, 1}, {31, 7}, {130, 9}, {33, 517}, {256, 144}}) {
      SCOPED_TRACE(testing::PrintToString(Shape{rows, in, out}));
      const Tensor x = drawn({rows, in}), weight = drawn({out, in}), bias = drawn({out}), dy = drawn({rows, out});
      const Values x_in = load(x), weights = load(weight), dy_in = load(dy);
      for (const lk_tensor& added : {lk_tensor{}, bias.view()}) {
        const Values of_bias = added.data == nullptr ? Values{} : load(bias);
        expect_near("y", load(linear(x, weight, added, {rows, out})),
                    reference::linear(x_in, weights, of_bias, in, out), LK_F32, in);
      }
      const Tensor dx = empty({rows, in}), dweight = empty({out, in}), dbias = empty({out});
      const lk_linear_backward_params p{.dy = dy.view(),
                                        .x = x.view(),
                                        .weight = weight.view(),
                                        .dx = dx.view(),
                                        .dweight = dweight.view(),
                                        .dbias = dbias.view()};
      ASSERT_EQ(lk_linear_backward(context.get(), &p), LK_OK) << lk_last_error(context.get());
      expect_near("dx", load(dx), reference::matmul({1, rows, out, in, false, false}, dy_in, weights), LK_F32, out);
      expect_near("dweight", load(dweight), reference::matmul({1, out, rows, in, true, false}, dy_in, x_in), LK_F32,
                  rows);
      const Values ones(static_cast<size_t>(rows), 1.0);
      expect_near("dbias", load(dbias), reference::matmul({1, 1, rows, out, false, false}, ones, dy_in), LK_F32, rows);
    }
}

// dx begins as `added`, to which the frozen product and the adapter's share come.
TEST_F(KernelsBf16, GradientsOfAdaptersAreAddedUp) {
  constexpr int64_t rows = 130, in = 48, out = 33, rank = 5;
  constexpr double scale = 0.5;
  const auto floats_of = [&](const Shape& shape) { return random_tensor(context.get(), random, shape, LK_F32, -1, 1); };
  const Tensor x = drawn({rows, in}), dy = drawn({rows, out}), weight = drawn({out, in}), added = floats_of({rows, in});
  const Tensor down = floats_of({rank, in}), up = floats_of({out, rank}), dx = empty({rows, in});
  lk_lora_backward_params p{};
  p.dy = dy.view(), p.x = x.view(), p.weight = weight.view(), p.down = down.view(), p.up = up.view();
  p.scale = scale, p.dx = dx.view(), p.added = added.view();
  ASSERT_EQ(lk_lora_backward(context.get(), &p), LK_OK) << lk_last_error(context.get());
  Values want = reference::matmul({1, rows, out, in, false, false}, load(dy), load(weight));
  const Values ds = reference::matmul({1, rows, out, rank, false, false}, load(dy), load(up));
  const Values share = reference::matmul({1, rows, rank, in, false, false}, ds, load(down)), before = load(added);
  for (size_t i = 0; i < want.size(); ++i) want[i] += scale * share[i] + before[i];
  expect_near("dx", load(dx), want, LK_F32, out + rank + 1);
}

TEST_F(KernelsBf16, NanAndInfinityPropagate) {
  constexpr int64_t in = 3, out = 2;
  const double large = std::ldexp(1.0, 100);
  const Values x_in{1, 2, 3, NAN, 0, 0, INFINITY, 1, 1, INFINITY, 1, -INFINITY, large, 0, 0};
  const Values weights{large, 1, 1, 0, -1, 2};
  const Values want = reference::linear(x_in, weights, {}, in, out);
  const Values got = load(linear(stored({5, in}, x_in), stored({out, in}, weights), {}, {5, out}));
  for (size_t i = 0; i < want.size(); ++i) {
    const auto expected = static_cast<float>(want[i]);
    if (std::isnan(expected))
      EXPECT_TRUE(std::isnan(got[i])) << i;
    else
      EXPECT_EQ(got[i], expected) << i;
  }
}

// The instructions of bf16 take what is below the smallest normal number as zero; that is all they take away.
TEST_F(KernelsBf16, SmallNumbersAreKeptOrZero) {
  for (const int exponent : {-133, -127, -126, -100}) {
    const double small = std::ldexp(1.0, exponent), by = 1024;
    const double got = load(linear(stored({1, 1}, {small}), stored({1, 1}, {by}), {}, {1, 1})).front();
    EXPECT_TRUE(got == small * by || (exponent < -126 && got == 0 && has_onednn())) << exponent << ": " << got;
  }
}

// oneDNN makes its code when a shape is first seen, and writes it through a null pointer where there is no memory.
TEST_F(KernelsBf16, TooLittleMemoryForItsCodeIsAnError) {
  if (lh::test::sanitized) GTEST_SKIP() << "the sanitizer takes terabytes of address space";
  const Tensor x = drawn({100, 71}), weight = drawn({113, 71}), y = empty({100, 113});
  const lk_linear_params p{.x = x.view(), .weight = weight.view(), .y = y.view()};
  const Context alone = make_context(1);  // a child has no threads of its parent's
  for (const rlim_t more : {0, 1 << 18, 1 << 20, 1 << 22, 1 << 24}) {
    const auto ends = [&](int status) {
      const int code = WEXITSTATUS(status);
      return WIFEXITED(status) && (code == LK_E_MEMORY || (code == LK_OK && !has_onednn()));
    };
    const auto run = [&] {
      rlim_t pages = 0;
      std::ifstream("/proc/self/statm") >> pages;
      const rlim_t bytes = pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + more;
      const rlimit limit{bytes, bytes};
      ::setrlimit(RLIMIT_AS, &limit);
      std::_Exit(lk_linear(alone.get(), &p));
    };
    EXPECT_EXIT(run(), ends, "") << more << " bytes";
  }
}

}  // namespace
}  // namespace lk_test::kernels_bf16_test
