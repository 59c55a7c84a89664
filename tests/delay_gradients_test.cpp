// The pass that puts gradients of adapters of few rows behind the attention that follows: where they stand then, and
// that nothing else becomes of them.
#include "passes/delay_gradients.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "ops/lora_gradients.h"
#include "support/layer_graph.h"

namespace lh::test::delay_gradients_test {
namespace {

// Two attentions; what the first gives is multiplied by a layer of one row or, `wide`, of all rows.
struct Modulated : LayerGraph {
  explicit Modulated(bool wide) {
    const Value q = param("q", {1, rows, 2, width / 2});
    const Value c = param("c", {1, wide ? rows : 1, width});
    const Value narrow = one(reshape_op, {attend(q)}, shape({1, rows, width})), factor = layer("modulation", c, width);
    g.outputs["y"] =
        one(reshape_op, {attend(one(reshape_op, {one(mul_op, {narrow, factor})}, heads()))}, shape({1, rows, width}));
    x = q;
    add_gradients();
  }

  static constexpr int64_t rows = 12;
  static Attrs shape(std::vector<int64_t> dims) { return {{"shape", std::move(dims)}}; }
  static Attrs heads() { return shape({1, rows, 2, width / 2}); }
  Value attend(Value v) {
    return one(attention_op, {v, v, v}, {{"scale", 1.0}, {"causal", int64_t{0}}, {"soft_cap", 0.0}});
  }
  size_t last_of(const OpDef& op) const {
    size_t last = g.nodes.size();
    for (size_t n = 0; n < g.nodes.size(); ++n)
      if (g.nodes[n].op == &op) last = n;
    return last;
  }
};

TEST(DelayGradients, StandBehindTheNextAttention) {
  Modulated plain(false), delayed(false);
  ASSERT_LT(plain.last_of(lora_gradients_op), plain.last_of(attention_backward_op));
  delay_gradients(delayed.g);
  EXPECT_EQ(delayed.g.nodes.size(), plain.g.nodes.size());
  const size_t border = delayed.last_of(attention_backward_op);
  EXPECT_GT(delayed.last_of(lora_gradients_op), border);
  EXPECT_GT(delayed.last_of(lora_backward_op), border);
  expect_same_bits(plain, delayed);
}

TEST(DelayGradients, OfManyRowsStayWhereTheyAre) {
  Modulated plain(true), delayed(true);
  delay_gradients(delayed.g);
  EXPECT_TRUE(std::ranges::equal(delayed.g.nodes, plain.g.nodes, {}, &Node::op, &Node::op));
}

}  // namespace
}  // namespace lh::test::delay_gradients_test
