// Ops that multiply and add over an axis, and the two that pick rows.
#include <algorithm>
#include <cmath>

#include "support/op_cases.h"

namespace lh::test {
namespace {

OpCase linear(Dims x, int64_t out, bool bias) {
  const int64_t in = x.back(), rows = count_of(x) / in;
  OpCase c{"linear/1", {{std::move(x)}, {{out, in}}}, {}, std::max(in, out), {}, 1, bias ? "bias" : "plain"};
  if (bias) c.inputs.push_back({{out}});
  c.reference = [=](const Inputs& v) {
    Values y;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t o = 0; o < out; ++o) {
        double sum = bias ? v[2][o] : 0;
        for (int64_t i = 0; i < in; ++i) sum += v[0][r * in + i] * v[1][o * in + i];
        y.push_back(sum);
      }
    return std::vector<Values>{y};
  };
  return c;
}

// The weight's shape is [O, C, KH, KW], its memory [O, KH, KW, C] (graph.h, channels_last).
OpCase conv2d(const Dims& x, int64_t o, int64_t k, int64_t stride, std::vector<int64_t> pad, const std::string& note) {
  const int64_t n = x[0], h = x[1], w = x[2], ch = x[3];
  const int64_t oh = (h + pad[0] + pad[2] - k) / stride + 1, ow = (w + pad[1] + pad[3] - k) / stride + 1;
  OpCase c{"conv2d/1", {{x}, {{o, ch, k, k}}, {{o}}}, {{"stride", stride}, {"pad", pad}}, k * k * ch, {}, 1, note};
  c.reference = [=](const Inputs& v) {
    Values y;
    each_index({n, oh, ow, o}, [&](const Dims& at) {
      double sum = v[2][at[3]];
      each_index({k, k, ch}, [&](const Dims& tap) {
        const int64_t i = at[1] * stride - pad[0] + tap[0], j = at[2] * stride - pad[1] + tap[1];
        if (i < 0 || i >= h || j < 0 || j >= w) return;
        sum += v[0][((at[0] * h + i) * w + j) * ch + tap[2]] * v[1][((at[3] * k + tap[0]) * k + tap[1]) * ch + tap[2]];
      });
      y.push_back(sum);
    });
    return std::vector<Values>{y};
  };
  return c;
}

OpCase matmul(int64_t batch, int64_t m, int64_t k, int64_t n, bool ta, bool tb) {
  Dims a = ta ? Dims{k, m} : Dims{m, k}, b = tb ? Dims{n, k} : Dims{k, n};
  if (batch > 1) {
    a.insert(a.begin(), batch);
    b.insert(b.begin(), batch);
  }
  const std::string note = std::string(ta ? "at" : "a") + (tb ? "_bt" : "_b");
  Attrs attrs;
  if (ta) attrs.set("transpose_a", int64_t{1});
  if (tb) attrs.set("transpose_b", int64_t{1});
  return {"matmul/1",
          {{a}, {b}},
          attrs,
          k,
          [=](const Inputs& v) {
            Values y;
            each_index({batch, m, n}, [&](const Dims& i) {
              double sum = 0;
              for (int64_t j = 0; j < k; ++j)
                sum += v[0][i[0] * m * k + (ta ? j * m + i[1] : i[1] * k + j)] *
                       v[1][i[0] * k * n + (tb ? i[2] * k + j : j * n + i[2])];
              y.push_back(sum);
            });
            return std::vector<Values>{y};
          },
          1,
          note};
}

struct Attention {
  int64_t batch, queries, keys, heads, width;
  double scale;
  bool causal;
  Dims bias;  // empty: none
  bool lengths;
  int64_t key_heads = 0;  // 0: as many as heads
  bool mask = false;
  double soft_cap = 0;
};

// One row of probabilities times v.
void attend(const Attention& a, const Inputs& v, const Dims& at, Values& y) {
  const int64_t b = at[0], i = at[1], h = at[2], key_head = h / (a.heads / a.key_heads);
  const int64_t query = ((b * a.queries + i) * a.heads + h) * a.width;
  const auto key = [&](int64_t j) { return ((b * a.keys + j) * a.key_heads + key_head) * a.width; };
  Values p(static_cast<size_t>(a.keys), -INFINITY);
  const int64_t seen = a.lengths ? static_cast<int64_t>(v[4][b]) : a.keys;
  for (int64_t j = 0; j < std::min(seen, a.causal ? i + 1 : seen); ++j) {
    if (a.mask && v[5][b * a.keys + j] == 0) continue;
    double dot = 0;
    for (int64_t d = 0; d < a.width; ++d) dot += v[0][query + d] * v[1][key(j) + d];
    const double s = a.scale * dot;
    p[j] = (a.soft_cap > 0 ? a.soft_cap * std::tanh(s / a.soft_cap) : s) +
           (a.bias.empty() ? 0 : v[3][place_of(a.bias, {b, h, i, j})]);
  }
  const double largest = *std::ranges::max_element(p);
  double total = 0;
  for (double& e : p) total += e = largest == -INFINITY ? 0 : std::exp(e - largest);
  for (int64_t d = 0; d < a.width; ++d) {
    double sum = 0;
    for (int64_t j = 0; j < a.keys; ++j) sum += p[j] * v[2][key(j) + d];
    y.push_back(total == 0 ? 0 : sum / total);
  }
}

OpCase attention(Attention a, const std::string& note) {
  if (a.key_heads == 0) a.key_heads = a.heads;
  OpCase c{"attention/1", {{{a.batch, a.queries, a.heads, a.width}}}, {{"scale", a.scale}}, a.keys + a.width, {}, 1,
           note};
  for (int kv = 0; kv < 2; ++kv) c.inputs.push_back({{a.batch, a.keys, a.key_heads, a.width}});
  if (a.causal) c.attrs.set("causal", int64_t{1});
  if (a.soft_cap > 0) c.attrs.set("soft_cap", a.soft_cap);
  if (!a.bias.empty() || a.lengths || a.mask) {
    c.inputs.push_back(a.bias.empty() ? absent : OpInput{a.bias, -1, 1, Storage::tested, false});
    c.inputs.push_back(a.lengths ? ids({a.batch}, 1, a.keys) : absent);
  }
  if (a.mask) c.inputs.push_back(ids({a.batch, a.keys}, 0, 1));  // another one for each item
  c.reference = [=](const Inputs& v) {
    Values y;
    each_index({a.batch, a.queries, a.heads}, [&](const Dims& at) { attend(a, v, at, y); });
    return std::vector<Values>{y};
  };
  return c;
}

OpCase embedding(const Dims& shape, int64_t rows, int64_t width) {
  return {"embedding/1", {ids(shape, 0, rows - 1), {{rows, width}}}, {}, 1, [=](const Inputs& v) {
            Values y;
            for (const double id : v[0])
              for (int64_t d = 0; d < width; ++d) y.push_back(v[1][static_cast<int64_t>(id) * width + d]);
            return std::vector<Values>{y};
          }};
}

OpCase gather(int64_t batch, int64_t length, int64_t width) {
  return {"gather/1", {{{batch, length, width}}, ids({batch}, 0, length - 1)}, {}, 1, [=](const Inputs& v) {
            Values y;
            each_index({batch, width}, [&](const Dims& i) {
              y.push_back(v[0][(i[0] * length + static_cast<int64_t>(v[1][i[0]])) * width + i[1]]);
            });
            return std::vector<Values>{y};
          }};
}

}  // namespace

std::vector<OpCase> contraction_cases() {
  return {
      linear({1, 31}, 33, true),
      linear({2, 3, 33}, 1, false),
      linear({33, 1}, 31, true),
      conv2d({1, 31, 33, 1}, 1, 1, 1, {0, 0, 0, 0}, "one_by_one"),
      conv2d({2, 7, 5, 3}, 5, 3, 1, {1, 1, 1, 1}, "three_by_three"),
      conv2d({1, 8, 7, 3}, 2, 3, 2, {0, 1, 1, 0}, "stride_two"),
      matmul(1, 5, 33, 31, false, false),
      matmul(3, 5, 7, 31, true, false),
      matmul(2, 1, 31, 33, false, true),
      matmul(2, 3, 5, 7, true, true),
      embedding({3, 11}, 31, 33),
      embedding({1}, 1, 1),
      gather(3, 31, 33),
      gather(1, 1, 1),
      attention({1, 31, 33, 2, 5, 0.7, false, {}, false}, "plain"),
      attention({2, 1, 33, 1, 31, 0.2, false, {}, false}, "one_query"),
      attention({1, 33, 33, 1, 8, 0.4, true, {}, false}, "causal"),
      attention({2, 5, 7, 3, 4, 0.5, false, {1, 3, 5, 7}, false}, "bias"),
      attention({3, 5, 31, 2, 4, 0.5, false, {}, true}, "lengths"),
      attention({2, 7, 7, 2, 4, 0.5, true, {2, 1, 7, 7}, true}, "causal_bias_lengths"),
      attention({2, 5, 31, 4, 8, 0.4, false, {}, false, 2}, "grouped"),
      attention({2, 33, 7, 3, 5, 0.5, false, {1, 3, 33, 7}, false, 1}, "one_key_head_bias"),
      attention({2, 33, 33, 4, 8, 0.4, true, {}, true, 2}, "grouped_causal_lengths"),
      attention({2, 5, 31, 6, 8, 0.4, true, {}, false, 3}, "grouped_causal_fewer_queries"),
      attention({2, 31, 5, 4, 8, 0.4, true, {}, false, 2}, "grouped_causal_fewer_keys"),
      attention({2, 5, 31, 2, 8, 0.5, false, {}, false, 0, true}, "mask"),
      attention({2, 5, 33, 4, 8, 0.5, false, {}, true, 2, true}, "grouped_mask_lengths"),
      attention({2, 33, 33, 2, 8, 0.5, true, {}, false, 0, true}, "causal_mask"),
      attention({1, 7, 33, 2, 31, 0.7, false, {}, false, 0, false, 1.5}, "soft_cap"),
      attention({2, 7, 33, 4, 8, 0.9, false, {}, false, 2, false, 1.25}, "soft_cap_grouped"),
      attention({2, 7, 7, 4, 4, 0.5, true, {2, 1, 7, 7}, true, 2, true, 2.0}, "everything"),
  };
}

}  // namespace lh::test
