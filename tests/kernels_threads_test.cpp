// The CPU's results have the same bits with any number of threads.
#include <functional>

#include "support/kernel_tensors.h"

namespace lk_test::kernels_threads_test {
namespace {

class Threads : public Kernels {
 protected:
  // Runs the op with several numbers of threads; y is what it writes.
  void expect_same(const std::string& what, const Tensor& y, const std::function<lk_status(lk_context*)>& op) {
    std::vector<unsigned char> first;
    for (const int32_t threads : {1, 2, 3, 7, 16}) {
      const Context own = make_context(threads);
      ASSERT_EQ(op(own.get()), LK_OK) << what << ": " << lk_last_error(own.get());
      const std::vector<unsigned char> bytes = y.bytes();
      if (first.empty()) first = bytes;
      EXPECT_TRUE(bytes == first) << what << " with " << threads << " threads";
    }
  }
  Tensor any(const Shape& shape, lk_dtype type = LK_F32) {
    return random_tensor(context.get(), random, shape, type, -1, 1);
  }
  Tensor out(const Shape& shape) { return poisoned(context.get(), shape, LK_F32); }
  void expect_same_layer(lk_dtype type, int64_t rows, int64_t cols, int64_t depth);
};

TEST_F(Threads, Sums) {
  if (lh::test::tested_device() != "cpu") GTEST_SKIP() << "the CPU's threads";
  struct Row {
    Shape x, y;
  };
  for (const auto& [from, to] :
       {Row{{3, 50000}, {3, 1}}, Row{{40, 9000}, {40, 1}}, Row{{2, 700, 65}, {2, 1, 65}},
        Row{{20, 700, 65}, {20, 1, 65}}, Row{{5000, 33}, {1, 33}}, Row{{300, 7, 90}, {1, 7, 1}}}) {
    const Tensor x = any(from), y = out(to);
    expect_same("reduce_sum of " + testing::PrintToString(from), y, [&](lk_context* c) {
      const lk_reduce_sum_params p{.x = x.view(), .y = y.view(), .scale = 1};
      return lk_reduce_sum(c, &p);
    });
  }
}

void Threads::expect_same_layer(lk_dtype type, int64_t rows, int64_t cols, int64_t depth) {
  const std::string what = lk_dtype_name(type) + (" " + testing::PrintToString(Shape{rows, cols, depth}));
  const Tensor x = any({rows, depth}, type), weight = any({cols, depth}, type), bias = any({cols}, type);
  const Tensor y = out({rows, cols});
  expect_same("linear " + what, y, [&](lk_context* c) {
    const lk_linear_params p{.x = x.view(),
                             .weight = weight.view(),
                             .weight_scale = {},
                             .bias = bias.view(),
                             .y = y.view(),
                             .products = LK_PRODUCTS_WIDE};
    return lk_linear(c, &p);
  });
  const Tensor dy = any({rows, cols}, type), dx = out({rows, depth}), dweight = out({cols, depth}), dbias = out({cols});
  for (const Tensor* result : {&dx, &dweight, &dbias})
    expect_same("linear_backward " + what, *result, [&](lk_context* c) {
      const lk_linear_backward_params p{.dy = dy.view(),
                                        .x = x.view(),
                                        .weight = weight.view(),
                                        .weight_scale = {},
                                        .dx = dx.view(),
                                        .dweight = dweight.view(),
                                        .dbias = dbias.view()};
      return lk_linear_backward(c, &p);
    });
}

// Sizes around the blocks that a product is cut into, and of LoRA's narrow matrices; by either library.
TEST_F(Threads, Products) {
  if (lh::test::tested_device() != "cpu") GTEST_SKIP() << "the CPU's threads";
  for (const lk_dtype type : {LK_F32, LK_BF16})
    for (const int64_t rows : {31, 96, 250, 700})
      for (const int64_t cols : {4, 100, 333})
        for (const int64_t depth : {64, 300}) expect_same_layer(type, rows, cols, depth);
  // A batch that feeds all threads or not.
  for (const int64_t batch : {1, 2, 5, 20}) {
    const Tensor a = any({batch, 150, 70}), b = any({batch, 70, 110}), c = out({batch, 150, 110});
    expect_same("matmul of " + std::to_string(batch), c, [&](lk_context* context) {
      const lk_matmul_params p{.a = a.view(), .b = b.view(), .c = c.view(), .transpose_a = 0, .transpose_b = 0};
      return lk_matmul(context, &p);
    });
  }
}

}  // namespace
}  // namespace lk_test::kernels_threads_test
