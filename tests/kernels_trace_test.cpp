// What a context tells of its calls (lora_kernels_trace.h).
#include <gmock/gmock.h>

#include <cstdlib>

#include "lora_kernels_trace.h"
#include "support/kernel_tensors.h"

namespace lk_test::kernels_trace_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::StartsWith;

struct Call {
  std::string op, kernels, passed_over;
  double milliseconds;
};

class KernelsTrace : public testing::Test {
 protected:
  static void keep(void* user, const lk_call_trace* call) {
    EXPECT_EQ(call->struct_size, static_cast<int64_t>(sizeof *call));
    static_cast<KernelsTrace*>(user)->calls_.push_back(
        {call->op, call->kernels, call->passed_over, call->milliseconds});
  }
  lk_status linear(lk_context* context) {
    const lk_linear_params params{.x = x_.view(), .weight = weight_.view(), .y = y_.view()};
    return lk_linear(context, &params);
  }
  bool on_gpu() const { return lh::test::tested_device() == "cuda"; }
  static Tensor filled(const Shape& shape, lk_dtype type = LK_F32) {
    Tensor tensor(shape, type);
    const lk_fill_params params{.y = tensor.view(), .value = 0.5f};
    EXPECT_EQ(lk_fill(memory_context(), &params), LK_OK);
    EXPECT_EQ(lk_synchronize(memory_context()), LK_OK);
    return tensor;
  }

  Context context_ = make_context();
  Tensor x_ = filled({96, 32}), weight_ = filled({48, 32}), y_{{96, 48}, LK_F32};
  std::vector<Call> calls_;
};

TEST_F(KernelsTrace, NamesEachCallWithItsKernelsAndTime) {
  ASSERT_EQ(lk_set_trace(context_.get(), keep, this), LK_OK);
  ASSERT_EQ(linear(context_.get()), LK_OK) << lk_last_error(context_.get());
  const lk_unary_params unary{.kind = LK_GELU_TANH, .x = y_.view(), .y = y_.view()};
  ASSERT_EQ(lk_unary(context_.get(), &unary), LK_OK) << lk_last_error(context_.get());
  ASSERT_THAT(calls_, SizeIs(2));
  EXPECT_EQ(calls_[0].op, "linear");
  EXPECT_THAT(calls_[0].kernels, AllOf(StartsWith(on_gpu() ? "cuBLASLt " : "OpenBLAS "), HasSubstr("96 x 48 x 32")));
  EXPECT_EQ(calls_[1].op, "unary");
  EXPECT_THAT(calls_[1].kernels, on_gpu() ? HasSubstr("kernel") : HasSubstr("cpu unary"));
  for (const Call& call : calls_) EXPECT_GE(call.milliseconds, 0) << call.op;
}

TEST_F(KernelsTrace, NamesWhoMultipliesBf16) {
  if (on_gpu()) GTEST_SKIP() << "oneDNN multiplies on the CPU alone";
  ASSERT_EQ(lk_set_trace(context_.get(), keep, this), LK_OK);
  const Tensor x = filled({96, 32}, LK_BF16), weight = filled({48, 32}, LK_BF16), factor = filled({1});
  for (const lk_tensor& scale : {lk_tensor{}, factor.view()}) {
    const lk_linear_params p{.x = x.view(), .weight = weight.view(), .weight_scale = scale, .y = y_.view()};
    ASSERT_EQ(lk_linear(context_.get(), &p), LK_OK) << lk_last_error(context_.get());
  }
  ASSERT_THAT(calls_, SizeIs(2));
  EXPECT_EQ(calls_[0].kernels, has_onednn() ? "oneDNN 96 x 48 x 32 bf16, 1 part" : "OpenBLAS 96 x 48 x 32 f32, 1 part");
  EXPECT_EQ(calls_[1].kernels, "OpenBLAS 96 x 48 x 32 f32, 1 part");  // factors are multiplied in before
}

TEST_F(KernelsTrace, SaysWhatWasPassedOverAndWhy) {
  if (!on_gpu()) GTEST_SKIP() << "on the CPU no kernel is passed over";
  ASSERT_EQ(lk_set_trace(context_.get(), keep, this), LK_OK);
  Tensor q({1, 16, 2, 20}, LK_F32), o({1, 16, 2, 20}, LK_F32), lse({1, 2, 16}, LK_F32);
  const lk_fill_params fill{.y = q.view(), .value = 1};
  ASSERT_EQ(lk_fill(context_.get(), &fill), LK_OK);
  const lk_attention_params params{
      .q = q.view(), .k = q.view(), .v = q.view(), .scale = 0.2f, .o = o.view(), .lse = lse.view()};
  ASSERT_EQ(lk_attention(context_.get(), &params), LK_OK) << lk_last_error(context_.get());
  ASSERT_THAT(calls_, SizeIs(2));
  EXPECT_THAT(calls_[1].passed_over, HasSubstr("cuDNN: width of heads"));
}

TEST_F(KernelsTrace, IsSilentWhereNothingRan) {
  ASSERT_EQ(lk_set_trace(context_.get(), keep, this), LK_OK);
  int64_t bytes = 0;
  ASSERT_EQ(lk_measure_begin(context_.get()), LK_OK);
  ASSERT_EQ(linear(context_.get()), LK_OK);
  ASSERT_EQ(lk_measure_end(context_.get(), &bytes), LK_OK);
  const lk_linear_params wrong{.x = x_.view(), .weight = x_.view(), .y = x_.view()};
  ASSERT_NE(lk_linear(context_.get(), &wrong), LK_OK);
  ASSERT_EQ(lk_set_trace(context_.get(), nullptr, nullptr), LK_OK);
  ASSERT_EQ(linear(context_.get()), LK_OK);
  EXPECT_THAT(calls_, IsEmpty());
}

TEST_F(KernelsTrace, GoesToStderrWhereTheEnvironmentAsks) {
  for (const char* text : {"dispatch", "plan,dispatch", "time|dispatch|plan", "plan", ""}) {
    setenv("LORA_VERBOSE", text, 1);
    const Context context = make_context();
    unsetenv("LORA_VERBOSE");
    testing::internal::CaptureStderr();
    const lk_status status = linear(context.get());
    const std::string written = testing::internal::GetCapturedStderr();
    ASSERT_EQ(status, LK_OK) << lk_last_error(context.get());
    const bool asked = std::string(text).find("dispatch") != std::string::npos;
    if (asked) {
      EXPECT_THAT(written, AllOf(StartsWith("lora_kernels: linear, "), HasSubstr(" ms: "), HasSubstr("96 x 48")));
    } else {
      EXPECT_EQ(written, "") << text;
    }
  }
}

}  // namespace
}  // namespace lk_test::kernels_trace_test
