// Float64 reference of attention.
#pragma once

#include <algorithm>
#include <cmath>

#include "support/reference/tensor.h"

namespace lh::test::reference {

// q [batch, queries, heads, width], k and v [batch, keys, key_heads, width]; key_heads divides heads.
struct Attention {
  int64_t batch, queries, keys, heads, key_heads, width;
  double scale;
  double soft_cap = 0;  // 0: none
  Dims bias = {};       // [1 or batch, 1 or heads, queries, keys]; empty: none
};

// seen(sample, query, key) says which keys count; a query that sees none gives 0.
template <typename Seen>
Values attention(const Attention& a, const Values& q, const Values& k, const Values& v, const Values& bias, Seen seen) {
  Values y;
  each_index({a.batch, a.queries, a.heads}, [&](const Dims& at) {
    const int64_t b = at[0], i = at[1], h = at[2], key_head = h / (a.heads / a.key_heads);
    const int64_t query = ((b * a.queries + i) * a.heads + h) * a.width;
    const auto key = [&](int64_t j) { return ((b * a.keys + j) * a.key_heads + key_head) * a.width; };
    Values p(static_cast<size_t>(a.keys), -INFINITY);
    for (int64_t j = 0; j < a.keys; ++j) {
      if (!seen(b, i, j)) continue;
      double score = 0;
      for (int64_t d = 0; d < a.width; ++d) score += a.scale * q[query + d] * k[key(j) + d];
      if (a.soft_cap > 0) score = a.soft_cap * std::tanh(score / a.soft_cap);
      p[j] = score + (a.bias.empty() ? 0 : bias[place_of(a.bias, {b, h, i, j})]);
    }
    const double largest = *std::max_element(p.begin(), p.end());
    double total = 0;
    for (double& e : p) total += e = largest == -INFINITY ? 0 : std::exp(e - largest);
    for (int64_t d = 0; d < a.width; ++d) {
      double sum = 0;
      for (int64_t j = 0; j < a.keys; ++j) sum += p[j] * v[key(j) + d];
      y.push_back(total == 0 ? 0 : sum / total);
    }
  });
  return y;
}

}  // namespace lh::test::reference
