// What of matrix products was chosen by time: said by one context, taken by another.
#include <gmock/gmock.h>

#include <filesystem>
#include <string>

#include "choice_lines.h"
#include "lora_kernels_choices.h"
#include "support/io_files.h"
#include "support/kernel_tensors.h"

namespace lk_test::kernels_choices_test {
namespace {

using testing::HasSubstr;

std::string choices_of(lk_context* context) {
  const char* lines = nullptr;
  EXPECT_EQ(lk_get_choices(context, &lines), LK_OK) << lk_last_error(context);
  return lines != nullptr ? lines : "";
}

// y = x w^T in float32, of which no own kernel makes products of this size on a GPU.
void multiply(lk_context* context) {
  std::mt19937 random(1);
  const Tensor x = random_tensor(context, random, {300, 400}, LK_F32, -1, 1),
               weight = random_tensor(context, random, {500, 400}, LK_F32, -1, 1),
               y = poisoned(context, {300, 500}, LK_F32);
  const lk_linear_params params{.x = x.view(), .weight = weight.view(), .y = y.view()};
  ASSERT_EQ(lk_linear(context, &params), LK_OK) << lk_last_error(context);
  ASSERT_EQ(lk_synchronize(context), LK_OK) << lk_last_error(context);
}

TEST(KernelsChoices, NullIsRefused) {
  const Context context = make_context();
  EXPECT_EQ(lk_get_choices(context.get(), nullptr), LK_E_INVALID);
  EXPECT_THAT(lk_last_error(context.get()), HasSubstr("get_choices: out is NULL"));
  EXPECT_EQ(lk_take_choices(context.get(), nullptr), LK_E_INVALID);
  EXPECT_THAT(lk_last_error(context.get()), HasSubstr("take_choices: lines is NULL"));
  EXPECT_EQ(lk_choose_by_time(nullptr, 1), LK_E_INVALID);
}

TEST(KernelsChoices, NothingIsChosenByTimeOnTheCpu) {
  if (lh::test::tested_device() != "cpu") GTEST_SKIP() << "of the CPU";
  const Context context = make_context();
  multiply(context.get());
  EXPECT_EQ(choices_of(context.get()), "");
  EXPECT_EQ(lk_take_choices(context.get(), ""), LK_OK);
}

// Those of a GPU are passed over on the CPU, damaged ones are refused there as everywhere.
TEST(KernelsChoices, DamagedLinesAreRefusedOnTheCpu) {
  if (lh::test::tested_device() != "cpu") GTEST_SKIP() << "of the CPU";
  const Context context = make_context();
  const std::string zeros(128, '0'), line = lk::choice_line("device\tlibrary\tproduct", zeros);
  EXPECT_EQ(lk_take_choices(context.get(), (line + line).c_str()), LK_OK) << lk_last_error(context.get());
  EXPECT_EQ(choices_of(context.get()), "");
  for (size_t at = 0; at < line.size(); ++at) {
    std::string damaged = line + line;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    EXPECT_EQ(lk_take_choices(context.get(), damaged.c_str()), LK_E_INVALID) << at;
    EXPECT_THAT(lk_last_error(context.get()), HasSubstr("lines: one is damaged")) << at;
  }
  for (const char* text : {"nonsense", "\n", "device\tlibrary\tproduct\t00\t00\n"})
    EXPECT_EQ(lk_take_choices(context.get(), text), LK_E_INVALID) << text;
}

TEST(KernelsChoices, AreTakenByAContextWithoutAFile) {
  if (lh::test::tested_device() != "cuda") GTEST_SKIP() << "needs a GPU";
  const lh::test::TempDir dir;
  const std::string file = (dir / "choices").string();
  const auto context_with = [](const char* cache) {
    const lk_context_params params{.backend = LK_CUDA, .device = 0, .threads = 0, .fast = 0, .tuning_cache = cache};
    lk_context* context = nullptr;
    EXPECT_EQ(lk_context_create(&params, &context), LK_OK) << lk_last_error(nullptr);
    return Context(context);
  };
  const Context first = context_with(file.c_str()), second = context_with(nullptr);
  ASSERT_EQ(lk_choose_by_time(first.get(), 0), LK_OK);
  multiply(first.get());
  EXPECT_EQ(choices_of(first.get()), "") << "a first guess was said to be chosen by time";
  ASSERT_EQ(lk_choose_by_time(first.get(), 1), LK_OK);
  multiply(first.get());
  const std::string lines = choices_of(first.get());
  EXPECT_THAT(lines, HasSubstr("300"));
  multiply(second.get());
  EXPECT_EQ(choices_of(second.get()), "");
  std::string damaged = lines;
  damaged[damaged.size() - 2] = damaged[damaged.size() - 2] == '0' ? '1' : '0';
  EXPECT_EQ(lk_take_choices(second.get(), damaged.c_str()), LK_E_INVALID);
  EXPECT_THAT(lk_last_error(second.get()), HasSubstr("lines: one is damaged"));
  EXPECT_EQ(choices_of(second.get()), "");
  ASSERT_EQ(lk_take_choices(second.get(), lines.c_str()), LK_OK) << lk_last_error(second.get());
  multiply(second.get());
  EXPECT_EQ(choices_of(second.get()), lines);
}

}  // namespace
}  // namespace lk_test::kernels_choices_test
