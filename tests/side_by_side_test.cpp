// What may run beside what: found in graphs made for it and in those of shipped families, where no branch may wait for
// the other. Plans and runs of such graphs are in plan_test.cpp.
#include "run/side_by_side.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>

#include "compile/compile.h"
#include "ops/ops.h"
#include "support/model_shapes.h"
#include "support/qwen_image_shapes.h"
#include "support/toy_step.h"

namespace lh::test::side_by_side_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class Streams : public testing::Test {
 protected:
  Value one(const OpDef& op, std::vector<Value> in, Attrs attrs = {}) {
    return g.add(op, std::move(in), std::move(attrs), 0)[0];
  }
  Value chain(Value v, int length) {
    for (int i = 0; i < length; ++i) v = one(tanh_op, {v});
    return v;
  }
  Value input(const std::string& name, int64_t rows) { return g.add_input(name, {DType::f32, {1, rows, 2, 16}}); }
  Value joined(Value a, Value b) { return one(concat_op, {a, b}, {{"axis", int64_t{1}}}); }
  Value attend(Value v) {
    return one(attention_op, {v, v, v}, {{"scale", 1.0}, {"causal", int64_t{0}}, {"soft_cap", 0.0}});
  }
  int64_t here() const { return static_cast<int64_t>(g.nodes.size()); }

  Graph g{DType::f32};
  Value picture = input("picture", 64), text = input("text", 8);
};

TEST_F(Streams, TheSmallerGoesBesideTheLarger) {
  const Value a = chain(picture, 5), b = chain(text, 4);
  const int64_t before = here();
  const Value whole = attend(joined(a, b));
  const std::vector<Value> parts = g.add(split_op, {whole}, {{"axis", int64_t{1}}, {"sizes", std::vector{64l, 8l}}}, 0);
  const int64_t after = here();
  g.outputs["text"] = chain(parts[1], 4);
  g.outputs["picture"] = chain(parts[0], 6);
  const std::vector<SideBySide> found = side_by_side(g);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].first, 0);
  EXPECT_EQ(found[0].last, before - 1);
  EXPECT_THAT(found[0].aside, ElementsAre(5, 6, 7, 8));
  EXPECT_EQ(found[1].first, after);
  EXPECT_EQ(found[1].last, here() - 1);
  EXPECT_THAT(found[1].aside, ElementsAre(after, after + 1, after + 2, after + 3));
}

TEST_F(Streams, OfFewOperationsGoNowhere) {
  joined(chain(picture, 20), chain(text, 3));
  EXPECT_THAT(side_by_side(g), IsEmpty());
}

TEST_F(Streams, OfLargeOperationsFillTheDeviceThemselves) {
  const int64_t rows = 1 << 18;  // 32 MiB read and written by each
  joined(chain(input("larger", 4 * rows), 6), chain(input("large", rows), 6));
  EXPECT_THAT(side_by_side(g), IsEmpty());
}

TEST_F(Streams, ThatMeetAreOneAfterwards) {
  const Value other = input("other", 64);
  const Value sum = one(add_op, {chain(picture, 5), chain(other, 5)});
  const int64_t meet = here() - 1;
  chain(sum, 8);
  const std::vector<SideBySide> found = side_by_side(g);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].last, meet - 1);
}

// Only the first that reads a copy waits for it.
TEST_F(Streams, ThatReadOneWeightOnItsWayAreOne) {
  const Value weight = g.add_param("weight", {DType::f32, {16}});
  const auto read = [&](Value w) { joined(chain(one(mul_op, {picture, w}), 6), chain(one(mul_op, {text, w}), 6)); };
  read(weight);
  EXPECT_EQ(side_by_side(g).size(), 1u);
  g.nodes.clear();
  read(one(fetch_op, {weight}));
  EXPECT_THAT(side_by_side(g), IsEmpty());
  g.nodes.clear();
  const Value there = one(reshape_op, {one(fetch_op, {weight})}, {{"shape", std::vector<int64_t>{1, 16}}});
  attend(picture);
  read(there);
  EXPECT_THAT(side_by_side(g), IsEmpty());
}

// By the graph alone: what a node reads comes from its own branch or from outside.
void expect_apart(const Graph& graph, const std::vector<SideBySide>& sides) {
  std::map<uint32_t, int64_t> writer;
  for (size_t n = 0; n < graph.nodes.size(); ++n)
    for (const Value out : graph.nodes[n].outputs) writer[out.id] = static_cast<int64_t>(n);
  int64_t behind = 0;
  for (const SideBySide& side : sides) {
    EXPECT_GE(side.first, behind);
    behind = side.last + 1;
    ASSERT_LE(behind, static_cast<int64_t>(graph.nodes.size()));
    const auto aside = [&](int64_t n) { return std::ranges::count(side.aside, n) != 0; };
    for (int64_t n = side.first; n <= side.last; ++n) {
      const Node& node = graph.nodes[static_cast<size_t>(n)];
      EXPECT_TRUE(node.op != &attention_op && node.op != &attention_backward_op && !is_transfer(node));
      for (const Value in : node.inputs) {
        const auto made = writer.find(in.id);
        if (made == writer.end() || made->second < side.first) continue;
        EXPECT_EQ(aside(n), aside(made->second)) << graph.describe(node);
      }
    }
  }
}

struct Family {
  const char* name;
  std::function<void(const std::filesystem::path&)> write;
  int joint;  // blocks whose streams go on after their attention
};

class SideBySideFamily : public testing::TestWithParam<Family> {};

TEST_P(SideBySideFamily, HasItsStreamsSideBySide) {
  const TempDir dir;
  GetParam().write(dir / "model.safetensors");
  const OpenedModel opened(dir / "model.safetensors", "auto");
  for (const double recomputed : {0.0, 1.0}) {
    const TrainGraph step = toy_graph(opened.model, {.recompute = recomputed});
    const std::vector<SideBySide> sides = side_by_side(step.graph);
    expect_apart(step.graph, sides);
    EXPECT_GE(static_cast<int>(sides.size()), 2 * GetParam().joint) << recomputed;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, SideBySideFamily,
    testing::Values(Family{"sd35_medium", [](const auto& p) { write_small_sd35(p, small_medium); }, 2},
                    Family{"sd35_large", [](const auto& p) { write_small_sd35(p, small_large); }, 2},
                    Family{"flux", write_small_flux_dev, 1}, Family{"chroma", write_small_chroma, 1},
                    Family{"qwen_image", write_small_qwen_image, 1}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace lh::test::side_by_side_test
