#include "config/nearest.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "core/lower.h"

namespace lh {
namespace {

// Insertions, deletions, substitutions and swaps of neighbours between two words; small and large letters are one.
int64_t edit_distance(std::string_view first, std::string_view second) {
  const std::string a = lower(std::string(first)), b = lower(std::string(second));
  std::vector<int64_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  std::iota(last.begin(), last.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<int64_t>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({row[j - 1] + 1, last[j] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(last);
    last.swap(row);
  }
  return last.back();
}

}  // namespace

std::string nearest_of(std::string_view word, std::span<const std::string_view> candidates) {
  if (word.size() > 64) return "";
  int64_t best = std::max<int64_t>(1, static_cast<int64_t>(word.size()) / 3) + 1;
  std::string_view found;
  for (const std::string_view candidate : candidates) {
    const int64_t distance = edit_distance(word, candidate);
    if (distance >= best) continue;
    best = distance;
    found = candidate;
  }
  return std::string(found);
}

}  // namespace lh
