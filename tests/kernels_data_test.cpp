// The operations of liblora_kernels that move, combine and reduce data, and the contexts themselves.
#include <gmock/gmock.h>

#include <cstring>
#include <numeric>

#include "support/kernel_tensors.h"
#include "support/reference/elementwise.h"
#include "support/reference/products.h"
#include "support/reference/rows.h"

namespace lk_test::kernels_data_test {
namespace {

TEST_F(Kernels, BinaryBroadcasts) {
  const std::vector<std::pair<Shape, Shape>> shapes = {
      {{2, 3, 31}, {2, 3, 31}}, {{2, 3, 31}, {1}},    {{2, 3, 31}, {31}}, {{2, 3, 31}, {2, 1, 31}},
      {{3, 1}, {2, 1, 33}},     {{2, 3, 31}, {3, 1}}, {{1}, {1}},         {{2, 1, 4, 1}, {3, 1, 5}}};
  for (const auto& [a_shape, b_shape] : shapes) {
    for (lk_binary_kind kind = LK_ADD; kind <= LK_GREATER; ++kind) {
      const Tensor a = random_tensor(context.get(), random, a_shape, LK_F32, 0.5, 2);
      const Tensor b = random_tensor(context.get(), random, b_shape, LK_F32, 0.5, 2);
      const Shape shape = reference::broadcast(a_shape, b_shape);
      const Tensor y = poisoned(context.get(), shape, LK_F32);
      const lk_binary_params p{.kind = kind, .a = a.view(), .b = b.view(), .y = y.view()};
      ASSERT_EQ(lk_binary(context.get(), &p), LK_OK) << lk_last_error(context.get());
      const Values expected = reference::binary(kind, a_shape, load(a), b_shape, load(b)), found = load(y);
      for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_NEAR(found[i], expected[i], 4e-7) << "kind " << kind << " element " << i;
      }
    }
  }
}

TEST_F(Kernels, IntegersWrapAndRefuseWhatHasNoMeaning) {
  const Tensor a = integers({3}, {INT32_MAX, -7, 1 << 20}), b = integers({1}, {3}), y({3}, LK_I32), f({3}, LK_F32);
  const auto values = [&](const Tensor& t) {
    std::vector<int32_t> found(3);
    std::memcpy(found.data(), t.bytes().data(), sizeof(int32_t) * found.size());
    return found;
  };
  lk_binary_params p{.kind = LK_ADD, .a = a.view(), .b = b.view(), .y = y.view()};
  ASSERT_EQ(lk_binary(context.get(), &p), LK_OK) << lk_last_error(context.get());
  EXPECT_EQ(values(y), (std::vector<int32_t>{INT32_MIN + 2, -4, (1 << 20) + 3}));
  p.kind = LK_GREATER;
  p.y = f.view();  // the result of a comparison is either
  ASSERT_EQ(lk_binary(context.get(), &p), LK_OK) << lk_last_error(context.get());
  EXPECT_EQ(load(f), (Values{1, 0, 1}));
  p.kind = LK_DIV;
  p.y = y.view();
  EXPECT_EQ(lk_binary(context.get(), &p), LK_E_INVALID);
  EXPECT_STREQ(lk_last_error(context.get()), "binary: kind: expected no division of i32, found LK_DIV");
  p = {.kind = LK_ADD, .a = a.view(), .b = f.view(), .y = y.view()};
  EXPECT_EQ(lk_binary(context.get(), &p), LK_E_INVALID);

  lk_unary_params u{.kind = LK_AFFINE, .a = 4096, .b = -1, .x = a.view(), .y = y.view()};
  ASSERT_EQ(lk_unary(context.get(), &u), LK_OK) << lk_last_error(context.get());
  EXPECT_EQ(values(y), (std::vector<int32_t>{-4097, -28673, -1}));
  u.a = 0.5f;
  EXPECT_EQ(lk_unary(context.get(), &u), LK_E_INVALID);
  u.kind = LK_EXP;
  EXPECT_EQ(lk_unary(context.get(), &u), LK_E_INVALID);

  const Tensor sum({1}, LK_I32);
  lk_reduce_sum_params s{.x = a.view(), .y = sum.view(), .scale = 1.0f};
  ASSERT_EQ(lk_reduce_sum(context.get(), &s), LK_OK) << lk_last_error(context.get());
  int32_t total = 0;
  std::memcpy(&total, sum.bytes().data(), sizeof total);
  EXPECT_EQ(total, INT32_MIN + (1 << 20) - 8);
  s.scale = 0.5f;
  EXPECT_EQ(lk_reduce_sum(context.get(), &s), LK_E_INVALID);
}

TEST_F(Kernels, ComparisonsGiveIntegersAndNanIsNeverTrue) {
  const Tensor a = floats({4}, {1, 2, 3, NAN}), b = floats({4}, {2, 2, 2, NAN}), y({4}, LK_I32);
  const std::vector<std::pair<lk_binary_kind, Values>> expected = {{LK_GREATER_EQUAL, {0, 1, 1, 0}},
                                                                   {LK_EQUAL, {0, 1, 0, 0}},
                                                                   {LK_LESS, {1, 0, 0, 0}},
                                                                   {LK_LESS_EQUAL, {1, 1, 0, 0}},
                                                                   {LK_GREATER, {0, 0, 1, 0}}};
  for (const auto& [kind, values] : expected) {
    const lk_binary_params p{.kind = kind, .a = a.view(), .b = b.view(), .y = y.view()};
    ASSERT_EQ(lk_binary(context.get(), &p), LK_OK) << lk_last_error(context.get());
    EXPECT_EQ(load(y), values) << "kind " << kind;
  }
}

TEST_F(Kernels, PermuteMatchesIndexing) {
  const Shape shape = {3, 1, 33, 5};
  std::vector<int32_t> axes = {0, 1, 2, 3};
  const Tensor x = counting(shape);
  const Values from = load(x);
  do {
    Shape out;
    for (const int32_t axis : axes) out.push_back(shape[axis]);
    const Tensor y = poisoned(context.get(), out, LK_F32);
    lk_permute_params p{.x = x.view(), .y = y.view()};
    std::copy(axes.begin(), axes.end(), p.axes);
    ASSERT_EQ(lk_permute(context.get(), &p), LK_OK) << lk_last_error(context.get());
    const Values got = load(y);
    const int64_t strides[] = {165, 165, 5, 1};
    for (int64_t i = 0; i < count_of(out); ++i) {
      int64_t rest = i, offset = 0;
      for (int k = 3; k >= 0; --k) {
        offset += rest % out[k] * strides[axes[k]];
        rest /= out[k];
      }
      ASSERT_EQ(got[i], from[offset]);
    }
  } while (std::next_permutation(axes.begin(), axes.end()));
}

TEST_F(Kernels, CopyBlockExpandFillWhere) {
  const Tensor x = counting({2, 3, 4});
  Tensor y = floats({2, 2, 5}, Values(20, -1.0));
  lk_copy_block_params copy{
      .x = x.view(), .y = y.view(), .extent = {1, 2, 3}, .x_offset = {1, 1, 1}, .y_offset = {0, 0, 2}, .x_step = 1};
  ASSERT_EQ(lk_copy_block(context.get(), &copy), LK_OK) << lk_last_error(context.get());
  EXPECT_EQ(load(y), (Values{-1, -1, 18, 19, 20, -1, -1, 22, 23, 24, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1}));
  copy.x_offset[2] = 2;
  EXPECT_EQ(lk_copy_block(context.get(), &copy), LK_E_INVALID);
  EXPECT_NE(std::string(lk_last_error(context.get())).find("x_offset"), std::string::npos);

  const Tensor row = counting({2, 1, 2}), wide = poisoned(context.get(), {2, 3, 2}, LK_BF16);
  const lk_expand_params expand{.x = row.view(), .y = wide.view()};
  ASSERT_EQ(lk_expand(context.get(), &expand), LK_OK);
  EXPECT_EQ(load(wide), (Values{1, 2, 1, 2, 1, 2, 3, 4, 3, 4, 3, 4}));

  for (const lk_dtype dtype : {LK_F32, LK_F16, LK_BF16, LK_F8_E4M3, LK_F8_E5M2, LK_I32, LK_I64, LK_U8, LK_I8}) {
    const Tensor filled({33}, dtype);
    const lk_fill_params fill{.y = filled.view(), .value = 3.0};
    ASSERT_EQ(lk_fill(context.get(), &fill), LK_OK);
    EXPECT_EQ(load(filled), Values(33, 3.0)) << lk_dtype_name(dtype);
  }
  const Tensor a = floats({3}, {1, 2, 3}), b = floats({3}, {-1, -2, -3}), chosen({3}, LK_F32);
  const Tensor condition = integers({3}, {0, 5, 0});
  const lk_where_params where{.condition = condition.view(), .a = a.view(), .b = b.view(), .y = chosen.view()};
  ASSERT_EQ(lk_where(context.get(), &where), LK_OK);
  EXPECT_EQ(load(chosen), (Values{-1, 2, -3}));
}

TEST_F(Kernels, EmbeddingGatherFindFirst) {
  const Tensor table = counting({3, 2}), ids = integers({2, 2}, {2, 0, 1, 1}), y({2, 2, 2}, LK_F32);
  lk_embedding_params embedding{.ids = ids.view(), .table = table.view(), .y = y.view()};
  ASSERT_EQ(lk_embedding(context.get(), &embedding), LK_OK);
  EXPECT_EQ(load(y), (Values{5, 6, 1, 2, 3, 4, 3, 4}));
  const Tensor outside = integers({2, 2}, {2, 0, 3, 1});
  embedding.ids = outside.view();
  if (lh::test::tested_device() == "cpu") {
    EXPECT_EQ(lk_embedding(context.get(), &embedding), LK_E_INVALID);
    EXPECT_STREQ(lk_last_error(context.get()), "embedding: ids[2]: expected 0 to 2, found 3");
  } else {  // the ids are on the device: what they ask for is not a number
    ASSERT_EQ(lk_embedding(context.get(), &embedding), LK_OK);
    const Values rows = load(y);
    EXPECT_EQ(Values(rows.begin(), rows.begin() + 4), (Values{5, 6, 1, 2}));
    EXPECT_TRUE(std::isnan(rows[4]) && std::isnan(rows[5]));
  }

  const Tensor x = counting({2, 3, 2}), index = integers({2}, {2, 0}), row({2, 2}, LK_F32);
  const lk_gather_params gather{.x = x.view(), .index = index.view(), .y = row.view()};
  ASSERT_EQ(lk_gather(context.get(), &gather), LK_OK);
  EXPECT_EQ(load(row), (Values{5, 6, 7, 8}));
  const Tensor dx = poisoned(context.get(), {2, 3, 2}, LK_F16);
  const lk_gather_backward_params back{.dy = row.view(), .index = index.view(), .dx = dx.view()};
  ASSERT_EQ(lk_gather_backward(context.get(), &back), LK_OK);
  EXPECT_EQ(load(dx), (Values{0, 0, 0, 0, 5, 6, 7, 8, 0, 0, 0, 0}));

  const Tensor several = integers({2, 3}, {2, 0, 2, 1, 1, 1}), rows({2, 3, 2}, LK_F32);
  const lk_gather_params take{.x = x.view(), .index = several.view(), .y = rows.view()};
  ASSERT_EQ(lk_gather(context.get(), &take), LK_OK) << lk_last_error(context.get());
  EXPECT_EQ(load(rows), (Values{5, 6, 1, 2, 5, 6, 9, 10, 9, 10, 9, 10}));
  const Tensor sums = poisoned(context.get(), {2, 3, 2}, LK_F32);
  const lk_gather_backward_params add{.dy = rows.view(), .index = several.view(), .dx = sums.view()};
  ASSERT_EQ(lk_gather_backward(context.get(), &add), LK_OK) << lk_last_error(context.get());
  EXPECT_EQ(load(sums), (Values{1, 2, 0, 0, 10, 12, 0, 0, 27, 30, 0, 0}));

  const Tensor scores = floats({2, 5}, {1, 3, -0.0, 3, 0, NAN, -1, -2, 7, NAN}), best({2, 4}, LK_F32),
               places({2, 4}, LK_I32);
  const lk_top_k_params top{.x = scores.view(), .values = best.view(), .index = places.view()};
  ASSERT_EQ(lk_top_k(context.get(), &top), LK_OK) << lk_last_error(context.get());
  EXPECT_EQ(load(places), (Values{1, 3, 0, 2, 0, 4, 3, 1}));
  const Values found = load(best);
  EXPECT_EQ(Values(found.begin(), found.begin() + 4), (Values{3, 3, 1, 0}));

  const Tensor tokens = integers({2, 3}, {4, 9, 9, 1, 2, 3}), place({2}, LK_I32);
  const lk_find_first_params find{.ids = tokens.view(), .index = place.view(), .value = 9};
  ASSERT_EQ(lk_find_first(context.get(), &find), LK_OK);
  EXPECT_EQ(load(place), (Values{1, 2}));
}

TEST_F(Kernels, UpsampleRopeTimestep) {
  const Tensor x = counting({1, 1, 2, 1}), y({1, 2, 4, 1}, LK_F32), back({1, 1, 2, 1}, LK_F32);
  const lk_upsample_nearest2x_params up{.x = x.view(), .y = y.view()}, down{.x = y.view(), .y = back.view()};
  ASSERT_EQ(lk_upsample_nearest2x(context.get(), &up), LK_OK);
  EXPECT_EQ(load(y), (Values{1, 1, 2, 2, 1, 1, 2, 2}));
  ASSERT_EQ(lk_upsample_nearest2x_backward(context.get(), &down), LK_OK);
  EXPECT_EQ(load(back), (Values{4, 8}));

  for (const int32_t interleaved : {0, 1}) {
    const Tensor q = random_tensor(context.get(), random, {2, 3, 2, 4}, LK_F32, -1, 1);
    const Tensor angles = random_tensor(context.get(), random, {3, 2}, LK_F32, -3, 3);
    Values cosines, sines;
    for (const double angle : load(angles)) cosines.push_back(std::cos(angle)), sines.push_back(std::sin(angle));
    const Tensor cos = floats({3, 2}, cosines), sin = floats({3, 2}, sines);
    const Tensor turned({2, 3, 2, 4}, LK_F32), again({2, 3, 2, 4}, LK_F32);
    const lk_rope_params p{.x = q.view(),
                           .cos = cos.view(),
                           .sin = sin.view(),
                           .y = turned.view(),
                           .interleaved = interleaved,
                           .inverse = 0};
    const lk_rope_params inverse{.x = turned.view(),
                                 .cos = cos.view(),
                                 .sin = sin.view(),
                                 .y = again.view(),
                                 .interleaved = interleaved,
                                 .inverse = 1};
    ASSERT_EQ(lk_rope(context.get(), &p), LK_OK);
    ASSERT_EQ(lk_rope(context.get(), &inverse), LK_OK);
    const reference::Rope law{{2, 3, 2, 4}, false, interleaved != 0};
    const Values from = load(q), to = load(turned), restored = load(again);
    const Values expected = reference::rope(law, from, cosines, sines);
    for (size_t i = 0; i < from.size(); ++i) {
      EXPECT_NEAR(to[i], expected[i], 3e-7);
      EXPECT_NEAR(restored[i], from[i], 5e-7);
    }
  }
  const Tensor t = floats({2}, {0.5, 999.25}), embedding({2, 6}, LK_F32);
  const lk_timestep_embedding_params p{
      .t = t.view(), .y = embedding.view(), .max_period = 10000, .scale = 1000, .sin_first = 0};
  ASSERT_EQ(lk_timestep_embedding(context.get(), &p), LK_OK);
  const Values got = load(embedding), expected = reference::timestep_embedding(load(t), 6, 10000, 1000, false);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-7);
}

TEST_F(Kernels, ReduceSumMatchesLoopsForEveryChoiceOfAxes) {
  const Shape shape = {3, 31, 4, 33};
  const Tensor x = random_tensor(context.get(), random, shape, LK_F32, -1, 1);
  const Values from = load(x);
  for (int mask = 0; mask < 16; ++mask) {
    Shape out = shape;
    for (int i = 0; i < 4; ++i) out[i] = mask >> i & 1 ? 1 : shape[i];
    const Tensor y = poisoned(context.get(), out, LK_F32);
    const lk_reduce_sum_params p{.x = x.view(), .y = y.view(), .scale = 0.5f};
    ASSERT_EQ(lk_reduce_sum(context.get(), &p), LK_OK);
    const Values expected = reference::reduce_sum(shape, out, from);
    const Values got = load(y);
    for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], 0.5 * expected[i], 1e-5) << "axes " << mask;
  }
}

TEST_F(Kernels, Fp8WeightsAreDequantised) {
  const Tensor x = random_tensor(context.get(), random, {33, 31}, LK_F32, -1, 1);
  const Tensor weight = random_tensor(context.get(), random, {7, 31}, LK_F8_E4M3, -2, 2);
  const Tensor scale = random_tensor(context.get(), random, {7}, LK_F32, 0.5, 2);
  const Tensor y = poisoned(context.get(), {33, 7}, LK_F32);
  const lk_linear_params p{.x = x.view(),
                           .weight = weight.view(),
                           .weight_scale = scale.view(),
                           .y = y.view(),
                           .products = LK_PRODUCTS_WIDE};
  ASSERT_EQ(lk_linear(context.get(), &p), LK_OK) << lk_last_error(context.get());
  Values codes = load(weight);
  const Values factors = load(scale);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] *= factors[i / 31];
  const Values expected = reference::linear(load(x), codes, {}, 31, 7);
  expect_near("fp8 linear", load(y), expected, LK_F32, 31);
}

TEST_F(Kernels, LoraGradientsAccumulate) {
  const auto make = [&](const Shape& shape) { return random_tensor(context.get(), random, shape, LK_F32, -1, 1); };
  const Tensor dy = make({33, 7}), x = make({33, 31}), down = make({4, 31}), up = make({7, 4});
  const Tensor ddown = poisoned(context.get(), {4, 31}, LK_F32), dup = poisoned(context.get(), {7, 4}, LK_F32);
  lk_lora_backward_params p{.dy = dy.view(),
                            .x = x.view(),
                            .down = down.view(),
                            .up = up.view(),
                            .scale = 0.5f,
                            .accumulate = 0,
                            .ddown = ddown.view(),
                            .dup = dup.view()};
  ASSERT_EQ(lk_lora_backward(context.get(), &p), LK_OK) << lk_last_error(context.get());
  Values once = load(ddown), once_up = load(dup);
  p.accumulate = 1;
  ASSERT_EQ(lk_lora_backward(context.get(), &p), LK_OK);
  for (double& value : once) value *= 2;
  for (double& value : once_up) value *= 2;
  expect_near("ddown", load(ddown), once, LK_F32, 33);
  expect_near("dup", load(dup), once_up, LK_F32, 33);

  const Tensor total = poisoned(context.get(), {33, 7}, LK_F32);
  for (const int32_t add : {0, 1}) {
    const lk_accumulate_params accumulate{.x = dy.view(), .total = total.view(), .alpha = 0.5f, .accumulate = add};
    ASSERT_EQ(lk_accumulate(context.get(), &accumulate), LK_OK);
  }
  EXPECT_EQ(load(total), load(dy));
}

TEST_F(Kernels, MatmulTransposes) {
  for (const int32_t variant : {0, 1, 2, 3}) {
    const int32_t ta = variant & 1, tb = variant >> 1;
    const int64_t batch = 3, m = 31, k = 33, n = 5;
    const Tensor a = random_tensor(context.get(), random, ta ? Shape{batch, k, m} : Shape{batch, m, k}, LK_F32, -1, 1);
    const Tensor b = random_tensor(context.get(), random, tb ? Shape{batch, n, k} : Shape{batch, k, n}, LK_F32, -1, 1);
    const Tensor c = poisoned(context.get(), {batch, m, n}, LK_F32);
    const lk_matmul_params p{.a = a.view(), .b = b.view(), .c = c.view(), .transpose_a = ta, .transpose_b = tb};
    ASSERT_EQ(lk_matmul(context.get(), &p), LK_OK) << lk_last_error(context.get());
    const Values expected = reference::matmul({batch, m, k, n, ta != 0, tb != 0}, load(a), load(b));
    expect_near("matmul", load(c), expected, LK_F32, k);
  }
}

TEST_F(Kernels, ContextsReportWhatIsWrong) {
  lk_context* other = nullptr;
  const lk_context_params cuda{.backend = LK_CUDA, .device = 0, .threads = 0};
  if (!lk_backend_available(LK_CUDA)) {
    EXPECT_EQ(lk_context_create(&cuda, &other), LK_E_UNSUPPORTED);
    EXPECT_NE(std::string(lk_last_error(nullptr)).find("no cuda backend"), std::string::npos);
    EXPECT_EQ(other, nullptr);
  }
  EXPECT_EQ(lk_context_threads(context.get()), lh::test::tested_device() == "cpu" ? 2 : 1);
  EXPECT_EQ(lk_linear(context.get(), nullptr), LK_E_INVALID);
  EXPECT_STREQ(lk_last_error(context.get()), "linear: params is NULL");
  void* data = nullptr;
  ASSERT_EQ(lk_alloc(context.get(), 1000, &data), LK_OK);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 256, 0u);
  const std::vector<char> text(1000, 'x');
  std::vector<char> read(1000);
  ASSERT_EQ(lk_upload(context.get(), data, text.data(), 1000), LK_OK);
  ASSERT_EQ(lk_download(context.get(), read.data(), data, 1000), LK_OK);
  EXPECT_EQ(text, read);
  lk_free(context.get(), data);
  EXPECT_EQ(lk_alloc(context.get(), INT64_MAX, &data), LK_E_MEMORY);

  const Tensor x = counting({4});
  const lk_softmax_params overlapping{.x = x.view(), .y = x.view()};
  EXPECT_EQ(lk_softmax(context.get(), &overlapping), LK_E_INVALID);
  EXPECT_STREQ(lk_last_error(context.get()), "softmax: y: expected no overlap with x, found shared memory");
}

// Products of dimensions that go round in int64_t have no elements, or fewer than a kernel goes over.
TEST_F(Kernels, SizesBeyondAllMemoryAreRefused) {
  const Tensor y = counting({4});
  lk_tensor huge = y.view(), apart = y.view();
  huge.rank = 3;
  for (const Shape& dims :
       {Shape{int64_t{1} << 40, int64_t{1} << 40, 4}, Shape{int64_t{1} << 31, int64_t{1} << 31, 1}}) {
    std::copy(dims.begin(), dims.end(), huge.dims);
    const lk_fill_params fill{.y = huge, .value = 1};
    EXPECT_EQ(lk_fill(context.get(), &fill), LK_E_INVALID);
    EXPECT_THAT(lk_last_error(context.get()),
                testing::StartsWith("fill: y: expected as many elements as memory can hold"));
  }
  apart.rank = 2;
  apart.dims[0] = 4, apart.dims[1] = 1;
  apart.strides[0] = int64_t{1} << 62, apart.strides[1] = 1;
  const lk_unary_params unary{.kind = LK_SILU, .a = 0, .b = 0, .x = apart, .y = y.view()};
  EXPECT_EQ(lk_unary(context.get(), &unary), LK_E_INVALID);
  EXPECT_THAT(lk_last_error(context.get()), testing::StartsWith("unary: x: expected as many elements as memory"));
}

}  // namespace

}  // namespace lk_test::kernels_data_test
