// lk_matmul of batches with one matrix in common, and of which the sum is wanted: the shapes that kernels of our own
// take on a GPU, and those that they leave to others.
#include <array>

#include "support/kernel_tensors.h"
#include "support/reference/products.h"

namespace lk_test::kernels_matmul_batches_test {
namespace {

enum class Single { a, b, c };  // which has one matrix for all; c: the sum

struct Batches {
  Single single;
  int64_t batch, m, k, n;
  bool transpose_a = false, transpose_b = false;
};

std::string text(const Batches& c) {
  return std::string("single ") + "abc"[static_cast<int>(c.single)] + ", " + std::to_string(c.batch) + " of " +
         std::to_string(c.m) + " x " + std::to_string(c.k) + " x " + std::to_string(c.n) +
         (c.transpose_a ? " at" : "") + (c.transpose_b ? " bt" : "");
}

Values repeated(const Values& one, int64_t times) {
  Values all;
  for (int64_t i = 0; i < times; ++i) all.insert(all.end(), one.begin(), one.end());
  return all;
}

Values expected(const Batches& c, Values a, Values b) {
  if (c.single == Single::a) a = repeated(a, c.batch);
  if (c.single == Single::b) b = repeated(b, c.batch);
  const Values all = reference::matmul({c.batch, c.m, c.k, c.n, c.transpose_a, c.transpose_b}, a, b);
  if (c.single != Single::c) return all;
  Values sum(static_cast<size_t>(c.m * c.n));
  for (size_t i = 0; i < all.size(); ++i) sum[i % sum.size()] += all[i];
  return sum;
}

class MatmulOfBatches : public Kernels {
 protected:
  // Of values that 8 bits of a bf16 hold, so that rounding an operand changes nothing.
  Tensor operand(const Shape& shape, lk_dtype dtype) {
    const Tensor rounded = random_tensor(context.get(), random, shape, LK_BF16, -1, 1);
    Tensor tensor(shape, dtype);
    tensor.store(context.get(), load(rounded));
    return tensor;
  }

  void expect_product(const Batches& c, lk_dtype a_type, lk_dtype b_type, lk_dtype c_type) {
    SCOPED_TRACE(text(c) + ", " + lk_dtype_name(a_type) + " " + lk_dtype_name(b_type) + " to " + lk_dtype_name(c_type));
    const auto matrices = [&](Single which, int64_t rows, int64_t columns, bool transposed) {
      const int64_t count = c.single == which ? 1 : c.batch;
      return transposed ? Shape{1, count, columns, rows} : Shape{1, count, rows, columns};
    };
    const Tensor a = operand(matrices(Single::a, c.m, c.k, c.transpose_a), a_type);
    const Tensor b = operand(matrices(Single::b, c.k, c.n, c.transpose_b), b_type);
    const Shape shape = matrices(Single::c, c.m, c.n, false);
    std::array<Tensor, 2> results = {poisoned(context.get(), shape, c_type), poisoned(context.get(), shape, c_type)};
    for (const Tensor& result : results) {
      const lk_matmul_params p{
          .a = a.view(), .b = b.view(), .c = result.view(), .transpose_a = c.transpose_a, .transpose_b = c.transpose_b};
      ASSERT_EQ(lk_matmul(context.get(), &p), LK_OK) << lk_last_error(context.get());
    }
    expect_near("c", load(results[0]), expected(c, load(a), load(b)), c_type,
                c.k * (c.single == Single::c ? c.batch : 1));
    EXPECT_EQ(results[0].bytes(), results[1].bytes());
  }
};

// Columns in pieces of 8 and not; sizes within a tile, of several and beyond what shared memory holds; more tiles than
// blocks.
TEST_F(MatmulOfBatches, OneLeftForAll) {
  for (const Batches& c : {Batches{Single::a, 3, 8, 8, 384},
                           {Single::a, 37, 48, 64, 64},
                           {Single::a, 5, 1, 1, 8},
                           {Single::a, 7, 17, 33, 40},
                           {Single::a, 3, 144, 48, 72},
                           {Single::a, 2, 48, 144, 136},
                           {Single::a, 3, 31, 130, 264},
                           {Single::a, 2, 7, 250, 16},
                           {Single::a, 2, 250, 251, 24},
                           {Single::a, 2, 5, 300, 8},
                           {Single::a, 5, 33, 31, 7},
                           {Single::a, 2100, 16, 5, 8},
                           {Single::a, 301, 8, 8, 1288},
                           {Single::a, 3, 64, 16, 520}})
    for (const bool transposed : {false, true}) {
      Batches product = c;
      product.transpose_a = transposed;
      for (const lk_dtype type : {LK_F32, LK_F16, LK_BF16}) {
        expect_product(product, type, type, type);
        if (type != LK_F32) expect_product(product, LK_F32, type, type);
      }
      expect_product(product, LK_BF16, LK_F16, LK_F32);
    }
  expect_product({Single::a, 3, 5, 7, 16, false, true}, LK_BF16, LK_BF16, LK_BF16);
}

TEST_F(MatmulOfBatches, OneRightForAll) {
  for (const bool transpose_a : {false, true})
    for (const bool transpose_b : {false, true})
      for (const lk_dtype type : {LK_F32, LK_F16, LK_BF16})
        for (const Batches& c : {Batches{Single::b, 5, 31, 33, 7}, {Single::b, 3, 8, 16, 24}})
          expect_product({c.single, c.batch, c.m, c.k, c.n, transpose_a, transpose_b}, type, type, type);
}

// Each form of the kernel, with rows that fill a tile and that do not, batches of fewer tiles than stages and of many.
TEST_F(MatmulOfBatches, Sums) {
  for (const Batches& c : {Batches{Single::c, 3, 8, 384, 8},
                           {Single::c, 2, 16, 8, 16},
                           {Single::c, 1200, 5, 264, 13},
                           {Single::c, 37, 48, 64, 64},
                           {Single::c, 1100, 64, 40, 33},
                           {Single::c, 2, 17, 8, 1},
                           {Single::c, 5, 2, 72, 64},
                           {Single::c, 9, 144, 48, 48},
                           {Single::c, 3, 65, 136, 128},
                           {Single::c, 2, 300, 24, 131},
                           {Single::c, 700, 70, 16, 30},
                           {Single::c, 3, 31, 33, 7},
                           {Single::c, 70, 65, 5, 67}}) {
    for (const lk_dtype type : {LK_F32, LK_F16, LK_BF16}) {
      expect_product({c.single, c.batch, c.m, c.k, c.n, false, true}, type, type, LK_F32);
      expect_product({c.single, c.batch, c.m, c.k, c.n, false, true}, type, type, type);
    }
    if (c.batch < 100)
      for (const int layout : {0, 1, 3})
        expect_product({c.single, c.batch, c.m, c.k, c.n, (layout & 1) != 0, (layout & 2) != 0}, LK_BF16, LK_F16,
                       LK_F32);
  }
  for (const lk_dtype type : {LK_F32, LK_F16, LK_BF16})
    expect_product({Single::c, 5, 7, 31, 33, true, false}, type, type, LK_F32);
}

TEST_F(MatmulOfBatches, RefusesOtherLeadingAxes) {
  const Tensor a({2, 1, 3, 5}, LK_F32), b({2, 4, 5, 7}, LK_F32), c({2, 4, 3, 7}, LK_F32);
  const lk_matmul_params p{.a = a.view(), .b = b.view(), .c = c.view()};
  EXPECT_EQ(lk_matmul(context.get(), &p), LK_E_INVALID);
  EXPECT_STREQ(lk_last_error(context.get()), "matmul: b: expected shape [2, 1, 5, 7], found [2, 4, 5, 7]");
}

}  // namespace

}  // namespace lk_test::kernels_matmul_batches_test
