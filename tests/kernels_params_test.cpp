// Parameters of callers that were compiled against an older or a newer header than the library's.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "support/kernel_tensors.h"

namespace lk_test::kernels_params_test {
namespace {

using testing::Each;
using testing::Ge;
using testing::HasSubstr;

class KernelsParams : public testing::Test {
 protected:
  // lk_fill with the first `size` bytes of the parameters and others behind them, which all are `beyond`.
  lk_status fill_of_size(int64_t size, unsigned char beyond) {
    lk_fill_params params{.y = y_.view(), .value = 3};
    params.struct_size = size;
    alignas(lk_fill_params) unsigned char bytes[2 * sizeof params];
    std::memset(bytes, beyond, sizeof bytes);
    const size_t known = size < 0 ? sizeof params.struct_size : static_cast<size_t>(size);
    std::memcpy(bytes, &params, std::clamp(known, sizeof params.struct_size, sizeof params));
    return lk_fill(context_.get(), reinterpret_cast<const lk_fill_params*>(bytes));
  }
  const char* error() const { return lk_last_error(context_.get()); }
  static constexpr int64_t size = sizeof(lk_fill_params);

  Context context_ = make_context();
  Tensor y_ = poisoned(context_.get(), {7}, LK_F32);
};

TEST_F(KernelsParams, ItsSizeIsThereByItself) {
  EXPECT_EQ(lk_fill_params{}.struct_size, size);
  EXPECT_EQ(lk_context_params{}.struct_size, static_cast<int64_t>(sizeof(lk_context_params)));
  EXPECT_EQ(offsetof(lk_fill_params, struct_size), 0u);
}

TEST_F(KernelsParams, WhatAnOlderCallerLacksIsZero) {
  // Without `value`, which lies behind the tensor: what follows in the caller's memory is not read.
  ASSERT_EQ(fill_of_size(offsetof(lk_fill_params, value), 0xff), LK_OK) << error();
  EXPECT_THAT(y_.load(context_.get()), Each(0.0));
}

TEST_F(KernelsParams, WhatANewerCallerLeavesZeroIsLeftOut) {
  ASSERT_EQ(fill_of_size(size + 24, 0), LK_OK) << error();
  EXPECT_THAT(y_.load(context_.get()), Each(3.0));
}

TEST_F(KernelsParams, WhatANewerCallerSetsIsRefused) {
  EXPECT_EQ(fill_of_size(size + 24, 1), LK_E_UNSUPPORTED);
  EXPECT_THAT(error(), HasSubstr("fill: byte " + std::to_string(size) + " of the " + std::to_string(size + 24)));
  EXPECT_THAT(error(), HasSubstr("knows " + std::to_string(size)));
}

TEST_F(KernelsParams, ASizeThatIsNoneIsRefused) {
  for (const int64_t none : {int64_t{0}, int64_t{7}, int64_t{-8}, int64_t{12}, int64_t{1} << 40, INT64_MAX - 7}) {
    EXPECT_EQ(fill_of_size(none, 0), LK_E_INVALID);
    EXPECT_THAT(error(), HasSubstr("fill: struct_size: expected sizeof the struct, " + std::to_string(size) +
                                   " here, found " + std::to_string(none)));
  }
  lk_context* context = nullptr;
  lk_context_params params;
  params.struct_size = 0;
  EXPECT_EQ(lk_context_create(&params, &context), LK_E_INVALID);
  EXPECT_THAT(lk_last_error(nullptr), HasSubstr("context_create: struct_size"));
}

TEST_F(KernelsParams, ADeviceIsDescribedAsFarAsTheCallerHasRoom) {
  lk_device_info info, some;
  ASSERT_EQ(lk_get_device_info(context_.get(), &info), LK_OK) << error();
  EXPECT_EQ(info.struct_size, static_cast<int64_t>(sizeof info));
  EXPECT_THAT(info.memory_total, Ge(info.memory_free));
  std::memset(static_cast<void*>(&some), 0x55, sizeof some);
  some.struct_size = offsetof(lk_device_info, libraries);
  ASSERT_EQ(lk_get_device_info(context_.get(), &some), LK_OK) << error();
  EXPECT_EQ(some.struct_size, static_cast<int64_t>(offsetof(lk_device_info, libraries)));
  EXPECT_STREQ(some.name, info.name);
  EXPECT_EQ(some.libraries[0], 0x55);
  EXPECT_EQ(some.compute_capability, 0x55555555);
}

}  // namespace
}  // namespace lk_test::kernels_params_test
