// Contexts of several GPUs in one thread: each call finds its own device and leaves the thread's as it was.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "support/kernel_tensors.h"

namespace lk_test::kernels_devices_test {
namespace {

Context context_of(int32_t device) {
  const lk_context_params params{
      .backend = LK_CUDA, .device = device, .threads = 0, .fast = 0, .tuning_cache = nullptr};
  lk_context* context = nullptr;
  lk_context_create(&params, &context);
  return Context(context);
}

TEST(KernelsDevices, TakeTurnsInOneThread) {
  if (lh::test::tested_device() != "cuda") GTEST_SKIP() << "needs GPUs";
  const Context contexts[] = {context_of(0), context_of(1)};
  if (contexts[1] == nullptr) GTEST_SKIP() << "needs two GPUs";
  constexpr int64_t count = 1000;
  void* data[2] = {};
  lk_graph* recorded[2] = {};
  const auto tensor = [&](int i) { return lk_tensor{.data = data[i], .dtype = LK_F32, .rank = 1, .dims = {count}}; };
  const auto expect_ok = [&](int i, lk_status status) {
    EXPECT_EQ(status, LK_OK) << i << ": " << lk_last_error(contexts[i].get());
  };
  const auto add = [&](int i) {  // i + 1
    const lk_unary_params params{
        .kind = LK_AFFINE, .a = 1, .b = static_cast<float>(i + 1), .x = tensor(i), .y = tensor(i)};
    return lk_unary(contexts[i].get(), &params);
  };
  // Each of these for both in turn, so that the thread's device is the other's every time.
  for (const int i : {0, 1}) expect_ok(i, lk_alloc(contexts[i].get(), count * 4, &data[i]));
  for (const int i : {0, 1}) {
    const lk_fill_params params{.y = tensor(i), .value = 10};
    expect_ok(i, lk_fill(contexts[i].get(), &params));
  }
  for (const int i : {0, 1}) expect_ok(i, add(i));
  for (const int i : {0, 1}) {
    expect_ok(i, lk_capture_begin(contexts[i].get()));
    expect_ok(i, add(i));
    expect_ok(i, lk_capture_end(contexts[i].get(), &recorded[i]));
  }
  for (const int i : {0, 1}) expect_ok(i, lk_graph_launch(contexts[i].get(), recorded[i]));
  for (const int i : {0, 1}) {
    std::vector<float> got(count);
    expect_ok(i, lk_download(contexts[i].get(), got.data(), data[i], count * 4));
    EXPECT_EQ(got, std::vector<float>(count, 10 + 2.0f * static_cast<float>(i + 1))) << i;
  }
  for (const int i : {0, 1}) {
    lk_graph_destroy(contexts[i].get(), recorded[i]);
    lk_free(contexts[i].get(), data[i]);
  }
}

}  // namespace
}  // namespace lk_test::kernels_devices_test
