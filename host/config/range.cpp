#include "config/range.h"

#include <fmt/core.h>

#include <cstdint>

namespace lh {

bool Range::holds(double value) const {
  return (above ? value > low : value >= low) && (below ? value < high : value <= high);  // false for NaN
}

std::string Range::text() const {
  const double infinity = std::numeric_limits<double>::infinity();
  const auto number = [](double x) {
    return x < 1e15 && x == static_cast<double>(static_cast<int64_t>(x)) ? fmt::format("{}", static_cast<int64_t>(x))
                                                                         : fmt::format("{}", x);
  };
  if (high == infinity)
    return low == -infinity ? "" : fmt::format("{} {}", above ? "more than" : "at least", number(low));
  if (!above && !below) return fmt::format("{} to {}", number(low), number(high));
  return fmt::format("{} {} and {} {}", above ? "more than" : "at least", number(low), below ? "less than" : "at most",
                     number(high));
}

}  // namespace lh
