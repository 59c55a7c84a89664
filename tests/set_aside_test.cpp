// The pass that moves what adapters make of weights alone, and the gradients of that, to where it runs beside layers:
// where it stands then, and that nothing else becomes of it.
#include "passes/set_aside.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "run/side_by_side.h"
#include "support/layer_graph.h"

namespace lh::test {
namespace {

// Attentions; what each gives is multiplied by a factor that is made of two weights in four operations.
struct Factored : LayerGraph {
  static constexpr int64_t rows = 12;

  explicit Factored(int64_t columns = width) : columns(columns) {
    const Value q = param("q", {1, rows, 2, columns / 2});
    Value y = attend(q);
    for (int i = 0; i < 3; ++i) {
      const Value a = param("a" + std::to_string(i), {1, 1, columns}),
                  b = param("b" + std::to_string(i), {1, 1, columns});
      Value f = one(mul_op, {a, b});
      for (int k = 0; k < 3; ++k) f = one(tanh_op, {f});
      factors.push_back(f);
      trained.push_back(a), trained.push_back(b);
      Value flat = one(mul_op, {one(reshape_op, {y}, shape({1, rows, columns})), f});
      for (int k = 0; k < 4; ++k) flat = one(tanh_op, {flat});
      y = attend(one(reshape_op, {flat}, shape({1, rows, 2, columns / 2})));
    }
    g.outputs["y"] = one(reshape_op, {y}, shape({1, rows, columns}));
    x = q;
    add_gradients();
    for (const Value v : trained) {
      auto node = g.outputs.extract("d" + g.info(v).name);
      node.key() = "grad." + g.info(v).name;
      g.outputs.insert(std::move(node));
    }
  }

  static Attrs shape(std::vector<int64_t> dims) { return {{"shape", std::move(dims)}}; }
  Value attend(Value v) {
    return one(attention_op, {v, v, v}, {{"scale", 1.0}, {"causal", int64_t{0}}, {"soft_cap", 0.0}});
  }
  int64_t maker(Value v) const {
    const auto makes = [&](const Node& node) { return std::ranges::count(node.outputs, v) != 0; };
    return std::ranges::find_if(g.nodes, makes) - g.nodes.begin();
  }
  // Attentions of one direction in front of what makes v.
  int64_t in_front(Value v, const OpDef& op) const {
    return std::count_if(g.nodes.begin(), g.nodes.begin() + maker(v), [&](const Node& n) { return n.op == &op; });
  }

  int64_t columns;
  std::vector<Value> factors;
};

TEST(SetAside, WeightsComeBeforeTheAttentionInFront) {
  const Factored plain;
  Factored moved;
  set_aside(moved.g);
  EXPECT_EQ(moved.g.nodes.size(), plain.g.nodes.size());
  for (int64_t i = 0; i < 3; ++i) {
    const Value factor = moved.factors[static_cast<size_t>(i)];
    EXPECT_EQ(plain.in_front(factor, attention_op), i + 1);
    EXPECT_EQ(moved.in_front(factor, attention_op), i);
    EXPECT_TRUE(moved.g.nodes[static_cast<size_t>(moved.maker(factor))].aside);
  }
  expect_same_bits(plain, moved);
}

TEST(SetAside, GradientsOfWeightsComeBehindTheAttentionThatFollows) {
  const Factored plain;
  Factored moved;
  set_aside(moved.g);
  for (const int i : {0, 1, 2}) {
    const std::string name = "grad.a" + std::to_string(i);
    const Value before = plain.g.outputs.at(name), after = moved.g.outputs.at(name);
    EXPECT_EQ(moved.in_front(after, attention_backward_op), plain.in_front(before, attention_backward_op) + 1) << name;
  }
}

TEST(SetAside, StretchesHaveItBesideThem) {
  const Factored plain;
  Factored moved;
  set_aside(moved.g);
  EXPECT_THAT(side_by_side(plain.g), testing::IsEmpty());
  const std::vector<SideBySide> found = side_by_side(moved.g);
  EXPECT_GE(found.size(), 4u);
  for (const SideBySide& side : found)
    for (int64_t n = side.first; n <= side.last; ++n)
      EXPECT_EQ(moved.g.nodes[static_cast<size_t>(n)].aside, std::ranges::count(side.aside, n) != 0) << n;
}

TEST(SetAside, LargeValuesStayWhereTheyAre) {
  const Factored plain(int64_t{1} << 20);
  Factored moved(int64_t{1} << 20);
  set_aside(moved.g);
  EXPECT_TRUE(std::ranges::equal(moved.g.nodes, plain.g.nodes, {}, &Node::outputs, &Node::outputs));
}

}  // namespace
}  // namespace lh::test
