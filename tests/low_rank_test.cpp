// Approximations of small rank, of matrices whose singular vectors and values are known.
#include "lora/low_rank.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace lh::low_rank_test {
namespace {

// sum_i values[i] u_i v_i^T, with vectors of the cosine transform, which are orthonormal.
struct Known {
  int64_t rows, columns;
  std::vector<double> values;

  static double vector(int64_t side, int64_t number, int64_t at) {
    const double angle = std::numbers::pi * (static_cast<double>(at) + 0.5) * static_cast<double>(number + 1);
    return std::sqrt(2.0 / static_cast<double>(side)) * std::cos(angle / static_cast<double>(side));
  }
  std::vector<double> sum(size_t first, size_t end) const {
    std::vector<double> out(static_cast<size_t>(rows * columns)), right(static_cast<size_t>(columns));
    for (size_t i = first; i < end; ++i) {
      const auto number = static_cast<int64_t>(i);
      for (int64_t c = 0; c < columns; ++c) right[static_cast<size_t>(c)] = vector(columns, number, c);
      for (int64_t r = 0; r < rows; ++r) {
        const double left = values[i] * vector(rows, number, r);
        double* row = out.data() + r * columns;
        for (size_t c = 0; c < right.size(); ++c) row[c] += left * right[c];
      }
    }
    return out;
  }
  std::vector<float> matrix() const {
    const std::vector<double> all = sum(0, values.size());
    return {all.begin(), all.end()};
  }
  // As up and down, mixed so that neither is orthogonal: left M, M^-1 right with M = one + a triangle.
  LoraProduct product() const {
    const size_t rank = values.size();
    LoraProduct out{std::vector<float>(static_cast<size_t>(rows) * rank),
                    std::vector<float>(rank * static_cast<size_t>(columns)), static_cast<int64_t>(rank)};
    for (int64_t r = 0; r < rows; ++r)
      for (size_t k = 0; k < rank; ++k) {
        double v = values[k] * vector(rows, static_cast<int64_t>(k), r);
        if (k > 0) v += 0.5 * values[k - 1] * vector(rows, static_cast<int64_t>(k - 1), r);
        out.left[static_cast<size_t>(r) * rank + k] = static_cast<float>(v);
      }
    for (int64_t c = 0; c < columns; ++c) {
      double next = 0;
      for (size_t k = rank; k-- > 0;) {
        next = vector(columns, static_cast<int64_t>(k), c) - 0.5 * next;
        out.right[k * static_cast<size_t>(columns) + static_cast<size_t>(c)] = static_cast<float>(next);
      }
    }
    return out;
  }
};

std::vector<double> falling(size_t count, double by) {
  std::vector<double> values;
  for (size_t i = 0; i < count; ++i) values.push_back(3 * std::pow(by, static_cast<double>(i)));
  return values;
}

double share(const std::vector<double>& values, size_t kept) {
  double all = 0, some = 0;
  for (size_t i = 0; i < values.size(); ++i) all += values[i] * values[i], some += i < kept ? values[i] * values[i] : 0;
  return some / all;
}

double distance(const LoraProduct& got, const std::vector<double>& want) {
  const std::vector<float> values = multiplied(got);
  double square = 0, all = 0;
  for (size_t i = 0; i < want.size(); ++i) square += std::pow(values[i] - want[i], 2), all += want[i] * want[i];
  return std::sqrt(square / all);
}

struct Case {
  const char* what;
  int64_t rows, columns;
  double by;  // each singular value to the one before
  RankChoice choice;
  int64_t rank;
  double tolerance;  // relative, of the whole matrix: float32 factors, and the iteration's own
};

// An iteration of 4 rounds leaves by^(2 * 4 + 1) of what lies `oversampling` values behind.
constexpr Case cases[] = {
    {"a few of a tall one", 40, 24, 0.5, {.rank = 5}, 5, 1e-6},
    {"a few of a wide one", 24, 40, 0.5, {.rank = 5}, 5, 1e-6},
    {"all", 40, 24, 0.8, {.rank = 16}, 12, 1e-6},
    {"a share", 40, 24, 0.5, {.energy = 0.99}, 4, 1e-6},  // 1 - 0.25^4 = 0.996, 1 - 0.25^3 = 0.984
    {"a whole share", 40, 24, 0.5, {.energy = 1}, 12, 1e-6},
    {"a share and a rank", 40, 24, 0.5, {.rank = 3, .energy = 0.99}, 3, 1e-6},
    {"a rank and more than the share", 40, 24, 0.5, {.rank = 9, .energy = 0.99}, 4, 1e-6},
    {"iterated", 500, 420, 0.7, {.rank = 8}, 8, 2e-6},
    {"iterated, wide", 420, 500, 0.7, {.rank = 8}, 8, 2e-6},
    {"exact, though large", 420, 500, 0.7, {.rank = 8, .exact = true}, 8, 1e-6}};

TEST(LowRank, IsTheBestOne) {
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    const Known known{c.rows, c.columns, falling(12, c.by)};
    const auto kept = static_cast<size_t>(c.rank);
    const std::vector<double> want = known.sum(0, kept);
    for (const bool factors : {true, false}) {
      SCOPED_TRACE(factors ? "of a product" : "of a matrix");
      RankChoice choice = c.choice;
      if (!factors && c.rank == 12) choice.rank = 12;  // a matrix of float32 has as many as its side, nearly all noise
      const LowRank got = factors ? low_rank(known.product(), choice) : low_rank(known.matrix(), c.rows, choice);
      ASSERT_EQ(got.product.rank, c.rank);
      EXPECT_LT(distance(got.product, want), c.tolerance);
      EXPECT_NEAR(got.kept, share(known.values, kept), 1e-6);
      EXPECT_NEAR(got.norm, std::sqrt(share(known.values, 12) * 9 * (1 - std::pow(c.by, 24)) / (1 - c.by * c.by)),
                  1e-4);
      for (int64_t k = 0; k < c.rank; ++k) {  // both sides have the root of the singular value
        double left = 0, right = 0;
        for (int64_t r = 0; r < c.rows; ++r) left += std::pow(got.product.left[static_cast<size_t>(r * c.rank + k)], 2);
        for (int64_t i = 0; i < c.columns; ++i)
          right += std::pow(got.product.right[static_cast<size_t>(k * c.columns + i)], 2);
        EXPECT_NEAR(left, known.values[static_cast<size_t>(k)], 1e-4 * left + 1e-6);
        EXPECT_NEAR(right, left, 1e-4 * left + 1e-6);
      }
    }
  }
}

// The iteration takes more columns until they hold the share that is asked for: the values fall slowly.
TEST(LowRank, AShareOfALargeMatrix) {
  const Known known{700, 640, falling(200, 0.98)};
  const LowRank got = low_rank(known.matrix(), 700, {.energy = 0.97});
  EXPECT_GE(got.kept, 0.97);
  EXPECT_LE(std::abs(got.product.rank - 87), 2);  // 1 - 0.98^(2 * 87) = 0.970
  const std::vector<double> all = known.sum(0, 200);
  EXPECT_NEAR(std::pow(distance(got.product, all), 2), 1 - got.kept, 1e-5) << "what is kept is measured";
}

TEST(LowRank, OfNothing) {
  const LowRank matrix = low_rank(std::vector<float>(12), 3, {.energy = 0.5});
  EXPECT_EQ(matrix.product.rank, 1);
  EXPECT_EQ(matrix.kept, 1);
  EXPECT_EQ(matrix.norm, 0);
  const LowRank product = low_rank({std::vector<float>(8), std::vector<float>(6, 1.0f), 2}, {.rank = 2});
  for (const float v : multiplied(product.product)) EXPECT_EQ(v, 0);
  EXPECT_EQ(product.kept, 1);
}

TEST(LowRank, NormOfAProduct) {
  const Known known{40, 24, falling(12, 0.5)};
  double square = 0;
  for (const float v : known.matrix()) square += static_cast<double>(v) * v;
  EXPECT_NEAR(norm_of(known.product()), std::sqrt(square), 1e-5);
}

}  // namespace
}  // namespace lh::low_rank_test
