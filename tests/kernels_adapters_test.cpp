// lora where an adapter's share may be one or two steps of the frozen product's own sum, which may make s and ds too
// where they have no mask (on devices of capability 9.0): tiles that are full and not along every axis, one and several
// of them, every rank's number of steps. Rows are independent, so a sample of them is compared with the float64 loops.
#include <gtest/gtest.h>

#include "support/kernel_tensors.h"
#include "support/reference/products.h"

namespace lk_test::kernels_adapters_test {
namespace {

struct Size {
  int64_t rows, in, out, rank;
};
constexpr double scale = 0.5;

class KernelsAdapters : public Kernels, public testing::WithParamInterface<lk_dtype> {
 protected:
  static constexpr Size sizes[] = {
      {300, 24, 520, 8},      {300, 520, 24, 8},     {257, 40, 1032, 32},   {257, 1032, 40, 32},
      {140, 72, 264, 24},     {129, 64, 256, 16},    {900, 328, 4000, 16},  {900, 4000, 328, 16},
      {1100, 200, 3400, 16},  {1100, 3400, 200, 16}, {2304, 136, 2048, 16}, {300, 264, 136, 64},
      {1000, 1288, 1272, 16}, {8200, 648, 632, 8},   {333, 264, 520, 128},  {520, 3400, 200, 48},
      {257, 200, 264, 100},   {1100, 200, 520, 72},  {140, 72, 264, 160},   {300, 24, 520, 4},
      {300, 520, 24, 28},     {900, 328, 4000, 4},   {1100, 3400, 200, 12}, {257, 1032, 40, 20},
      {1000, 1288, 1272, 12}, {140, 72, 264, 6},     {257, 200, 264, 10},   {300, 264, 136, 36}};
  // On a GPU of 132 processors of tiles of 128, 160, 192, 208 and 256 columns, forward and backward; above mostly
  // of 96. Without a mask of 96, 128 and 160 that make s and ds, with ranks up to 16 and 32.
  static constexpr Size tiles[] = {
      {300, 72, 3176, 16},     {300, 3176, 72, 16},     {520, 72, 2824, 16},    {520, 2824, 72, 8},
      {520, 72, 3528, 8},      {520, 3528, 72, 16},     {1540, 72, 1736, 16},   {1540, 1736, 72, 16},
      {1540, 72, 1880, 16},    {1540, 1880, 72, 16},    {300, 72, 3176, 24},    {4100, 328, 632, 32},
      {520, 72, 3528, 128},    {520, 3528, 72, 128},    {1540, 72, 1736, 96},   {4100, 328, 632, 64},
      {2304, 1288, 2048, 128}, {2304, 2048, 1288, 128}, {300, 72, 3176, 4},     {4100, 328, 632, 12},
      {520, 3528, 72, 4},      {1540, 1736, 72, 12},    {300, 72, 3176, 20},    {4100, 328, 632, 28},
      {8200, 648, 632, 4},     {520, 72, 3528, 6},      {4100, 1288, 2048, 100}};
  static std::vector<Size> tested_sizes() {
    std::vector<Size> all(std::begin(sizes), std::end(sizes));
    if (lh::test::tested_device() == "cuda") all.insert(all.end(), std::begin(tiles), std::end(tiles));
    return all;
  }

  // A mask decides which kernels a GPU takes.
  static std::vector<bool> masks_of(const Size& n) {
    if (lh::test::tested_device() == "cuda") return {false, true};
    return {n.rows % 2 == 0};
  }

  // Of the first and last rows of tiles, and some in between.
  static std::vector<int64_t> sample(int64_t rows) {
    std::vector<int64_t> some;
    for (int64_t row = 0; row < rows; ++row)
      if (row % 128 == 0 || row % 128 == 127 || row % 97 == 5 || row == rows - 1) some.push_back(row);
    return some;
  }
  Values rows_of(const Tensor& tensor, const std::vector<int64_t>& rows, int64_t width) {
    const Values all = load(tensor);
    Values some;
    for (const int64_t row : rows) some.insert(some.end(), all.begin() + row * width, all.begin() + (row + 1) * width);
    return some;
  }
  Tensor drawn(const Shape& shape, lk_dtype type) { return random_tensor(context.get(), random, shape, type, -1, 1); }

  // A layer's tensors; what is computed is poisoned.
  struct Layer {
    Size n;
    Tensor x, dy, weight, bias, down, up, mask, residual, added, y, s, ds, dx, ddown, dup;
  };
  Layer layer(const Size& n, bool with_mask) {
    const lk_dtype type = GetParam();
    Tensor mask = drawn({n.rows, n.rank}, type);
    if (!with_mask) mask.store(context.get(), Values(static_cast<size_t>(n.rows * n.rank), 1.0));
    const auto empty = [&](const Shape& shape, lk_dtype of) { return poisoned(context.get(), shape, of); };
    return {n,
            drawn({n.rows, n.in}, type),
            drawn({n.rows, n.out}, type),
            drawn({n.out, n.in}, type),
            drawn({n.out}, type),
            drawn({n.rank, n.in}, LK_F32),
            drawn({n.out, n.rank}, LK_F32),
            mask,
            drawn({n.rows, n.out}, type),
            drawn({n.rows, n.in}, type),
            empty({n.rows, n.out}, type),
            empty({n.rows, n.rank}, type),
            empty({n.rows, n.rank}, type),
            empty({n.rows, n.in}, type),
            empty({n.rank, n.in}, LK_F32),
            empty({n.out, n.rank}, LK_F32)};
  }
  void run(const Layer& l, bool with_mask, bool with_residual) {
    lk_lora_forward_params p{};
    p.x = l.x.view(), p.weight = l.weight.view(), p.bias = l.bias.view(), p.down = l.down.view(), p.up = l.up.view();
    p.scale = scale, p.y = l.y.view(), p.s = l.s.view();
    if (with_mask) p.mask = l.mask.view();
    if (with_residual) p.added = l.residual.view();
    ASSERT_EQ(lk_lora_forward(context.get(), &p), LK_OK) << lk_last_error(context.get());
    lk_lora_backward_params b{};
    b.dy = l.dy.view(), b.x = l.x.view(), b.s = l.s.view(), b.weight = l.weight.view(), b.down = l.down.view();
    b.up = l.up.view(), b.scale = scale, b.dx = l.dx.view(), b.ddown = l.ddown.view(), b.dup = l.dup.view();
    b.added = l.added.view(), b.ds = l.ds.view();
    if (with_mask) b.mask = l.mask.view();
    ASSERT_EQ(lk_lora_backward(context.get(), &b), LK_OK) << lk_last_error(context.get());
  }
  static std::string text(const Size& n) {
    return std::to_string(n.rows) + " x " + std::to_string(n.in) + " -> " + std::to_string(n.out) + " rank " +
           std::to_string(n.rank);
  }
};

// Rounded on the way: s, or ds, and the adapter's matrix that it is multiplied with; the share on its own where it is
// not part of the sum, and the sum before it is added. dx is rounded once more, before what it is added to; so is y.
constexpr int roundings = 4;

TEST_P(KernelsAdapters, SharesArePartOfTheSum) {
  for (const Size& n : tested_sizes()) {
    for (const bool with_mask : masks_of(n)) {
      SCOPED_TRACE(text(n) + (with_mask ? ", mask" : ""));
      const Layer l = layer(n, with_mask);
      const bool with_residual = n.out % 16 != 0;
      run(l, with_mask, with_residual);
      const std::vector<int64_t> some = sample(n.rows);
      const auto count = static_cast<int64_t>(some.size());
      const Values x = rows_of(l.x, some, n.in), mask = rows_of(l.mask, some, n.rank), weight = load(l.weight);
      const Values down = load(l.down), up = load(l.up);
      Values s = reference::matmul({1, count, n.in, n.rank, false, true}, x, down);
      for (size_t i = 0; i < s.size(); ++i) s[i] *= mask[i];
      expect_near("s", rows_of(l.s, some, n.rank), s, GetParam(), n.in, 1);
      Values y = reference::lora({n.in, n.out, n.rank, scale}, x, weight, down, up, mask);
      const Values bias = load(l.bias);
      const Values residual = rows_of(l.residual, some, n.out);
      for (size_t i = 0; i < y.size(); ++i) y[i] += bias[i % bias.size()] + (with_residual ? residual[i] : 0);
      expect_near("y", rows_of(l.y, some, n.out), y, GetParam(), n.in, roundings + (with_residual ? 1 : 0));

      const Values dy = rows_of(l.dy, some, n.out);
      Values ds = reference::matmul({1, count, n.out, n.rank, false, false}, dy, up);
      for (size_t i = 0; i < ds.size(); ++i) ds[i] *= scale * mask[i];
      expect_near("ds", rows_of(l.ds, some, n.rank), ds, GetParam(), n.out, 1);
      Values dx = reference::matmul({1, count, n.out, n.in, false, false}, dy, weight);
      const Values share = reference::matmul({1, count, n.rank, n.in, false, false}, ds, down);
      const Values added = rows_of(l.added, some, n.in);
      for (size_t i = 0; i < dx.size(); ++i) dx[i] += share[i] + added[i];
      expect_near("dx", rows_of(l.dx, some, n.in), dx, GetParam(), n.out, roundings + 1);
      for (const Tensor& whole : {l.y, l.s, l.ds, l.dx, l.ddown, l.dup})
        for (const double value : load(whole)) ASSERT_TRUE(std::isfinite(value));
    }
  }
}

TEST_P(KernelsAdapters, EqualCallsGiveEqualBits) {
  for (const Size& n :
       {Size{900, 328, 4000, 16}, Size{1100, 3400, 200, 16}, Size{900, 328, 4000, 4}, Size{1100, 3400, 200, 12}}) {
    SCOPED_TRACE(text(n));
    const Layer l = layer(n, false);
    run(l, false, true);
    const auto y = l.y.bytes(), dx = l.dx.bytes();
    for (int repeat = 0; repeat < 4; ++repeat) {
      run(l, false, true);
      EXPECT_TRUE(y == l.y.bytes() && dx == l.dx.bytes()) << "repeat " << repeat;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, KernelsAdapters, testing::Values(LK_F16, LK_BF16),
                         [](const auto& info) { return std::string(lk_dtype_name(info.param)); });

}  // namespace
}  // namespace lk_test::kernels_adapters_test
