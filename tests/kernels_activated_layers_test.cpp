// Layers with adapters that an activation follows: the layer's y, and the bits that the activation of that y has by
// itself, whether a product makes both or a pass is added.
#include <gtest/gtest.h>

#include "lora_kernels_group.h"
#include "support/kernel_tensors.h"

namespace lk_test::kernels_activated_layers_test {
namespace {

// `wide` columns, of whose last the activation is.
struct Size {
  int64_t rows, narrow, wide, rank, from;
};
constexpr Size sizes[] = {{3, 24, 40, 4, 0},          {300, 24, 520, 8, 0},       {129, 2048, 256, 16, 0},
                          {257, 2056, 1032, 32, 256}, {257, 40, 1032, 16, 8},     {600, 2048, 1512, 16, 0},
                          {300, 2304, 768, 64, 256},  {1100, 72, 3400, 16, 1024}, {129, 2048, 256, 4, 0},
                          {257, 2056, 1032, 20, 256}};
// Where the columns behind `from` gate each other; and for GPUs, whose products do it, fewer pairs of tiles than run at
// once, and more, and tiles behind them.
constexpr Size gate_sizes[] = {{3, 24, 40, 4, 8}, {300, 24, 520, 8, 0}, {300, 2056, 1048, 16, 24}};
constexpr Size wide_gate_sizes[] = {{1100, 2048, 2048, 128, 0}, {2300, 2048, 4352, 16, 256}, {1100, 2048, 2048, 4, 0}};
constexpr int64_t before_lines = 16, behind_lines = 8;

class KernelsActivatedLayers : public Kernels, public testing::WithParamInterface<lk_dtype> {
 protected:
  Tensor drawn(const Shape& shape, lk_dtype type) { return random_tensor(context.get(), random, shape, type, -2, 2); }
  Tensor empty(const Shape& shape, lk_dtype type) { return poisoned(context.get(), shape, type); }
  // Columns of a wider matrix.
  static lk_tensor columns(lk_tensor t, int64_t from, int64_t count) {
    t.strides[0] = t.dims[1], t.strides[1] = 1;
    t.data = static_cast<char*>(t.data) + from * lk_dtype_size(t.dtype);
    t.dims[1] = count;
    return t;
  }
  static int64_t width_of(int64_t count, bool in_lines) {
    return in_lines ? before_lines + count + behind_lines : count;
  }
  static lk_tensor in_place(const Tensor& t, int64_t count, bool in_lines) {
    return in_lines ? columns(t.view(), before_lines, count) : t.view();
  }
  void expect(lk_status status) { ASSERT_EQ(status, LK_OK) << lk_last_error(context.get()); }

  void forward(const Size& n, int32_t kind, bool in_lines) {
    const lk_dtype type = GetParam();
    const int64_t count = n.wide - n.from;
    const Tensor x = drawn({n.rows, n.narrow}, type), weight = drawn({n.wide, n.narrow}, type);
    const Tensor bias = drawn({n.wide}, LK_F32), down = drawn({n.rank, n.narrow}, LK_F32);
    const Tensor up = drawn({n.wide, n.rank}, LK_F32);
    const Tensor y[] = {empty({n.rows, n.wide}, type), empty({n.rows, n.wide}, type)};
    const Tensor activated[] = {empty({n.rows, width_of(count, in_lines)}, type),
                                empty({n.rows, width_of(count, in_lines)}, type)};
    const Tensor s = empty({n.rows, n.rank}, type);
    lk_lora_forward_params p{};
    p.x = x.view(), p.weight = weight.view(), p.bias = bias.view(), p.down = down.view(), p.up = up.view();
    p.scale = 0.05f, p.y = y[0].view(), p.s = s.view();
    expect(lk_lora_forward(context.get(), &p));
    p.y = y[1].view();
    p.activated = in_place(activated[1], count, in_lines);
    p.activation = kind;
    p.activated_from = n.from;
    expect(lk_lora_forward(context.get(), &p));
    const lk_unary_params f{.kind = kind,
                            .a = 0,
                            .b = 0,
                            .x = columns(y[1].view(), n.from, count),
                            .y = in_place(activated[0], count, in_lines)};
    expect(lk_unary(context.get(), &f));
    EXPECT_EQ(activated[1].bytes(), activated[0].bytes());
    expect_same_layer(y[1], y[0], n.narrow);
  }

  // On a GPU the layer alone may go to another product: both round y, and one of them also the adapter's share.
  void expect_same_layer(const Tensor& got, const Tensor& want, int64_t summed) {
    if (lh::test::tested_device() == "cpu")
      EXPECT_EQ(got.bytes(), want.bytes());
    else
      expect_near("y", load(got), load(want), GetParam(), summed, 2);
  }

  struct Layer {
    Tensor weight, bias, down, up, y, alone, s;
    int64_t width;
  };
  Layer layer(int64_t rows, int64_t narrow, int64_t wide, int64_t rank) {
    const lk_dtype type = GetParam();
    return {drawn({wide, narrow}, type),   drawn({wide}, LK_F32),
            drawn({rank, narrow}, LK_F32), drawn({wide, rank}, LK_F32),
            empty({rows, wide}, type),     empty({rows, wide}, type),
            empty({rows, rank}, type),     wide};
  }
  static lk_lora_forward_params params_of(const Layer& l, const Tensor& x) {
    lk_lora_forward_params p{};
    p.x = x.view(), p.weight = l.weight.view(), p.bias = l.bias.view(), p.down = l.down.view(), p.up = l.up.view();
    p.scale = 0.05f, p.y = l.alone.view(), p.s = l.s.view();
    return p;
  }
  // What a pass over a and b makes, beside what was made of them.
  void expect_gated(int32_t kind, const lk_tensor& a, const lk_tensor& b, const Tensor& got, int64_t count,
                    bool in_lines) {
    const Tensor want = empty({got.view().dims[0], width_of(count, in_lines)}, GetParam());
    const lk_gated_activation_params f{.kind = kind, .a = a, .b = b, .y = in_place(want, count, in_lines)};
    expect(lk_gated_activation(context.get(), &f));
    EXPECT_EQ(got.bytes(), want.bytes());
  }

  void gate(const Size& n, int32_t kind, bool in_lines) {
    const int64_t count = (n.wide - n.from) / 2;
    const Tensor x = drawn({n.rows, n.narrow}, GetParam());
    const Layer l = layer(n.rows, n.narrow, n.wide, n.rank);
    lk_lora_forward_params p = params_of(l, x);
    expect(lk_lora_forward(context.get(), &p));
    const Tensor activated = empty({n.rows, width_of(count, in_lines)}, GetParam());
    p.y = l.y.view();
    p.activated = in_place(activated, count, in_lines);
    p.activation = kind, p.activated_from = n.from, p.gates = 1;
    expect(lk_lora_forward(context.get(), &p));
    expect_gated(kind, columns(l.y.view(), n.from, count), columns(l.y.view(), n.from + count, count), activated, count,
                 in_lines);
    expect_same_layer(l.y, l.alone, n.narrow);
  }

  // One layer gates another, each as wide as what gates in `n`.
  void gate_layers(const Size& n, int32_t kind, bool in_lines) {
    const int64_t count = (n.wide - n.from) / 2;
    const Tensor x = drawn({n.rows, n.narrow}, GetParam());
    const Layer layers[] = {layer(n.rows, n.narrow, count, n.rank), layer(n.rows, n.narrow, count, n.rank)};
    std::vector<lk_lora_forward_params> all{params_of(layers[0], x), params_of(layers[1], x)};
    for (const lk_lora_forward_params& p : all) expect(lk_lora_forward(context.get(), &p));
    for (size_t i = 0; i < all.size(); ++i) all[i].y = layers[i].y.view();
    const Tensor activated = empty({n.rows, width_of(count, in_lines)}, GetParam());
    lk_lora_group_forward_params p{};
    p.layers = all.data(), p.count = 2;
    p.activated = in_place(activated, count, in_lines), p.activation = kind;
    expect(lk_lora_group_forward(context.get(), &p));
    expect_gated(kind, layers[0].y.view(), layers[1].y.view(), activated, count, in_lines);
    for (const Layer& l : layers) expect_same_layer(l.y, l.alone, n.narrow);
  }
};

TEST_P(KernelsActivatedLayers, ActivateWhatTheLayerStores) {
  for (const Size& n : sizes)
    for (const int32_t kind : {LK_GELU_TANH, LK_GELU_ERF})
      for (const bool in_lines : {false, true}) {
        SCOPED_TRACE(testing::Message() << n.rows << " x " << n.narrow << ", " << n.wide << " rank " << n.rank
                                        << " from " << n.from << (in_lines ? " in lines" : "") << " kind " << kind);
        forward(n, kind, in_lines);
        if (HasFailure()) return;
      }
}

TEST_P(KernelsActivatedLayers, GateWhatTheyStore) {
  const auto run = [&](const Size& n, int32_t kind, bool in_lines) {
    SCOPED_TRACE(testing::Message() << n.rows << " x " << n.narrow << ", " << n.wide << " rank " << n.rank << " from "
                                    << n.from << (in_lines ? " in lines" : "") << " kind " << kind);
    gate(n, kind, in_lines);
    gate_layers(n, kind, in_lines);
  };
  for (const Size& n : gate_sizes)
    for (const int32_t kind : {LK_SILU, LK_GELU_TANH, LK_GELU_ERF})
      for (const bool in_lines : {false, true})
        if (!HasFailure()) run(n, kind, in_lines);
  if (lh::test::tested_device() == "cpu") return;
  for (const Size& n : wide_gate_sizes)
    if (!HasFailure()) run(n, LK_SILU, true);
}

INSTANTIATE_TEST_SUITE_P(All, KernelsActivatedLayers, testing::Values(LK_F32, LK_F16, LK_BF16),
                         [](const auto& info) { return std::string(lk_dtype_name(info.param)); });

using KernelsActivatedLayer = Kernels;

TEST_F(KernelsActivatedLayer, RefusesWhatDoesNotFit) {
  const auto tensor = [&](const Shape& shape) { return poisoned(context.get(), shape, LK_F32); };
  const Tensor x = tensor({9, 16}), weight = tensor({24, 16}), down = tensor({4, 16}), up = tensor({24, 4});
  const Tensor y = tensor({9, 24}), s = tensor({9, 4}), all = tensor({9, 24});
  lk_lora_forward_params p{};
  p.x = x.view(), p.weight = weight.view(), p.down = down.view(), p.up = up.view(), p.scale = 1;
  p.y = y.view(), p.s = s.view(), p.activated = all.view(), p.activation = LK_GELU_TANH;
  const auto refused = [&](const char* text) {
    EXPECT_EQ(lk_lora_forward(context.get(), &p), LK_E_INVALID);
    EXPECT_NE(std::string(lk_last_error(context.get())).find(text), std::string::npos) << lk_last_error(context.get());
  };
  p.activation = LK_SILU;
  refused("lora_forward: activation: expected LK_GELU_ERF or LK_GELU_TANH");
  p.activation = LK_GELU_TANH;
  p.activated_from = 24;
  refused("activated_from: expected 0 to 23, found 24");
  p.activated_from = 4;
  refused("activated: expected shape [9, 20], found [9, 24]");
  p.activated_from = 0;
  p.activated = y.view();
  refused("overlap");
  p.activated = all.view();
  p.gates = 2;
  refused("gates: expected 0 or 1, found 2");
  p.gates = 1;
  refused("activated: expected shape [9, 12], found [9, 24]");
  p.activation = LK_RELU;
  refused("activation: expected LK_SILU, LK_GELU_ERF or LK_GELU_TANH (0 to 2), found 6");
  p.activation = LK_SILU;
  p.activated_from = 3;
  refused("activated_from: expected an even number of columns behind it, of which half gate, found 21");
  p.activated_from = 0, p.gates = 0, p.activation = LK_GELU_TANH;

  p.activated = all.view();
  lk_lora_group_forward_params group{};
  group.layers = &p, group.count = 1;
  EXPECT_EQ(lk_lora_group_forward(context.get(), &group), LK_E_INVALID);
  EXPECT_NE(std::string(lk_last_error(context.get())).find("activated: expected none in a group"), std::string::npos)
      << lk_last_error(context.get());
}

TEST_F(KernelsActivatedLayer, RefusesGroupsThatDoNotFit) {
  const auto tensor = [&](const Shape& shape) { return poisoned(context.get(), shape, LK_F32); };
  const Tensor x = tensor({9, 16}), down = tensor({4, 16}), up = tensor({24, 4}), narrow = tensor({20, 4});
  const Tensor y[] = {tensor({9, 24}), tensor({9, 24})}, s[] = {tensor({9, 4}), tensor({9, 4})}, all = tensor({9, 24});
  lk_lora_forward_params layers[2] = {};
  for (size_t i = 0; i < 2; ++i) {
    lk_lora_forward_params& p = layers[i];
    p.x = x.view(), p.down = down.view(), p.up = up.view(), p.scale = 1, p.y = y[i].view(), p.s = s[i].view();
  }
  lk_lora_group_forward_params group{};
  group.layers = layers, group.count = 2, group.activated = all.view(), group.activation = LK_SILU;
  const auto refused = [&](const char* text) {
    EXPECT_EQ(lk_lora_group_forward(context.get(), &group), LK_E_INVALID);
    EXPECT_NE(std::string(lk_last_error(context.get())).find(text), std::string::npos) << lk_last_error(context.get());
  };
  group.count = 1;
  refused("count: expected 2 where one layer gates the other, found 1");
  group.count = 2, group.activation = LK_RELU;
  refused("activation: expected LK_SILU, LK_GELU_ERF or LK_GELU_TANH (0 to 2), found 6");
  group.activation = LK_SILU, group.activated = y[1].view();
  refused("overlap");
  const Tensor other = tensor({9, 20});
  group.activated = other.view();
  refused("activated: expected shape [9, 24], found [9, 20]");
  layers[1].up = narrow.view(), layers[1].y = other.view(), group.activated = all.view();
  refused("layer 1: y: expected shape [9, 24], found [9, 20]");
}

}  // namespace

}  // namespace lk_test::kernels_activated_layers_test
