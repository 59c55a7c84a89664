// The cheapest way to divide things into two sides, where some pairs cost something if they are divided.
#pragma once

#include <cstddef>
#include <vector>

namespace lh {

class MinCut {
 public:
  using Thing = size_t;
  static constexpr double never = 1e30;  // a cost that no division is worth
  // Things that are on the first side and on the second one from the beginning.
  static constexpr Thing first = 0, second = 1;

  Thing add();
  // What it costs that `from` is on the first side and `to` on the second one.
  void cost(Thing from, Thing to, double price);
  // By thing, whether it is on the first side. Of several divisions that cost least, the one with the smallest first
  // side. Once, after all costs.
  std::vector<bool> solve();

 private:
  struct Edge {
    Thing to;
    double left;     // of what may still flow
    size_t reverse;  // its index among those of `to`
  };
  // How many edges each thing is away from the first, along edges that something may flow through; none_: cannot be
  // reached.
  std::vector<size_t> distances() const;
  double push(Thing from, double most, const std::vector<size_t>& distance, std::vector<size_t>& next);
  static constexpr size_t none_ = static_cast<size_t>(-1);
  std::vector<std::vector<Edge>> edges_ = std::vector<std::vector<Edge>>(2);
};

}  // namespace lh
