// An interval of numbers, and how a message names it.
#pragma once

#include <limits>
#include <string>

namespace lh {

struct Range {
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
  bool above = false, below = false;  // the end itself is out
  bool holds(double value) const;
  std::string text() const;  // "1 to 64", "more than 0"; empty when everything is in
};

}  // namespace lh
