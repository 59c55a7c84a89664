// Ops that multiply and add over an axis, and the two that pick rows.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "support/op_cases.h"
#include "support/reference/attention.h"
#include "support/reference/products.h"

namespace lh::test {
namespace {

OpCase linear(Dims x, int64_t out, bool bias) {
  const int64_t in = x.back();
  OpCase c{"linear/1", {{std::move(x)}, {{out, in}}}, {}, std::max(in, out), {}, 1, bias ? "bias" : "plain"};
  if (bias) c.inputs.push_back({{out}});
  c.reference = [=](const Inputs& v) {
    return std::vector<Values>{reference::linear(v[0], v[1], bias ? v[2] : Values{}, in, out)};
  };
  return c;
}

OpCase convolution(const reference::Convolution& c, const Attrs& attrs, const std::string& note) {
  OpCase out{c.kernel.size() == 2 ? "conv2d/1" : "conv3d/1",
             {{c.x}, {c.weight()}, {{c.outputs}}},
             attrs,
             count_of(c.kernel) * c.channels(),
             {},
             1,
             note};
  out.inner = 1;  // the product, before the bias is added
  out.reference = [=](const Inputs& v) { return std::vector<Values>{reference::convolution(c, v[0], v[1], v[2])}; };
  return out;
}

// pad is top left bottom right.
OpCase conv2d(const Dims& x, int64_t o, int64_t k, int64_t stride, std::vector<int64_t> pad, const std::string& note,
              int64_t groups = 1) {
  Attrs attrs{{"stride", stride}, {"pad", pad}};
  if (groups != 1) attrs.set("groups", groups);
  return convolution({x, o, {k, k}, {stride, stride}, {pad[0], pad[1]}, {pad[2], pad[3]}, groups}, attrs, note);
}

OpCase conv3d(const Dims& x, int64_t o, const Dims& k, const Dims& stride, const Dims& pad, const std::string& note) {
  return convolution({x, o, k, stride, {pad[0], pad[2], pad[4]}, {pad[1], pad[3], pad[5]}},
                     {{"stride", stride}, {"pad", pad}}, note);
}

// single: 'a' or 'b', which is the same for all of the batch.
OpCase matmul(int64_t batch, int64_t m, int64_t k, int64_t n, bool ta, bool tb, char single = ' ') {
  Dims a = ta ? Dims{k, m} : Dims{m, k}, b = tb ? Dims{n, k} : Dims{k, n};
  if (batch > 1) {
    a.insert(a.begin(), single == 'a' ? 1 : batch);
    b.insert(b.begin(), single == 'b' ? 1 : batch);
  }
  std::string note = std::string(ta ? "at" : "a") + (tb ? "_bt" : "_b");
  if (single != ' ') note += std::string("_one_") + single;
  Attrs attrs;
  if (ta) attrs.set("transpose_a", int64_t{1});
  if (tb) attrs.set("transpose_b", int64_t{1});
  return {"matmul/1",
          {{a}, {b}},
          attrs,
          single == ' ' ? k : std::max(k, batch * std::max(m, n)),  // of a gradient
          [=](const Inputs& v) {
            const auto all = [&](char which, const Values& one) {
              Values repeated;
              for (int64_t i = 0; i < (single == which ? batch : 1); ++i)
                repeated.insert(repeated.end(), one.begin(), one.end());
              return repeated;
            };
            return std::vector<Values>{reference::matmul({batch, m, k, n, ta, tb}, all('a', v[0]), all('b', v[1]))};
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

OpCase attention(Attention a, const std::string& note) {
  if (a.key_heads == 0) a.key_heads = a.heads;
  OpCase c{"attention/1", {{{a.batch, a.queries, a.heads, a.width}}}, {{"scale", a.scale}}, a.keys + a.width, {}, 1,
           note};
  c.inner = 1;  // the probabilities, between the two products
  for (int kv = 0; kv < 2; ++kv) c.inputs.push_back({{a.batch, a.keys, a.key_heads, a.width}});
  if (a.causal) c.attrs.set("causal", int64_t{1});
  if (a.soft_cap > 0) c.attrs.set("soft_cap", a.soft_cap);
  if (!a.bias.empty() || a.lengths || a.mask) {
    c.inputs.push_back(a.bias.empty() ? absent : OpInput{a.bias, -1, 1, Storage::tested, false});
    c.inputs.push_back(a.lengths ? ids({a.batch}, 1, a.keys) : absent);
  }
  if (a.mask) c.inputs.push_back(ids({a.batch, a.keys}, 0, 1));  // another one for each item
  const reference::Attention law{a.batch, a.queries, a.keys,     a.heads, a.key_heads,
                                 a.width, a.scale,   a.soft_cap, a.bias};
  c.reference = [=](const Inputs& v) {
    const auto seen = [&](int64_t b, int64_t i, int64_t j) {
      if (a.lengths && static_cast<double>(j) >= v[4][b]) return false;
      return !(a.causal && j > i) && !(a.mask && v[5][b * a.keys + j] == 0);
    };
    return std::vector<Values>{reference::attention(law, v[0], v[1], v[2], a.bias.empty() ? Values{} : v[3], seen)};
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

OpCase take(const OpInput& x, int64_t taken) {
  Dims y = x.dims, index{x.dims[0], taken};
  y[1] = taken;
  return {"take/1", {x, ids(index, 0, x.dims[1] - 1)}, {}, taken, [=](const Inputs& v) {
            Values out;
            each_index(y, [&](Dims i) {
              i[1] = static_cast<int64_t>(v[1][place_of(index, {i[0], i[1]})]);
              out.push_back(v[0][place_of(x.dims, i)]);
            });
            return std::vector<Values>{out};
          }};
}

OpCase top_k(const Dims& x, int64_t k) {
  const int64_t size = x.back();
  return {"top_k/1",
          {{x}},
          {{"k", k}},
          1,
          [=](const Inputs& v) {
            std::vector<Values> out(2);
            for (size_t row = 0; row < v[0].size(); row += static_cast<size_t>(size)) {
              const auto from = v[0].begin() + static_cast<int64_t>(row);
              std::vector<int64_t> order(static_cast<size_t>(size));
              std::iota(order.begin(), order.end(), 0);
              std::ranges::stable_sort(order, [&](int64_t a, int64_t b) { return from[a] > from[b]; });
              for (int64_t i = 0; i < k; ++i) {
                out[0].push_back(from[order[i]]);
                out[1].push_back(static_cast<double>(order[i]));
              }
            }
            return out;
          },
          2};
}

// [batch, rows, columns]
OpCase newton_schulz(int64_t batch, int64_t rows, int64_t columns, int64_t steps) {
  const double a = 3.4445, b = -4.775, c = 2.0315;
  Dims x{rows, columns}, scale{1, 1};
  if (batch > 1) x.insert(x.begin(), batch), scale.insert(scale.begin(), batch);
  const double norm = std::sqrt(static_cast<double>(rows * columns) / 3);  // of values from -1 to 1
  return {"newton_schulz/1",
          {f32(x), f32(scale, 0.5 / norm, 1 / norm)},
          {{"a", a}, {"b", b}, {"c", c}, {"steps", steps}},
          std::min(rows, columns),
          [=](const Inputs& v) {
            Values y;
            for (int64_t m = 0; m < batch; ++m) {
              Values x(v[0].begin() + m * rows * columns, v[0].begin() + (m + 1) * rows * columns);
              for (double& value : x) value *= v[1][static_cast<size_t>(m)];
              for (int64_t step = 0; step < steps; ++step) {
                const Values square = reference::matmul({1, rows, columns, rows, false, true}, x, x);
                const Values cubed = reference::matmul({1, rows, rows, columns, false, false}, square, x);
                const Values fifth = reference::matmul({1, rows, rows, columns, false, false}, square, cubed);
                for (size_t i = 0; i < x.size(); ++i) x[i] = a * x[i] + b * cubed[i] + c * fifth[i];
              }
              y.insert(y.end(), x.begin(), x.end());
            }
            return std::vector<Values>{y};
          },
          1,
          "steps_" + std::to_string(steps)};
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
      conv2d({2, 7, 5, 6}, 9, 3, 1, {1, 1, 1, 1}, "groups", 3),
      conv2d({1, 8, 7, 5}, 5, 3, 2, {1, 1, 1, 1}, "depthwise", 5),
      conv2d({1, 5, 7, 4}, 6, 1, 1, {0, 0, 0, 0}, "groups_one_by_one", 2),
      conv3d({1, 5, 4, 5, 3}, 2, {3, 3, 3}, {1, 1, 1}, {2, 0, 1, 1, 1, 1}, "causal"),
      conv3d({2, 1, 5, 4, 3}, 4, {3, 3, 3}, {1, 1, 1}, {2, 0, 1, 1, 1, 1}, "one_frame"),
      conv3d({1, 7, 6, 5, 2}, 3, {3, 2, 3}, {2, 1, 3}, {1, 1, 0, 1, 2, 0}, "strides"),
      conv3d({1, 3, 3, 2, 5}, 3, {3, 1, 1}, {2, 1, 1}, {0, 0, 0, 0, 0, 0}, "time"),
      conv3d({2, 3, 3, 2, 5}, 3, {1, 1, 1}, {1, 1, 1}, {0, 0, 0, 0, 0, 0}, "pointwise"),
      matmul(1, 5, 33, 31, false, false),
      matmul(3, 5, 7, 31, true, false),
      matmul(2, 1, 31, 33, false, true),
      matmul(2, 3, 5, 7, true, true),
      matmul(5, 3, 7, 16, false, false, 'a'),
      matmul(3, 5, 7, 31, true, false, 'a'),
      matmul(3, 7, 5, 8, false, true, 'a'),
      matmul(3, 5, 7, 8, true, true, 'a'),
      matmul(3, 5, 7, 31, false, false, 'b'),
      matmul(2, 7, 3, 5, false, true, 'b'),
      matmul(2, 7, 3, 5, true, false, 'b'),
      newton_schulz(1, 5, 7, 1),
      newton_schulz(3, 16, 301, 5),
      newton_schulz(2, 301, 16, 5),
      newton_schulz(2, 31, 33, 5),
      newton_schulz(1, 77, 31, 5),
      newton_schulz(2, 67, 301, 5),
      newton_schulz(1, 301, 68, 5),
      embedding({3, 11}, 31, 33),
      embedding({1}, 1, 1),
      gather(3, 31, 33),
      gather(1, 1, 1),
      take({{3, 31, 33}}, 7),
      take({{2, 5, 3, 2}}, 33),
      take({{1, 7}}, 1),
      take(ids({2, 31}, -9, 9), 5),
      top_k({31, 33}, 5),
      top_k({2, 3, 7}, 7),
      top_k({1}, 1),
      top_k({2, 257}, 31),
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
