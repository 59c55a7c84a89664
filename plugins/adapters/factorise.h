// How LoKr divides a dimension among its two factors.
#pragma once

#include <cstdint>
#include <utility>

namespace adapters {

// dimension = m n with m <= n, as LyCORIS divides it: m = factor where that divides the dimension; otherwise the
// divisor up to `factor` (-1: any) that the sum m + n falls to, from m = 1 upwards.
inline std::pair<int64_t, int64_t> factorise(int64_t dimension, int64_t factor) {
  if (factor > 0 && dimension % factor == 0) {
    const int64_t other = dimension / factor;
    return factor <= other ? std::pair(factor, other) : std::pair(other, factor);
  }
  int64_t best = 1;
  for (int64_t m = 2; m <= dimension; ++m) {
    if (dimension % m != 0) continue;
    if ((factor > 0 && m > factor) || m + dimension / m > best + dimension / best) break;
    best = m;
    if (best >= dimension / best) break;
  }
  const int64_t other = dimension / best;
  return best <= other ? std::pair(best, other) : std::pair(other, best);
}

}  // namespace adapters
