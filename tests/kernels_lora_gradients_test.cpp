// lk_lora_gradients: every layer against float64 loops, and against lk_lora_backward, whose ds it takes.
#include <gmock/gmock.h>

#include <functional>

#include "lora_kernels_group.h"
#include "support/kernel_tensors.h"
#include "support/reference/products.h"

namespace lk_test::kernels_lora_gradients_test {
namespace {

using testing::HasSubstr;

struct Sizes {
  int64_t rows, in, out, rank;
};
using Set = std::vector<Sizes>;

// As many layers as there may be, of every kind that a GPU has a way of its own for: few rows, tensor cores with ranks
// up to 16, 32, 64 and 128, odd widths, and a rank that is left to the library.
Set most_layers() {
  Set set;
  for (int64_t i = 0; i < LK_LORA_GRADIENTS_MAX; ++i) set.push_back({1 + i * i, 24 + 8 * i, 40 + i, 4 + i % 4 * 4});
  return set;
}

const Set sets[] = {{{5, 33, 7, 3}},
                    {{150, 64, 96, 16}, {77, 40, 24, 8}},
                    {{300, 136, 264, 160}, {1, 48, 32, 16}, {90, 33, 65, 32}, {130, 256, 128, 16}},
                    {{300, 136, 264, 64}, {77, 65, 33, 64}, {700, 72, 40, 40}, {190, 264, 136, 33}},
                    {{300, 136, 264, 128}, {77, 65, 33, 65}, {700, 72, 40, 128}, {190, 264, 136, 100}},
                    {{700, 264, 136, 16}, {77, 136, 264, 16}, {700, 136, 136, 16}},
                    {{700, 264, 136, 4}, {77, 136, 264, 12}, {300, 65, 33, 4}, {90, 40, 24, 6}},
                    {{300, 136, 264, 20}, {130, 256, 128, 28}, {77, 72, 40, 24}},
                    {{256, 1032, 1288, 64}, {256, 264, 520, 36}},
                    most_layers()};

class KernelsLoraGradients : public Kernels, public testing::WithParamInterface<lk_dtype> {
 protected:
  struct Layer {
    Sizes n;
    float scale;
    Tensor x, dy, s, ds, down, up, ddown, dup;
  };

  std::vector<Layer> layers_of(const Set& set, bool accumulate) {
    const auto drawn = [&](const Shape& shape, lk_dtype type) {
      return random_tensor(context.get(), random, shape, type, -1, 1);
    };
    const auto gradient = [&](const Shape& shape) {
      return accumulate ? drawn(shape, LK_F32) : poisoned(context.get(), shape, LK_F32);
    };
    std::vector<Layer> all;
    const lk_dtype type = GetParam();
    for (const Sizes& n : set)
      all.push_back({n, 0.5f + 0.25f * static_cast<float>(all.size()), drawn({n.rows, n.in}, type),
                     drawn({n.rows, n.out}, type), drawn({n.rows, n.rank}, type), drawn({n.rows, n.rank}, type),
                     drawn({n.rank, n.in}, LK_F32), drawn({n.out, n.rank}, LK_F32), gradient({n.rank, n.in}),
                     gradient({n.out, n.rank})});
    return all;
  }
  static std::vector<lk_lora_gradients_layer> given(const std::vector<Layer>& layers, bool accumulate) {
    std::vector<lk_lora_gradients_layer> all;
    for (const Layer& l : layers) {
      lk_lora_gradients_layer& p = all.emplace_back();
      p.x = l.x.view(), p.dy = l.dy.view(), p.s = l.s.view(), p.ds = l.ds.view();
      p.scale = l.scale, p.accumulate = accumulate ? 1 : 0, p.ddown = l.ddown.view(), p.dup = l.dup.view();
    }
    return all;
  }
  lk_status call(const std::vector<lk_lora_gradients_layer>& layers) {
    lk_lora_gradients_params p{};
    p.layers = layers.data(), p.count = static_cast<int32_t>(layers.size());
    return lk_lora_gradients(context.get(), &p);
  }
  void run(const std::vector<Layer>& layers, bool accumulate) {
    ASSERT_EQ(call(given(layers, accumulate)), LK_OK) << lk_last_error(context.get());
  }
};

TEST_P(KernelsLoraGradients, AreThoseOfEachLayer) {
  for (const Set& set : sets)
    for (const bool accumulate : {false, true}) {
      const std::vector<Layer> layers = layers_of(set, accumulate);
      std::vector<std::pair<Values, Values>> before;
      for (const Layer& l : layers)
        before.push_back(accumulate ? std::pair(load(l.ddown), load(l.dup))
                                    : std::pair(Values(static_cast<size_t>(l.n.rank * l.n.in)),
                                                Values(static_cast<size_t>(l.n.out * l.n.rank))));
      run(layers, accumulate);
      for (size_t i = 0; i < layers.size(); ++i) {
        const Layer& l = layers[i];
        const Sizes& n = l.n;
        SCOPED_TRACE(testing::Message() << "layer " << i << " of " << layers.size() << ": " << n.rows << " x " << n.in
                                        << " -> " << n.out << ", rank " << n.rank << (accumulate ? ", added" : ""));
        Values ddown = reference::matmul({1, n.rank, n.rows, n.in, true, false}, load(l.ds), load(l.x));
        Values dup = reference::matmul({1, n.out, n.rows, n.rank, true, false}, load(l.dy), load(l.s));
        for (size_t k = 0; k < ddown.size(); ++k) ddown[k] += before[i].first[k];
        for (size_t k = 0; k < dup.size(); ++k) dup[k] = static_cast<double>(l.scale) * dup[k] + before[i].second[k];
        expect_near("ddown", load(l.ddown), ddown, LK_F32, n.rows);
        expect_near("dup", load(l.dup), dup, LK_F32, n.rows);
      }
    }
}

// Which the tensors' type has rounded where lk_lora_backward keeps more.
TEST_P(KernelsLoraGradients, TakeTheDsOfTheBackwardPass) {
  for (const Set& set : sets) {
    const std::vector<Layer> layers = layers_of(set, false);
    for (const Layer& l : layers) {
      lk_lora_backward_params p{};
      p.dy = l.dy.view(), p.x = l.x.view(), p.down = l.down.view(), p.up = l.up.view();
      p.scale = l.scale, p.ds = l.ds.view();
      ASSERT_EQ(lk_lora_backward(context.get(), &p), LK_OK) << lk_last_error(context.get());
      const Sizes& n = l.n;
      Values ds = reference::matmul({1, n.rows, n.out, n.rank, false, false}, load(l.dy), load(l.up));
      for (double& v : ds) v *= static_cast<double>(l.scale);
      expect_near("ds", load(l.ds), ds, GetParam(), n.out, 1);
    }
    run(layers, false);
    for (const Layer& l : layers) {
      const Values ddown = load(l.ddown), dup = load(l.dup);
      lk_lora_backward_params p{};
      p.dy = l.dy.view(), p.x = l.x.view(), p.s = l.s.view(), p.down = l.down.view(), p.up = l.up.view();
      p.scale = l.scale, p.ddown = l.ddown.view(), p.dup = l.dup.view();
      ASSERT_EQ(lk_lora_backward(context.get(), &p), LK_OK) << lk_last_error(context.get());
      expect_near("ddown", ddown, load(l.ddown), GetParam(), l.n.rows, 1);
      expect_near("dup", dup, load(l.dup), LK_F32, l.n.rows);
    }
  }
}

TEST_P(KernelsLoraGradients, EqualCallsGiveEqualBits) {
  for (const Set& set : sets) {
    const std::vector<Layer> layers = layers_of(set, false);
    run(layers, false);
    std::vector<std::vector<unsigned char>> first, second;
    for (const Layer& l : layers) first.push_back(l.ddown.bytes()), first.push_back(l.dup.bytes());
    run(layers, false);
    for (const Layer& l : layers) second.push_back(l.ddown.bytes()), second.push_back(l.dup.bytes());
    EXPECT_TRUE(first == second);
  }
}

TEST_P(KernelsLoraGradients, RefuseWhatDoesNotFit) {
  const std::vector<Layer> layers = layers_of({{6, 8, 4, 2}, {6, 8, 4, 2}}, false);
  using Given = std::vector<lk_lora_gradients_layer>;
  struct Wrong {
    std::function<void(Given&)> make;
    const char* text;
  };
  for (const Wrong& wrong : {
           Wrong{[](Given& l) { l.clear(); }, "lora_gradients: "},
           {[](Given& l) { l.resize(LK_LORA_GRADIENTS_MAX + 1, l[0]); },
            "lora_gradients: count: expected 1 to 16, found 17"},
           {[](Given& l) { l[1].struct_size = 8; }, "layers: expected struct_size"},
           {[](Given& l) { l[1].ds = {}; }, "lora_gradients: layer 1: ds: expected a tensor"},
           {[&](Given& l) { l[1].dy = layers[0].down.view(); }, "lora_gradients: layer 1: dy: expected shape [6, 8]"},
           {[&](Given& l) { l[0].ddown = layers[0].up.view(); },
            "lora_gradients: layer 0: ddown: expected shape [2, 8]"},
           {[&](Given& l) { l[1].dup = layers[0].dup.view(); },
            "lora_gradients: layer 0: dup: expected no overlap with dup"},
       }) {
    Given all = given(layers, false);
    wrong.make(all);
    EXPECT_EQ(call(all), LK_E_INVALID);
    EXPECT_THAT(lk_last_error(context.get()), HasSubstr(wrong.text));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, KernelsLoraGradients, testing::Values(LK_F32, LK_F16, LK_BF16),
                         [](const auto& info) { return std::string(lk_dtype_name(info.param)); });

}  // namespace

}  // namespace lk_test::kernels_lora_gradients_test
