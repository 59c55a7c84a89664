// Groups of layers with adapters, in sizes where a device of capability 9.0 makes them by one product: tiles that are
// full and not, layers whose tiles lie side by side and whose sums follow each other. And where it does not: few rows,
// a rank or a type that goes layer by layer, widths in no pieces of 16 bytes. Against float64 loops.
#include <gtest/gtest.h>

#include "lora_kernels_group.h"
#include "support/kernel_tensors.h"
#include "support/reference/products.h"

namespace lk_test::kernels_adapter_groups_test {
namespace {

struct GroupCase {
  int64_t rows, in, rank;
  std::vector<int64_t> outs;  // of the layers
  bool mask = false, bias = false, dx = true, added = false;
  bool adds = false;   // to the gradients of down and up
  bool lacks = false;  // the first layer ddown, the last one s
};
constexpr double scale = 0.5, before = 0.25;  // of gradients that are added to

class KernelsAdapterGroups : public Kernels, public testing::WithParamInterface<lk_dtype> {
 protected:
  static std::vector<GroupCase> cases() {
    std::vector<GroupCase> all = {{300, 264, 16, {520, 520, 520}, true, true, true, true},
                                  {333, 320, 8, {320, 648, 72}, false, true, true, true, true, false},
                                  {333, 128, 32, {72, 640, 264}, true, false, true, false, false, true},
                                  {900, 328, 16, {400, 400, 400, 400}, false, false, true, true, false, true},
                                  {257, 1032, 24, {40, 136}, true, true, true, false, true, false},
                                  {1100, 200, 16, {904, 904}, false, true, true, true},
                                  {77, 512, 16, {328, 328}, false, false, false},
                                  {77, 264, 16, {72, 72, 72}, true, true, true, true},
                                  {130, 60, 12, {52, 36, 44}, true, true, true, true},
                                  {140, 72, 64, {264, 136, 72}, false, true, true, true},
                                  {5, 64, 8, {40, 72}, true, true, true, true},
                                  {300, 264, 16, {136}, false, true, true, true}};
    // On a GPU of 132 processors of tiles of 128, 160, 192, 208 and 256 columns, forward and then backward.
    const std::vector<GroupCase> tiles = {{300, 72, 16, {1544, 1608}, false, true, true, true},
                                          {520, 72, 16, {1352, 1416}},
                                          {520, 72, 16, {1704, 1768}},
                                          {1540, 72, 16, {776, 840}, true, true},
                                          {1540, 72, 16, {840, 904}},
                                          {1540, 872, 16, {72, 136}, false, false, true, true},
                                          {1540, 1160, 16, {72, 136}},
                                          {1540, 1448, 16, {72, 136}, true},
                                          {1540, 1736, 16, {72, 136}, false, false, true, true},
                                          {2056, 1464, 16, {72, 136}}};
    if (lh::test::tested_device() == "cuda") all.insert(all.end(), tiles.begin(), tiles.end());
    return all;
  }

  // Of the first and last rows of tiles, and some in between.
  static std::vector<int64_t> sample(int64_t rows) {
    std::vector<int64_t> some;
    for (int64_t row = 0; row < rows; ++row)
      if (row % 128 == 0 || row % 128 == 127 || row % 97 == 5 || row == rows - 1) some.push_back(row);
    return some;
  }
  static Values rows_of(const Values& all, const std::vector<int64_t>& rows, int64_t width) {
    Values some;
    for (const int64_t row : rows) some.insert(some.end(), all.begin() + row * width, all.begin() + (row + 1) * width);
    return some;
  }
  Tensor drawn(const Shape& shape, lk_dtype type) { return random_tensor(context.get(), random, shape, type, -1, 1); }

  struct Layer {
    int64_t out;
    Tensor dy, weight, bias, down, up, mask, y, s, ddown, dup;
  };
  struct Group {
    GroupCase c;
    Tensor x, added, dx;
    std::vector<Layer> layers;
  };
  Group group(const GroupCase& c) {
    const lk_dtype type = GetParam();
    const auto empty = [&](const Shape& shape, lk_dtype of) { return poisoned(context.get(), shape, of); };
    Group g{c, drawn({c.rows, c.in}, type), drawn({c.rows, c.in}, type), empty({c.rows, c.in}, type), {}};
    for (const int64_t out : c.outs)
      g.layers.push_back({out, drawn({c.rows, out}, type), drawn({out, c.in}, type), drawn({out}, type),
                          drawn({c.rank, c.in}, LK_F32), drawn({out, c.rank}, LK_F32), drawn({c.rows, c.rank}, type),
                          empty({c.rows, out}, type), empty({c.rows, c.rank}, type), empty({c.rank, c.in}, LK_F32),
                          empty({out, c.rank}, LK_F32)});
    return g;
  }
  void run(Group& g) {
    const GroupCase& c = g.c;
    std::vector<lk_lora_forward_params> forward;
    std::vector<lk_lora_backward_params> backward;
    for (Layer& l : g.layers) {
      lk_lora_forward_params p{};
      p.x = g.x.view(), p.weight = l.weight.view(), p.down = l.down.view(), p.up = l.up.view();
      p.scale = scale, p.y = l.y.view(), p.s = l.s.view();
      if (c.bias) p.bias = l.bias.view();
      if (c.mask) p.mask = l.mask.view();
      forward.push_back(p);
      lk_lora_backward_params b{};
      b.dy = l.dy.view(), b.x = g.x.view(), b.s = l.s.view(), b.weight = l.weight.view(), b.down = l.down.view();
      b.up = l.up.view(), b.scale = scale, b.accumulate = c.adds ? 1 : 0, b.ddown = l.ddown.view();
      b.dup = l.dup.view(), b.mask = p.mask;
      for (Tensor* const gradient : {&l.ddown, &l.dup})
        if (c.adds) gradient->store(context.get(), Values(load(*gradient).size(), before));
      backward.push_back(b);
    }
    if (c.lacks) backward.front().ddown = {}, backward.back().s = {};
    lk_lora_group_forward_params f{};
    f.layers = forward.data(), f.count = static_cast<int32_t>(forward.size());
    ASSERT_EQ(lk_lora_group_forward(context.get(), &f), LK_OK) << lk_last_error(context.get());
    lk_lora_group_backward_params b{};
    b.layers = backward.data(), b.count = f.count;
    if (c.dx) b.dx = g.dx.view();
    if (c.added) b.added = g.added.view();
    ASSERT_EQ(lk_lora_group_backward(context.get(), &b), LK_OK) << lk_last_error(context.get());
  }
  std::vector<std::vector<unsigned char>> results(const Group& g) const {
    std::vector<std::vector<unsigned char>> all{g.dx.bytes()};
    for (const Layer& l : g.layers)
      for (const Tensor& t : {l.y, l.s, l.ddown, l.dup}) all.push_back(t.bytes());
    return all;
  }
  static std::string text(const GroupCase& c) {
    std::string s = std::to_string(c.rows) + " x " + std::to_string(c.in) + " ->";
    for (const int64_t out : c.outs) s += " " + std::to_string(out);
    return s + " rank " + std::to_string(c.rank);
  }
};

// Rounded on the way: s, or ds, and the adapter's matrix that it is multiplied with; the share on its own where it is
// not part of the sum, and the sum before it is added.
constexpr int roundings = 4;

TEST_P(KernelsAdapterGroups, AreTheLayersOneByOne) {
  const lk_dtype type = GetParam();
  for (const GroupCase& c : cases()) {
    SCOPED_TRACE(text(c));
    Group g = group(c);
    run(g);
    const std::vector<int64_t> some = sample(c.rows);
    const auto count = static_cast<int64_t>(some.size());
    const Values x = load(g.x), some_x = rows_of(x, some, c.in);
    Values dx(some_x.size());
    if (c.added) dx = rows_of(load(g.added), some, c.in);
    int64_t depth = 0;
    for (size_t i = 0; i < g.layers.size(); ++i) {
      SCOPED_TRACE("layer " + std::to_string(i));
      const Layer& l = g.layers[i];
      const Values ones(static_cast<size_t>(c.rows * c.rank), 1.0), mask = c.mask ? load(l.mask) : ones;
      const Values weight = load(l.weight), down = load(l.down), up = load(l.up), dy = load(l.dy);
      Values y = reference::lora({c.in, l.out, c.rank, scale}, some_x, weight, down, up, rows_of(mask, some, c.rank));
      const Values bias = load(l.bias);
      for (size_t j = 0; c.bias && j < y.size(); ++j) y[j] += bias[j % bias.size()];
      expect_near("y", rows_of(load(l.y), some, l.out), y, type, c.in, roundings);

      Values ds = reference::matmul({1, c.rows, l.out, c.rank, false, false}, dy, up);
      for (size_t j = 0; j < ds.size(); ++j) ds[j] *= scale * mask[j];
      Values s = reference::linear(x, down, {}, c.in, c.rank);
      for (size_t j = 0; j < s.size(); ++j) s[j] *= mask[j];
      expect_near("s", load(l.s), s, type, c.in, 2);
      // Of products with what was rounded to the type, s or ds.
      Values ddown = reference::matmul({1, c.rank, c.rows, c.in, true, false}, ds, x);
      Values dup = reference::matmul({1, l.out, c.rows, c.rank, true, false}, dy, s);
      for (double& value : dup) value *= scale;
      for (Values* const gradient : {&ddown, &dup})
        for (double& value : *gradient) value += c.adds ? before : 0.0;
      if (!c.lacks || i > 0) expect_near("ddown", load(l.ddown), ddown, type, c.rows, 2);
      expect_near("dup", load(l.dup), dup, type, c.rows, 2);

      const Values part = reference::matmul({1, count, l.out, c.in, false, false}, rows_of(dy, some, l.out), weight);
      const Values share = reference::matmul({1, count, c.rank, c.in, false, false}, rows_of(ds, some, c.rank), down);
      for (size_t j = 0; j < dx.size(); ++j) dx[j] += part[j] + share[j];
      depth += l.out;
    }
    // Layer by layer, dx is rounded before each.
    if (c.dx)
      expect_near("dx", rows_of(load(g.dx), some, c.in), dx, type, depth,
                  roundings + 2 * static_cast<int>(g.layers.size()));
  }
}

TEST_P(KernelsAdapterGroups, EqualCallsGiveEqualBits) {
  const std::vector<GroupCase> all = cases();
  for (const GroupCase& c : {all[0], all[2], all[3]}) {
    SCOPED_TRACE(text(c));
    Group g = group(c);
    run(g);
    const auto first = results(g);
    for (int repeat = 0; repeat < 3; ++repeat) {
      run(g);
      EXPECT_TRUE(first == results(g)) << "repeat " << repeat;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, KernelsAdapterGroups, testing::Values(LK_F32, LK_F16, LK_BF16),
                         [](const auto& info) { return std::string(lk_dtype_name(info.param)); });

}  // namespace
}  // namespace lk_test::kernels_adapter_groups_test
