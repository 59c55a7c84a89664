// lk_lora_group_forward and _backward: every layer against float64 loops, and against calls of one layer each.
#include <gmock/gmock.h>

#include <functional>

#include "lora_kernels_group.h"
#include "support/kernel_tensors.h"
#include "support/reference/products.h"

namespace lk_test::kernels_lora_group_test {
namespace {

using testing::HasSubstr;

// One x, and layers of it that differ in what they have besides.
struct Group {
  int64_t rows, in;
  struct Layer {
    int64_t out, rank;
    bool weight = true, bias = false, mask = false;
    lk_dtype kept = LK_F32;  // the weight's type, where it is of 8 bits; else that of x
    bool in_eight_bits() const { return kept != LK_F32; }
  };
  std::vector<Layer> layers;
  bool dx = true, added = false, accumulate = false;
};

const Group groups[] = {
    {3, 40, {{24, 8}, {16, 8}}},
    {5, 33, {{7, 3, true, true}, {33, 5, true, false, true}}, true, true},
    {70, 40, {{40, 8}, {40, 8, true, true, true}, {40, 8}}, true, true},
    {150, 64, {{64, 16}, {64, 16}, {64, 16}}, true, false, true},
    {77, 96, {{40, 16}, {40, 16}}, false},
    {130, 72, {{48, 16, false}, {24, 32}, {136, 16, true, true}, {8, 4, true, false, true}}, true, true, true},
    {300, 136, {{264, 160}, {40, 136}}},
    {300, 328, {{400, 64, true, true}, {264, 48}, {504, 64}}, true, true},
    {260, 264, {{264, 128}, {136, 96, true, true, true}}, true, true, true},
    {77, 136, {{264, 128}, {72, 128}}, false},
    {300, 328, {{400, 16, true, true}, {264, 8}, {504, 16}}, true, true},
    {300, 328, {{400, 32}, {264, 24, true, true}}, true, true},
    {300, 328, {{400, 4, true, true}, {264, 12}, {504, 4}}, true, true},
    {300, 328, {{400, 20}, {264, 24, true, true}, {504, 28}}, true, true},
    {260, 264, {{264, 4}, {136, 6, true, true, true}}, true, true, true},
    {260, 264, {{264, 16}, {136, 4}}, true, false, true},
    {260, 264, {{264, 48}, {136, 36}}, true, true, true},
    {90, 48, {{32, 16, true, true, false, LK_I8}, {48, 16, true, false, true, LK_F8_E4M3}, {16, 16}}, true, true},
};

// Large enough for cuBLASLt on a GPU, the adapters' shares of dx one after the other, as one layer has no weight.
const Group large{12000, 520, {{40, 72, false}, {48, 72}}};

double scale_of(size_t layer) { return 0.5 + 0.25 * static_cast<double>(layer); }

class KernelsLoraGroup : public Kernels, public testing::WithParamInterface<lk_dtype> {
 protected:
  struct Layer {
    Group::Layer n;
    Tensor dy, weight, scale, bias, down, up, mask, y, s, ddown, dup;
  };
  struct Tensors {
    Tensor x, added, dx;
    std::vector<Layer> layers;
  };

  Tensor drawn(const Shape& shape, lk_dtype type) { return random_tensor(context.get(), random, shape, type, -1, 1); }
  Tensor empty(const Shape& shape, lk_dtype type) { return poisoned(context.get(), shape, type); }
  Tensor weight(const Group::Layer& n, int64_t in) {
    if (!n.in_eight_bits()) return drawn({n.out, in}, GetParam());
    return random_tensor(context.get(), random, {n.out, in}, n.kept, -100, 100);
  }
  // As it is multiplied with.
  Values weight_values(const Layer& l) {
    Values values = load(l.weight);
    const Values factors = load(l.scale);
    const size_t in = values.size() / factors.size();
    for (size_t i = 0; l.n.in_eight_bits() && i < values.size(); ++i) values[i] *= factors[i / in];
    return values;
  }
  Tensors tensors(const Group& g) {
    const lk_dtype type = GetParam();
    Tensors t{drawn({g.rows, g.in}, type), drawn({g.rows, g.in}, type), empty({g.rows, g.in}, type), {}};
    const auto gradient = [&](const Shape& shape) {
      return g.accumulate ? drawn(shape, LK_F32) : empty(shape, LK_F32);
    };
    for (const Group::Layer& n : g.layers)
      t.layers.push_back({n, drawn({g.rows, n.out}, type), weight(n, g.in),
                          random_tensor(context.get(), random, {n.out}, LK_F32, 0.005, 0.01), drawn({n.out}, type),
                          drawn({n.rank, g.in}, LK_F32), drawn({n.out, n.rank}, LK_F32), drawn({g.rows, n.rank}, type),
                          empty({g.rows, n.out}, type), empty({g.rows, n.rank}, type), gradient({n.rank, g.in}),
                          gradient({n.out, n.rank})});
    return t;
  }

  static std::vector<lk_lora_forward_params> forward(const Tensors& t) {
    std::vector<lk_lora_forward_params> all;
    for (const Layer& l : t.layers) {
      lk_lora_forward_params& p = all.emplace_back();
      p.scale = static_cast<float>(scale_of(all.size() - 1));
      p.x = t.x.view(), p.down = l.down.view(), p.up = l.up.view(), p.y = l.y.view(), p.s = l.s.view();
      if (l.n.weight) p.weight = l.weight.view();
      if (l.n.in_eight_bits()) p.weight_scale = l.scale.view();
      if (l.n.bias) p.bias = l.bias.view();
      if (l.n.mask) p.mask = l.mask.view();
    }
    return all;
  }
  static std::vector<lk_lora_backward_params> backward(const Tensors& t, const Group& g) {
    std::vector<lk_lora_backward_params> all;
    for (const Layer& l : t.layers) {
      lk_lora_backward_params& p = all.emplace_back();
      p.scale = static_cast<float>(scale_of(all.size() - 1));
      p.dy = l.dy.view(), p.x = t.x.view(), p.s = l.s.view(), p.down = l.down.view(), p.up = l.up.view();
      p.ddown = l.ddown.view(), p.dup = l.dup.view(), p.accumulate = g.accumulate ? 1 : 0;
      if (l.n.weight) p.weight = l.weight.view();
      if (l.n.in_eight_bits()) p.weight_scale = l.scale.view();
      if (l.n.mask) p.mask = l.mask.view();
    }
    return all;
  }
  static lk_lora_group_forward_params group_of(const std::vector<lk_lora_forward_params>& layers) {
    lk_lora_group_forward_params p{};
    p.layers = layers.data(), p.count = static_cast<int32_t>(layers.size());
    return p;
  }
  static lk_lora_group_backward_params group_of(const std::vector<lk_lora_backward_params>& layers, const Tensors& t,
                                                const Group& g) {
    lk_lora_group_backward_params p{};
    p.layers = layers.data(), p.count = static_cast<int32_t>(layers.size());
    if (g.dx) p.dx = t.dx.view();
    if (g.added) p.added = t.added.view();
    return p;
  }
  void run(const Tensors& t, const Group& g) {
    const auto layers = forward(t);
    const lk_lora_group_forward_params p = group_of(layers);
    ASSERT_EQ(lk_lora_group_forward(context.get(), &p), LK_OK) << lk_last_error(context.get());
    const auto back = backward(t, g);
    const lk_lora_group_backward_params b = group_of(back, t, g);
    ASSERT_EQ(lk_lora_group_backward(context.get(), &b), LK_OK) << lk_last_error(context.get());
  }
  // Layer after layer, from the last; each adds to the dx of the one behind it.
  void run_apart(const Tensors& t, const Group& g) {
    for (const lk_lora_forward_params& p : forward(t))
      ASSERT_EQ(lk_lora_forward(context.get(), &p), LK_OK) << lk_last_error(context.get());
    auto back = backward(t, g);
    const Tensor between = empty({g.rows, g.in}, GetParam());
    lk_tensor so_far{};
    if (g.added) so_far = t.added.view();
    for (size_t left = back.size(); left-- > 0;) {
      lk_lora_backward_params& p = back[left];
      if (g.dx) p.dx = left % 2 == 0 ? t.dx.view() : between.view(), p.added = so_far, so_far = p.dx;
      ASSERT_EQ(lk_lora_backward(context.get(), &p), LK_OK) << lk_last_error(context.get());
    }
  }
  std::string error(const lk_lora_group_forward_params& p) {
    EXPECT_EQ(lk_lora_group_forward(context.get(), &p), LK_E_INVALID);
    return lk_last_error(context.get());
  }
  std::string error(const lk_lora_group_backward_params& p) {
    EXPECT_EQ(lk_lora_group_backward(context.get(), &p), LK_E_INVALID);
    return lk_last_error(context.get());
  }
};

// Rounded on the way by devices whose products are of the tensors' type: s, or ds, the adapter's matrix, and the share
// on its own; for dx those of each layer.
constexpr int roundings = 3;

bool on_cpu() { return lh::test::tested_device() == "cpu"; }

std::vector<Group> groups_for(lk_dtype type) {
  std::vector<Group> all(std::begin(groups), std::end(groups));
  if (!on_cpu() && type != LK_F32) all.push_back(large);
  return all;
}

TEST_P(KernelsLoraGroup, IsEachLayerAndOneSum) {
  for (const Group& g : groups_for(GetParam())) {
    SCOPED_TRACE(testing::Message() << g.rows << " x " << g.in << ", " << g.layers.size() << " layers");
    const Tensors t = tensors(g);
    std::vector<Values> ddown_before, dup_before;
    for (const Layer& l : t.layers) {
      const auto before = [&](const Tensor& d, int64_t count) {
        return g.accumulate ? load(d) : Values(static_cast<size_t>(count));
      };
      ddown_before.push_back(before(l.ddown, l.n.rank * g.in));
      dup_before.push_back(before(l.dup, l.n.rank * l.n.out));
    }
    run(t, g);
    const Values x = load(t.x);
    Values dx = g.added ? load(t.added) : Values(x.size());
    int64_t depth = 0;
    for (size_t i = 0; i < t.layers.size(); ++i) {
      SCOPED_TRACE(testing::Message() << "layer " << i);
      const Layer& l = t.layers[i];
      const double scale = scale_of(i);
      const Values mask = l.n.mask ? load(l.mask) : Values(static_cast<size_t>(g.rows * l.n.rank), 1.0);
      const Values weight = l.n.weight ? weight_values(l) : Values{}, down = load(l.down), up = load(l.up);
      Values y = reference::lora({g.in, l.n.out, l.n.rank, scale}, x, weight, down, up, mask);
      const Values bias = load(l.bias);
      for (size_t k = 0; l.n.bias && k < y.size(); ++k) y[k] += bias[k % bias.size()];
      expect_near("y", load(l.y), y, GetParam(), g.in, roundings);
      Values s = reference::linear(x, down, {}, g.in, l.n.rank);
      for (size_t k = 0; k < s.size(); ++k) s[k] *= mask[k];
      expect_near("s", load(l.s), s, GetParam(), g.in, 1);

      const Values dy = load(l.dy);
      Values ds = reference::matmul({1, g.rows, l.n.out, l.n.rank, false, false}, dy, up);
      for (size_t k = 0; k < ds.size(); ++k) ds[k] *= scale * mask[k];
      Values ddown = reference::matmul({1, l.n.rank, g.rows, g.in, true, false}, ds, x);
      Values dup = reference::matmul({1, l.n.out, g.rows, l.n.rank, true, false}, dy, s);
      for (size_t k = 0; k < ddown.size(); ++k) ddown[k] += ddown_before[i][k];
      for (size_t k = 0; k < dup.size(); ++k) dup[k] = scale * dup[k] + dup_before[i][k];
      // Sums over rows of what was rounded to the tensors' type.
      expect_near("ddown", load(l.ddown), ddown, GetParam(), g.rows, roundings);
      expect_near("dup", load(l.dup), dup, GetParam(), g.rows, roundings);
      const Values share = reference::matmul({1, g.rows, l.n.rank, g.in, false, false}, ds, down);
      for (size_t k = 0; k < dx.size(); ++k) dx[k] += share[k];
      if (l.n.weight) {
        const Values base = reference::matmul({1, g.rows, l.n.out, g.in, false, false}, dy, weight);
        for (size_t k = 0; k < dx.size(); ++k) dx[k] += base[k];
      }
      depth += l.n.out + l.n.rank;
    }
    // On the CPU, which rounds nothing on the way, the sum is rounded once.
    const int on_the_way = on_cpu() ? 0 : roundings * static_cast<int>(t.layers.size());
    if (g.dx) expect_near("dx", load(t.dx), dx, GetParam(), depth, on_the_way);
  }
}

// To the bit, but for a dx of 16 bits, which single layers round each.
TEST_P(KernelsLoraGroup, OnTheCpuIsToTheBitWhatSingleLayersAre) {
  if (!on_cpu()) GTEST_SKIP() << "a GPU adds up in another order";
  for (Group g : groups) {
    SCOPED_TRACE(testing::Message() << g.rows << " x " << g.in << ", " << g.layers.size() << " layers");
    g.accumulate = false;
    const Tensors t = tensors(g);
    run(t, g);
    std::vector<std::vector<unsigned char>> want, got;
    const auto note = [&](auto& all) {
      for (const Layer& l : t.layers)
        for (const Tensor& result : {l.y, l.s, l.ddown, l.dup}) all.push_back(result.bytes());
      if (g.dx && (GetParam() == LK_F32 || t.layers.size() == 1)) all.push_back(t.dx.bytes());
    };
    note(got);
    run_apart(t, g);
    note(want);
    EXPECT_TRUE(got == want);
  }
}

TEST_P(KernelsLoraGroup, EqualCallsGiveEqualBits) {
  for (Group g : groups_for(GetParam())) {
    g.accumulate = false;
    const Tensors t = tensors(g);
    run(t, g);
    const auto dx = t.dx.bytes(), y = t.layers.back().y.bytes(), dup = t.layers.front().dup.bytes();
    run(t, g);
    EXPECT_TRUE(dx == t.dx.bytes() && y == t.layers.back().y.bytes() && dup == t.layers.front().dup.bytes());
  }
}

TEST_P(KernelsLoraGroup, RefusesWhatIsNoGroup) {
  const Group g{6, 8, {{4, 2}, {4, 2}}, true, true};
  const Tensors t = tensors(g), others = tensors(g);
  using Forward = std::vector<lk_lora_forward_params>;
  struct Wrong {
    std::function<void(Forward&, lk_lora_group_forward_params&)> make;
    const char* text;
  };
  for (const Wrong& wrong : {
           Wrong{[](Forward&, auto&p) { p.layers = nullptr; }, "lora_group_forward: layers: expected an array"},
           {[](Forward&, auto&p) { p.count = 0; }, "lora_group_forward: count: expected 1 to 4, found 0"},
           {[](Forward&, auto&p) { p.count = 5; }, "lora_group_forward: count: expected 1 to 4, found 5"},
           {[](Forward&l, auto&) { l[1].struct_size = 8; }, "layers: expected struct_size"},
           {[&](Forward&l, auto&) { l[1].x = others.x.view(); },
            "lora_group_forward: layer 1: x: expected the x of layer 0"},
           {[&](Forward&l, auto&) { l[1].down = t.layers[1].up.view(); },
            "lora_group_forward: layer 1: down: expected"},
           {[&](Forward&l, auto&) { l[1].y = t.layers[0].y.view(); },
            "lora_group_forward: layer 0: y: expected no overlap with y"},
           {[&](Forward&l, auto&) { l[0].s = t.layers[1].mask.view(), l[1].mask = l[0].s; },
            "lora_group_forward: layer 0: s: expected no overlap with mask"},
       }) {
    Forward layers = forward(t);
    lk_lora_group_forward_params p = group_of(layers);
    wrong.make(layers, p);
    EXPECT_THAT(error(p), HasSubstr(wrong.text));
  }
  using Backward = std::vector<lk_lora_backward_params>;
  struct WrongBackward {
    std::function<void(Backward&, lk_lora_group_backward_params&)> make;
    const char* text;
  };
  for (const WrongBackward& wrong : {
           WrongBackward{[](Backward&, auto&p) { p.count = 5; }, "lora_group_backward: count: expected 1 to 4"},
           {[&](Backward&l, auto&) { l[0].dx = others.dx.view(); },
            "lora_group_backward: layer 0: dx: expected none: it is the group's, found one"},
           {[&](Backward&, auto&p) { p.dx = {}; }, "lora_group_backward: added: expected dx beside it, found no dx"},
           {[&](Backward&, auto&p) { p.dx = t.layers[0].dy.view(); }, "lora_group_backward: dx: expected shape [6, 8]"},
           {[&](Backward&, auto&p) { p.dx = t.x.view(); }, "lora_group_backward: dx: expected no overlap with x"},
           {[&](Backward&, auto&p) { p.added = p.dx; }, "lora_group_backward: dx: expected no overlap with added"},
           {[&](Backward&l, auto&) { l[1].ddown = t.layers[0].ddown.view(); },
            "lora_group_backward: layer 0: ddown: expected no overlap with ddown"},
       }) {
    Backward layers = backward(t, g);
    lk_lora_group_backward_params p = group_of(layers, t, g);
    wrong.make(layers, p);
    EXPECT_THAT(error(p), HasSubstr(wrong.text));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, KernelsLoraGroup, testing::Values(LK_F32, LK_F16, LK_BF16),
                         [](const auto& info) { return std::string(lk_dtype_name(info.param)); });

}  // namespace

}  // namespace lk_test::kernels_lora_group_test
