// Learning rate schedules against values recorded from transformers (tests/data/lr_schedules.json).
#include "run/lr_schedule.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace lh {
namespace {

TEST(LrSchedule, MatchesTheRecordedValues) {
  std::ifstream stream(LORA_TEST_DATA "/lr_schedules.json");
  const auto data = nlohmann::json::parse(stream);
  for (const auto& schedule : data.at("schedules")) {
    TrainSection train;
    train.lr = data.at("lr");
    train.steps = data.at("steps");
    train.lr_scheduler = schedule.at("name");
    train.lr_scheduler_params["warmup_steps"] = data.at("warmup_steps");
    for (const auto& [name, value] : schedule.at("options").items()) train.lr_scheduler_params[name] = value;
    int64_t step = 0;
    for (const double expected : schedule.at("lr"))  // cos of a double near its zero is good to about 1e-16
      EXPECT_NEAR(learning_rates(train, step++).denoiser, expected, 1e-15 * expected + 1e-20)
          << schedule.dump() << step - 1;
    EXPECT_GT(step, train.steps);
  }
}

TEST(LrSchedule, UnknownNameIsAnError) {
  TrainSection train;
  train.lr_scheduler = "wave";
  EXPECT_THROW(learning_rates(train, 0), Error);
}

TEST(LrSchedule, WarmUpAsLongAsTheRunStaysFinite) {
  for (const char* name : {"linear", "cosine", "cosine_with_restarts", "polynomial"}) {
    TrainSection train;
    train.steps = 5;
    train.lr_scheduler = name;
    train.lr_scheduler_params["warmup_steps"] = 5;
    for (int64_t step = 0; step < 8; ++step) {
      EXPECT_GE(learning_rates(train, step).denoiser, 0) << name;
      EXPECT_LE(learning_rates(train, step).denoiser, train.lr) << name;
    }
  }
}

}  // namespace
}  // namespace lh
