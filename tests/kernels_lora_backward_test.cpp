// lk_lora_backward of an adapter alone, in 16 bits: every set of results that may be wanted, with and without what is
// added, against float64 loops. On devices of capability 9.0 clusters of blocks take it: rows that fill tiles and not,
// for one cluster and several, columns that fill the blocks' slices and not, and every padded rank.
#include <gtest/gtest.h>

#include "support/kernel_tensors.h"
#include "support/reference/products.h"

namespace lk_test::kernels_lora_backward_test {
namespace {

struct Size {
  int64_t rows, in, out, rank;
};
struct Wanted {
  bool mask, added, accumulate, dx, ddown, dup, ds;
};
constexpr double scale = 0.5;

class KernelsLoraBackward : public Kernels, public testing::WithParamInterface<lk_dtype> {
 protected:
  static constexpr Size sizes[] = {
      {9, 8, 16, 1},        {77, 768, 640, 16},   {77, 136, 1160, 8},   {256, 264, 520, 32}, {300, 264, 136, 64},
      {333, 136, 1288, 24}, {512, 520, 72, 32},   {1100, 264, 136, 16}, {333, 72, 520, 128}, {77, 136, 264, 100},
      {140, 72, 40, 160},   {77, 768, 640, 4},    {77, 136, 1160, 12},  {256, 264, 520, 20}, {333, 136, 1288, 4},
      {512, 520, 72, 28},   {1100, 264, 136, 12}, {130, 72, 40, 6},     {90, 136, 72, 10},   {300, 264, 136, 48}};
  // On a GPU fewer rows than its blocks have room for, and more columns than a block has at a time.
  static constexpr Size few_rows_of_many[] = {{256, 3072, 3072, 64}, {250, 2056, 3080, 60}, {256, 1288, 3072, 100}};
  static std::vector<Size> tested_sizes() {
    std::vector<Size> all(std::begin(sizes), std::end(sizes));
    if (lh::test::tested_device() == "cuda")
      all.insert(all.end(), std::begin(few_rows_of_many), std::end(few_rows_of_many));
    return all;
  }
  // All that there is; what a first layer wants; each result alone.
  static constexpr Wanted wanted[] = {
      {true, true, true, true, true, true, true},      {false, false, false, true, true, true, false},
      {true, false, false, false, true, true, false},  {false, true, false, true, false, false, false},
      {false, false, true, false, true, false, false}, {false, false, true, false, false, true, false},
      {true, false, false, false, false, false, true}};

  Tensor drawn(const Shape& shape, lk_dtype type) { return random_tensor(context.get(), random, shape, type, -1, 1); }

  struct Layer {
    Size n;
    Tensor x, dy, s, down, up, mask, added, dx, ddown, dup, ds;
    Values ddown_before, dup_before;
  };
  Layer layer(const Size& n) {
    const lk_dtype type = GetParam();
    Layer l{n,
            drawn({n.rows, n.in}, type),
            drawn({n.rows, n.out}, type),
            drawn({n.rows, n.rank}, type),
            drawn({n.rank, n.in}, LK_F32),
            drawn({n.out, n.rank}, LK_F32),
            drawn({n.rows, n.rank}, type),
            drawn({n.rows, n.in}, type),
            drawn({n.rows, n.in}, type),
            drawn({n.rank, n.in}, LK_F32),
            drawn({n.out, n.rank}, LK_F32),
            drawn({n.rows, n.rank}, type),
            {},
            {}};
    l.ddown_before = load(l.ddown), l.dup_before = load(l.dup);
    return l;
  }
  void run(Layer& l, const Wanted& w) {
    l.ddown.store(context.get(), l.ddown_before);
    l.dup.store(context.get(), l.dup_before);
    lk_lora_backward_params p{};
    p.dy = l.dy.view(), p.x = l.x.view(), p.s = l.s.view(), p.down = l.down.view(), p.up = l.up.view();
    p.scale = scale, p.accumulate = w.accumulate ? 1 : 0;
    if (w.mask) p.mask = l.mask.view();
    if (w.added) p.added = l.added.view();
    if (w.dx) p.dx = l.dx.view();
    if (w.ddown) p.ddown = l.ddown.view();
    if (w.dup) p.dup = l.dup.view();
    if (w.ds) p.ds = l.ds.view();
    ASSERT_EQ(lk_lora_backward(context.get(), &p), LK_OK) << lk_last_error(context.get());
  }
};

// Rounded on the way: `up`; for dx also ds and `down`, and the share before it is added; for ddown also ds.
TEST_P(KernelsLoraBackward, ResultsAreThoseOfPlainLoops) {
  for (const Size& n : tested_sizes()) {
    Layer l = layer(n);
    const Values dy = load(l.dy), mask = load(l.mask);
    const Values plain = reference::matmul({1, n.rows, n.out, n.rank, false, false}, dy, load(l.up));
    const Values dup = reference::matmul({1, n.out, n.rows, n.rank, true, false}, dy, load(l.s));
    for (const bool masked : {false, true}) {
      Values ds = plain;
      for (size_t i = 0; i < ds.size(); ++i) ds[i] *= scale * (masked ? mask[i] : 1);
      const Values share = reference::matmul({1, n.rows, n.rank, n.in, false, false}, ds, load(l.down));
      const Values ddown = reference::matmul({1, n.rank, n.rows, n.in, true, false}, ds, load(l.x));
      for (const Wanted& w : wanted) {
        if (w.mask != masked) continue;
        SCOPED_TRACE(testing::Message() << n.rows << " x " << n.in << " -> " << n.out << ", rank " << n.rank
                                        << ", results " << &w - wanted);
        run(l, w);
        if (w.ds) expect_near("ds", load(l.ds), ds, GetParam(), n.out, 1);
        if (w.dx) {
          Values want = share;
          const Values added = load(l.added);
          for (size_t i = 0; w.added && i < want.size(); ++i) want[i] += added[i];
          expect_near("dx", load(l.dx), want, GetParam(), n.out, w.added ? 4 : 3);
        }
        if (w.ddown) {
          Values want = ddown;
          for (size_t i = 0; w.accumulate && i < want.size(); ++i) want[i] += l.ddown_before[i];
          expect_near("ddown", load(l.ddown), want, GetParam(), n.rows, 2);
        }
        if (w.dup) {
          Values want = dup;
          for (size_t i = 0; i < want.size(); ++i) want[i] = scale * want[i] + (w.accumulate ? l.dup_before[i] : 0);
          expect_near("dup", load(l.dup), want, LK_F32, n.rows);
        }
      }
    }
  }
}

TEST_P(KernelsLoraBackward, EqualCallsGiveEqualBits) {
  for (const Size& n : tested_sizes()) {
    SCOPED_TRACE(testing::Message() << n.rows << " x " << n.in << " -> " << n.out << ", rank " << n.rank);
    Layer l = layer(n);
    const auto bytes = [&] {
      run(l, wanted[0]);
      return std::vector{l.dx.bytes(), l.ddown.bytes(), l.dup.bytes(), l.ds.bytes()};
    };
    const auto first = bytes();
    for (int repeat = 0; repeat < 4; ++repeat) EXPECT_TRUE(first == bytes()) << "repeat " << repeat;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, KernelsLoraBackward, testing::Values(LK_F16, LK_BF16),
                         [](const auto& info) { return std::string(lk_dtype_name(info.param)); });

}  // namespace

}  // namespace lk_test::kernels_lora_backward_test
