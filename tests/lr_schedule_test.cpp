// Learning rate schedules against values recorded from transformers (tests/data/lr_schedules.json).
#include "run/lr_schedule.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "support/paths.h"

namespace lh::lr_schedule_test {
namespace {

TEST(LrSchedule, MatchesTheRecordedValues) {
  std::ifstream stream(std::string(test::test_data()) + "/lr_schedules.json");
  const auto data = nlohmann::json::parse(stream);
  for (const auto& schedule : data.at("schedules")) {
    TrainSection train;
    train.lr = data.at("lr").get<double>();
    train.steps = data.at("steps");
    train.lr_scheduler = schedule.at("name");
    train.lr_scheduler_params["warmup_steps"] = data.at("warmup_steps");
    for (const auto& [name, value] : schedule.at("options").items()) train.lr_scheduler_params[name] = value;
    int64_t step = 0;
    for (const double expected : schedule.at("lr"))  // cos of a double near its zero is good to about 1e-16
      EXPECT_NEAR(learning_rate(train, *train.lr, step++), expected, 1e-15 * expected + 1e-20)
          << schedule.dump() << step - 1;
    EXPECT_GT(step, train.steps);
  }
}

TEST(LrSchedule, UnknownNameIsAnError) {
  TrainSection train;
  train.lr_scheduler = "wave";
  EXPECT_THROW(learning_rate(train, 1e-4, 0), Error);
}

TEST(LrSchedule, WarmUpAsLongAsTheRunStaysFinite) {
  for (const char* name : {"linear", "cosine", "cosine_with_restarts", "polynomial", "step", "rex", "inverse_sqrt"}) {
    TrainSection train;
    train.steps = 5;
    train.lr_scheduler = name;
    train.lr_scheduler_params["warmup_steps"] = 5;
    for (int64_t step = 0; step < 8; ++step) {
      EXPECT_GE(learning_rate(train, 1e-4, step), 0) << name;
      EXPECT_LE(learning_rate(train, 1e-4, step), 1e-4) << name;
    }
  }
}

// lr 1 over 100 steps, the first 10 of them warm-up; expected values by hand from the formulas.
TEST(LrSchedule, FormulasThatTransformersLacks) {
  const auto rate = [](const char* name, std::map<std::string, double> params, int64_t step) {
    TrainSection train;
    train.steps = 100;
    train.lr_scheduler = name;
    train.lr_scheduler_params = std::move(params);
    return learning_rate(train, 1, step);
  };
  const std::map<std::string, double> steps{{"warmup_steps", 10}, {"step_size", 30}, {"gamma", 0.5}};
  EXPECT_DOUBLE_EQ(rate("step", steps, 5), 0.5);
  EXPECT_DOUBLE_EQ(rate("step", steps, 39), 1);
  EXPECT_DOUBLE_EQ(rate("step", steps, 40), 0.5);
  EXPECT_DOUBLE_EQ(rate("step", steps, 99), 0.25);
  EXPECT_DOUBLE_EQ(rate("rex", {{"warmup_ratio", 0.1}}, 10), 1);
  EXPECT_DOUBLE_EQ(rate("rex", {{"warmup_ratio", 0.1}}, 55), 0.5 / 0.75);
  EXPECT_DOUBLE_EQ(rate("rex", {{"warmup_ratio", 0.1}, {"rex_d", 0.9}}, 55), 0.5 / 0.55);
  EXPECT_DOUBLE_EQ(rate("rex", {}, 100), 0);
  EXPECT_DOUBLE_EQ(rate("inverse_sqrt", {{"warmup_steps", 10}}, 10), 1);
  EXPECT_DOUBLE_EQ(rate("inverse_sqrt", {{"warmup_steps", 10}}, 40), 0.5);
  EXPECT_DOUBLE_EQ(rate("inverse_sqrt", {{"timescale", 25}}, 75), 0.5);
  EXPECT_DOUBLE_EQ(rate("constant", {{"decay_ratio", 0.2}}, 80), 1);
  EXPECT_DOUBLE_EQ(rate("constant", {{"decay_ratio", 0.2}}, 90), 0.5);
  EXPECT_DOUBLE_EQ(rate("constant", {{"decay_steps", 20}}, 100), 0);
}

}  // namespace
}  // namespace lh::lr_schedule_test
