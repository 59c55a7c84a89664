// The cheapest division, beside all divisions there are.
#include "core/min_cut.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace lh::min_cut_test {
namespace {

struct Pair {
  size_t from, to;
  double price;
};

double cost_of(const std::vector<Pair>& pairs, const std::vector<bool>& first) {
  double cost = 0;
  for (const Pair& p : pairs)
    if (first[p.from] && !first[p.to]) cost += p.price;
  return cost;
}

TEST(MinCut, IsTheCheapestOfAllDivisionsWithTheSmallestFirstSide) {
  std::mt19937 random(1);
  for (int turn = 0; turn < 200; ++turn) {
    SCOPED_TRACE(turn);
    MinCut cut;
    const size_t things = 2 + random() % 7;
    for (size_t i = 2; i < things; ++i) cut.add();
    std::vector<Pair> pairs;
    for (size_t i = random() % 24; i > 0; --i) {
      // Whole numbers, so that costs are equal or not; some may not be paid.
      const bool never = random() % 6 == 0;
      pairs.push_back(
          {random() % things, random() % things, never ? MinCut::never : static_cast<double>(random() % 5)});
      cut.cost(pairs.back().from, pairs.back().to, pairs.back().price);
    }
    double least = 1e300;
    size_t smallest = 0;
    for (size_t bits = 0; bits < (size_t{1} << things); ++bits) {
      std::vector<bool> first(things);
      for (size_t i = 0; i < things; ++i) first[i] = (bits >> i & 1) != 0;
      if (!first[MinCut::first] || first[MinCut::second]) continue;
      const double cost = cost_of(pairs, first);
      const auto size = static_cast<size_t>(std::ranges::count(first, true));
      if (cost < least || (cost == least && size < smallest)) {
        least = cost;
        smallest = size;
      }
    }
    if (least >= MinCut::never) continue;  // the two sides cannot be parted
    const std::vector<bool> found = cut.solve();
    EXPECT_TRUE(found[MinCut::first]);
    EXPECT_FALSE(found[MinCut::second]);
    EXPECT_EQ(cost_of(pairs, found), least);
    EXPECT_EQ(static_cast<size_t>(std::ranges::count(found, true)), smallest);
  }
}

}  // namespace
}  // namespace lh::min_cut_test
