// The laws of noise levels and the weights that ai-toolkit has, against its formulas and its table.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <random>

#include "core/error.h"
#include "diffusion/loss_weight.h"
#include "diffusion/timestep_law.h"

namespace lh::ai_toolkit_laws_test {
namespace {

using testing::HasSubstr;

Recipe flow_recipe(double sampling_shift, bool dynamic) {
  Recipe recipe;
  recipe.family = "tiny";
  recipe.objective = Objective::flow;
  recipe.timestep.type = "sigmoid";
  recipe.sampling.schedule.shift = sampling_shift;
  recipe.sampling.schedule.dynamic = dynamic;
  return recipe;
}

// The mean of so many draws, and of a function over evenly spaced u. Times have a deviation below 0.3, so that means of
// 20000 lie within 0.3 / 141 * 4 of the truth but once in 15000 times.
constexpr int64_t draws = 20000;
constexpr double tolerance = 0.0085;

double mean_drawn(const TimestepLaw& law, int64_t tokens) {
  double sum = 0;
  for (int64_t i = 0; i < draws; ++i) {
    Random random(1, Purpose::timestep, static_cast<uint64_t>(i), 0);
    sum += law.draw(random, tokens);
  }
  return sum / draws;
}

template <typename Function>
double mean_over(Function f) {
  double sum = 0;
  for (int64_t i = 0; i < draws; ++i) sum += f((static_cast<double>(i) + 0.5) / draws);
  return sum / draws;
}

TEST(AiToolkitLaws, LinearShiftIsEvenAndShiftedAsSamplingIs) {
  const TrainSection train{.timestep_type = "linear_shift"};
  EXPECT_NEAR(mean_drawn(TimestepLaw(train, flow_recipe(3, false)), 1024),
              mean_over([](double u) { return shift_time(3, u); }), tolerance);
  // By the image's size: mu is 0.5 at 256 tokens and 1.15 at 4096.
  const TimestepLaw dynamic(train, flow_recipe(3, true));
  for (const auto& [tokens, mu] : {std::pair<int64_t, double>{256, 0.5}, {4096, 1.15}})
    EXPECT_NEAR(mean_drawn(dynamic, tokens), mean_over([&](double u) { return shift_time_mu(mu, u); }), tolerance)
        << tokens;
}

TEST(AiToolkitLaws, WeightedIsEvenAndNotShifted) {
  const TrainSection train{.timestep_type = "weighted"};
  EXPECT_NEAR(mean_drawn(TimestepLaw(train, flow_recipe(3, true)), 1024), 0.5, tolerance);
  EXPECT_EQ(LossWeight(train, flow_recipe(3, true)).text(), "weighted");
}

// The times that its scheduler makes for each batch, sorted: 750 of a lognormal law, mirrored below their largest, and
// 250 evenly from 1 to 0.001.
std::vector<double> lognorm_blend_times(std::mt19937_64& generator) {
  std::lognormal_distribution<double> law(0, 0.333);
  std::vector<double> times(750);
  for (double& t : times) t = law(generator);
  const double largest = std::ranges::max(times);
  for (double& t : times) t = 1 - t / largest;
  for (int i = 0; i < 250; ++i) times.push_back(1 - 0.999 * i / 249);
  std::ranges::sort(times);
  return times;
}

// Shares of the draws below ten times, of whole numbers of denoising steps, of some of them, and with favoured ones.
TEST(AiToolkitLaws, LognormBlendIsThatOfItsScheduler) {
  struct Row {
    TrainSection train;
    std::function<size_t(double u)> index;  // into the times, sorted from the least, for an even u
  };
  const auto of_levels = [](double from, double levels) {
    return [=](double u) { return static_cast<size_t>(999 - from - std::floor(levels * u)); };
  };
  const Row rows[] = {
      {{.timestep_type = "lognorm_blend"}, of_levels(0, 1000)},
      {{.timestep_type = "lognorm_blend", .min_denoising_steps = 200, .max_denoising_steps = 599}, of_levels(200, 400)},
      {{.timestep_type = "lognorm_blend", .content_or_style = "content"},
       [&](double u) { return of_levels(0, 1000)(u * u * u); }}};
  for (const Row& row : rows) {
    const TimestepLaw law(row.train, flow_recipe(3, true));
    std::mt19937_64 generator(7);
    std::array<double, 10> here{}, there{};
    constexpr int64_t batches = 400, each = draws / batches;
    for (int64_t i = 0; i < draws; ++i) {
      Random random(1, Purpose::timestep, static_cast<uint64_t>(i), 0);
      const double t = law.draw(random, 1024);
      ASSERT_TRUE(t >= 0 && t <= 1) << t;
      for (size_t k = 0; k < here.size(); ++k) here[k] += t < 0.1 * static_cast<double>(k) ? 1.0 / draws : 0;
    }
    for (int64_t batch = 0; batch < batches; ++batch) {
      const std::vector<double> times = lognorm_blend_times(generator);
      for (int64_t i = 0; i < each; ++i) {
        const double t = times[row.index((static_cast<double>(i) + 0.5) / each)];
        for (size_t k = 0; k < there.size(); ++k) there[k] += t < 0.1 * static_cast<double>(k) ? 1.0 / draws : 0;
      }
    }
    // A share of 20000 draws is off by at most 0.5 / 141 a deviation; 400 batches, whose largest number moves a share
    // by no more than a tenth, by 0.1 / 20; and 50 even places in a batch are one part in 50 apart, half of it on
    // average over batches.
    for (size_t k = 0; k < here.size(); ++k) EXPECT_NEAR(here[k], there[k], 4 * 0.0035 + 0.01) << k << law.text();
  }
}

// exp(-2 ((i - 500) / 1000)^2) less its minimum over 1000 indices i from the noisiest, as a share of the mean.
TEST(AiToolkitLaws, BellsAreThoseOfItsScheduler) {
  std::vector<double> bell(1000);
  double least = 1, sum = 0;
  for (size_t i = 0; i < bell.size(); ++i) {
    const double x = (static_cast<double>(i) - 500) / 1000;
    bell[i] = std::exp(-2 * x * x);
    least = std::min(least, bell[i]);
  }
  for (double& b : bell) sum += b -= least;
  // Its noise levels go from 1000 to 1 in steps of 999 / 999: an index is half a step away from the formula in sigma.
  for (const size_t i : {0, 100, 250, 499, 700, 900}) {
    const double sigma = 1 - static_cast<double>(i) / 1000;
    EXPECT_NEAR(bell_weight(sigma, false), bell[i] * 1000 / sum, 0.005) << i;
    EXPECT_NEAR(bell_weight(sigma, true), (i >= 500 ? bell[500] : bell[i]) * 1000 / sum, 0.005) << i;
  }
  EXPECT_NEAR(mean_over([](double s) { return bell_weight(s, false); }), 1, 1e-6);
}

// Points of its table, index from the noisiest, and the table's mean, which is 1.
TEST(AiToolkitLaws, MeasuredWeightsFollowItsTable) {
  const std::pair<double, double> points[] = {{0, 0.9057},   {50, 1.3748},  {100, 1.5068}, {200, 1.4413}, {300, 1.2636},
                                              {400, 1.0826}, {500, 0.9254}, {600, 0.8049}, {700, 0.7312}, {800, 0.7161},
                                              {900, 0.7162}, {950, 0.5822}, {999, 0.4473}};
  for (const auto& [index, weight] : points)
    EXPECT_NEAR(measured_weight(1 - (index + 0.5) / 1000), weight, 0.03) << index;
  EXPECT_NEAR(mean_over(measured_weight), 1, 0.002);
}

TEST(AiToolkitLaws, WhatDoesNotFitTheModelIsRefused) {
  const auto error = [](const TrainSection& train, const Recipe& recipe) -> std::string {
    try {
      TimestepLaw(train, recipe);
      LossWeight(train, recipe);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  Recipe discrete;
  discrete.family = "tiny";
  discrete.objective = Objective::epsilon;
  discrete.timestep.type = "uniform";
  const Recipe flow = flow_recipe(3, false);
  EXPECT_EQ(error({.noise_scheduler = "flowmatch"}, flow), "");
  EXPECT_EQ(error({.noise_scheduler = "ddpm"}, discrete), "");
  EXPECT_EQ(error({.noise_scheduler = "ddpm"}, flow),
            "train.noise_scheduler: ddpm is not what this model is trained with: use flowmatch, or leave it out");
  EXPECT_THAT(error({.noise_scheduler = "flowmatch"}, discrete), HasSubstr("use ddpm"));
  EXPECT_THAT(error({.timestep_type = "weighted"}, discrete), HasSubstr("is for flow models"));
  EXPECT_THAT(error({.timestep_type = "linear_shift"}, discrete), HasSubstr("is for flow models"));
  EXPECT_THAT(error({.timestep_type = "lognorm_blend"}, discrete), HasSubstr("is for flow models"));
  EXPECT_THAT(error({.timestep_type = "weighted", .weighting_scheme = "cosmap"}, flow),
              HasSubstr("both weigh the loss"));
  EXPECT_THAT(error({.weighting_scheme = "bell"}, discrete), HasSubstr("is a weight for flow models"));
}

}  // namespace
}  // namespace lh::ai_toolkit_laws_test
