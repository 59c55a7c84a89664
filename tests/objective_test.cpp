// Training objectives: noise schedules, timestep laws and loss weights against the golden tables, what a training
// example is made of, and settings that do not fit the model.
#include "diffusion/objective.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>
#include <set>

#include "core/error.h"
#include "data/dataset.h"
#include "support/io_files.h"
#include "support/paths.h"

namespace lh::test::objective_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

Json table(const char* name) {
  return Json::parse(get(std::filesystem::path(test_data()) / "golden" / "schedules" / name));
}

Recipe flow_recipe() {
  Recipe recipe;
  recipe.objective = Objective::flow;
  recipe.timestep.type = "sigmoid";
  return recipe;
}

Recipe discrete_recipe(Objective objective, bool zero_terminal_snr = false) {
  Recipe recipe;
  recipe.family = "tiny";
  recipe.objective = objective;
  recipe.noise_schedule.zero_terminal_snr = zero_terminal_snr;
  recipe.timestep.type = "uniform";
  return recipe;
}

// Both sides are float64 and differ by the order of a thousand products.
void expect_equal(double got, double want, const std::string& what) {
  EXPECT_NEAR(got, want, std::max(std::abs(want), 1e-3) * 1e-11) << what;
}

TEST(NoiseSchedule, IsThatOfTheGoldenTable) {
  const Json json = table("sdxl_betas.json");
  const NoiseSchedule noise{NoiseScheduleSpec{}}, zero{NoiseScheduleSpec{.zero_terminal_snr = true}};
  const double gamma = json.at("gamma");
  ASSERT_EQ(noise.steps(), 1000);
  const auto check = [&](const Json& columns, const char* name, auto value) {
    ASSERT_EQ(columns.at(name).size(), 1000u);
    for (int64_t t = 0; t < 1000; ++t)
      expect_equal(value(t), columns.at(name).at(static_cast<size_t>(t)), fmt::format("{} at {}", name, t));
  };
  check(json, "alphas_cumprod", [&](int64_t t) { return noise.alpha_cumprod(t); });
  check(json, "sigmas", [&](int64_t t) { return noise.noise_ratio(t); });
  check(json, "snr", [&](int64_t t) { return noise.snr(t); });
  check(json, "min_snr_eps", [&](int64_t t) { return min_snr_weight(Objective::epsilon, noise.snr(t), gamma); });
  check(json, "min_snr_v", [&](int64_t t) { return min_snr_weight(Objective::v_prediction, noise.snr(t), gamma); });
  check(json, "debiased", [&](int64_t t) { return debiased_weight(Objective::epsilon, noise.snr(t)); });
  const Json& rescaled = json.at("zero_terminal_snr");
  check(rescaled, "alphas_cumprod", [&](int64_t t) { return zero.alpha_cumprod(t); });
  check(rescaled, "snr", [&](int64_t t) { return zero.snr(t); });
  check(rescaled, "min_snr_v", [&](int64_t t) { return min_snr_weight(Objective::v_prediction, zero.snr(t), gamma); });
  EXPECT_EQ(zero.alpha_cumprod(999), 0);
  EXPECT_EQ(zero.with_signal().alpha_cumprod(999), 0x1p-24);
  EXPECT_EQ(noise.with_signal().alpha_cumprod(999), noise.alpha_cumprod(999));
  EXPECT_EQ(debiased_weight(Objective::v_prediction, 0), 1);
  EXPECT_EQ(min_snr_weight(Objective::epsilon, 0, gamma), 1);
}

TEST(NoiseSchedule, LinearBetas) {
  const NoiseSchedule noise{NoiseScheduleSpec{.kind = "linear", .beta_start = 0.1, .beta_end = 0.3, .steps = 3}};
  EXPECT_NEAR(noise.alpha_cumprod(0), 0.9, 1e-15);
  EXPECT_NEAR(noise.alpha_cumprod(1), 0.9 * 0.8, 1e-15);
  EXPECT_NEAR(noise.alpha_cumprod(2), 0.9 * 0.8 * 0.7, 1e-15);
}

TEST(NoiseSchedule, TimesOfNoiseRatios) {
  const NoiseSchedule noise{NoiseScheduleSpec{}};
  for (const int64_t t : {0, 1, 499, 998, 999})
    EXPECT_NEAR(noise.time_of_ratio(noise.noise_ratio(t)), static_cast<double>(t), 1e-9);
  EXPECT_NEAR(noise.time_of_ratio(std::sqrt(noise.noise_ratio(10) * noise.noise_ratio(11))), 10.5, 1e-9);
  EXPECT_EQ(noise.time_of_ratio(1e-6), 0);
  EXPECT_EQ(noise.time_of_ratio(1e6), 999);
}

TEST(TimestepLaws, AreThoseOfTheGoldenTable) {
  const Json json = table("timestep_laws.json");
  const auto u = json.at("u").get<std::vector<double>>(), z = json.at("z").get<std::vector<double>>();
  const std::map<std::string, double (*)(const Json&, double u, double z)> laws{
      {"uniform", [](const Json&, double u, double) { return u; }},
      {"logit_normal", [](const Json& row, double, double z) { return logit_normal_law(z, row["mean"], row["std"]); }},
      {"mode", [](const Json& row, double u, double) { return mode_law(u, row["scale"]); }},
      {"sigmoid", [](const Json& row, double, double z) { return sigmoid_law(z, row["scale"]); }},
      {"shifted_sigmoid",
       [](const Json& row, double, double z) { return shift_time(row["shift"], sigmoid_law(z, row["scale"])); }},
      {"flux_shift", [](const Json& row, double, double z) { return shift_time_mu(row["mu"], sigmoid_law(z, 1)); }}};
  for (const Json& row : json.at("laws")) {
    const std::string name = row.at("law");
    ASSERT_TRUE(laws.contains(name)) << name;
    for (size_t i = 0; i < u.size(); ++i)
      EXPECT_NEAR(laws.at(name)(row, u[i], z[i]), row.at("t").at(i).get<double>(), 1e-14) << name << " " << i;
  }
  const Json& weights = json.at("loss_weights");
  const auto sigma = weights.at("sigma").get<std::vector<double>>();
  for (const Json& row : weights.at("schemes")) {
    const std::string scheme = row.at("scheme");
    for (size_t i = 0; i < sigma.size(); ++i)
      expect_equal(scheme == "sigma_sqrt" ? sigma_sqrt_weight(sigma[i])
                   : scheme == "cosmap"   ? cosmap_weight(sigma[i])
                                          : 1,
                   row.at("weight").at(i), fmt::format("{} at {}", scheme, sigma[i]));
  }
}

// The density of a law is du/dt; that of cosmap is the weight of the same name.
TEST(TimestepLaws, CosmapHasItsDensity) {
  for (const double u : {0.05, 0.3, 0.5, 0.77, 0.95}) {
    constexpr double h = 1e-6;
    const double slope = (cosmap_law(u + h) - cosmap_law(u - h)) / (2 * h);
    EXPECT_NEAR(1 / slope, cosmap_weight(cosmap_law(u)), 1e-8);
  }
  EXPECT_DOUBLE_EQ(cosmap_law(0.5), 0.5);
}

// A drawn time is the law applied to the same random number, then shifted.
TEST(TimestepLaws, DrawnTimesFollowTheLaw) {
  struct Row {
    const char* type;
    double (*law)(Random&);
    void (*set)(TrainSection&);
  };
  const auto shift = [](TrainSection& t) { t.timestep_shift = 3; };
  const Row rows[] = {
      {"linear", [](Random& r) { return shift_time(3, r.uniform()); }, shift},
      {"linear", [](Random& r) { return r.uniform(); }, [](TrainSection&) {}},
      {"sigmoid", [](Random& r) { return sigmoid_law(r.normal(), 0.7); },
       [](TrainSection& t) { t.sigmoid_scale = 0.7; }},
      {"shift", [](Random& r) { return shift_time(3, sigmoid_law(r.normal(), 1)); }, shift},
      {"shift", [](Random& r) { return shift_time(2.5, sigmoid_law(r.normal(), 1)); }, [](TrainSection&) {}},
      {"flux_shift", [](Random& r) { return shift_time_mu(ResolutionShift{}.mu(1024), sigmoid_law(r.normal(), 1)); },
       [](TrainSection&) {}},
      {"linear_flux_shift", [](Random& r) { return shift_time_mu(ResolutionShift{}.mu(1024), r.uniform()); },
       [](TrainSection&) {}},
      {"logit_normal", [](Random& r) { return shift_time(3, logit_normal_law(r.normal(), -0.5, 1.5)); },
       [](TrainSection& t) {
         t.logit_mean = -0.5;
         t.logit_std = 1.5;
         t.timestep_shift = 3;
       }},
      {"mode", [](Random& r) { return mode_law(r.uniform(), 0.8); }, [](TrainSection& t) { t.mode_scale = 0.8; }},
      {"mode", [](Random& r) { return mode_law(r.uniform(), 1.29); }, [](TrainSection&) {}},
      {"cosmap", [](Random& r) { return cosmap_law(r.uniform()); }, [](TrainSection&) {}},
      // The model's own law has the model's own shift.
      {"", [](Random& r) { return shift_time(2.5, sigmoid_law(r.normal(), 1)); }, [](TrainSection&) {}},
  };
  Recipe recipe = flow_recipe();
  recipe.timestep.shift = 2.5;
  for (const Row& row : rows) {
    TrainSection train;
    train.timestep_type = row.type;
    if (train.timestep_type == "sigmoid") recipe.timestep.type = "linear";  // not its own: unshifted
    row.set(train);
    const TimestepLaw law(train, recipe);
    recipe.timestep.type = "sigmoid";
    Random drawn(1, Purpose::timestep, 2, 3), same(1, Purpose::timestep, 2, 3);
    for (int i = 0; i < 20; ++i) EXPECT_EQ(law.draw(drawn, 1024), row.law(same)) << row.type;
  }
}

// A recipe's law may be wider than a sigmoid of a plain normal number, and mu follow the logarithm of the size.
TEST(TimestepLaws, OfARecipeHaveItsWidthAndGrowth) {
  Recipe recipe = flow_recipe();
  recipe.timestep = {
      .type = "resolution_shift", .scale = 1.5, .resolution_shift = ResolutionShift{1024, 0, 4096, std::log(2), true}};
  for (const auto& [tokens, mu] : {std::pair{1024, 0.0}, std::pair{2048, std::log(2) / 2}, std::pair{256, -std::log(2)},
                                   std::pair{16384, 2 * std::log(2)}}) {
    EXPECT_NEAR(recipe.timestep.resolution_shift->mu(tokens), mu, 1e-15);
    for (const double scale : {1.5, 0.5}) {
      TrainSection train;
      if (scale != 1.5) train.sigmoid_scale = scale;
      Random drawn(1, Purpose::timestep, 2, 3), same(1, Purpose::timestep, 2, 3);
      for (int i = 0; i < 20; ++i)
        EXPECT_NEAR(TimestepLaw(train, recipe).draw(drawn, tokens), logit_normal_law(same.normal(), mu, scale), 1e-14);
    }
  }
  EXPECT_EQ(TimestepLaw({}, recipe).text(),
            "resolution_shift scale 1.5 mu 0 at 1024 tokens to 0.6931471805599453 at 4096 by logarithm");
  TrainSection plain;  // another law has no width of the model's
  plain.timestep_type = "sigmoid";
  EXPECT_EQ(TimestepLaw(plain, recipe).text(), "sigmoid scale 1 shift 1");
}

// As the trainer of LTX-2 draws: the share of its times below x is 0.1 of an even law and 0.9 of a shifted sigmoid
// between two of its own times, what comes out below 0.001 being mirrored there.
TEST(TimestepLaws, StretchedAndEvenInPart) {
  Recipe recipe;
  recipe.objective = Objective::flow;
  recipe.timestep = {.type = "resolution_shift",
                     .resolution_shift = ResolutionShift{1024, 0.95, 4096, 2.05, false, true},
                     .stretch = {{0.005, 0.999}},
                     .even = 0.1};
  const TimestepLaw law({}, recipe);
  EXPECT_EQ(
      law.text(),
      "resolution_shift scale 1 mu 0.95 at 1024 tokens to 2.05 at 4096 at most stretched from ranks 0.005 to 0.999 0.1 "
      "of them evenly");
  const auto sigmoid = [](double z) { return 1 / (1 + std::exp(-z)); };
  constexpr double least = 1e-3;
  for (const auto& [tokens, mu] : {std::pair<int64_t, double>{1024, 0.95}, {2560, 1.5}, {4096, 2.05}, {14080, 2.05}}) {
    const double first = sigmoid(mu - 2.5758), last = sigmoid(mu + 3.0902);
    const auto rank = [&, mu = mu](double y) {  // of what is stretched to y
      const double t = first + y * (last - first);
      return t <= 0 ? 0.0 : 0.5 * std::erfc(-(std::log(t / (1 - t)) - mu) / std::numbers::sqrt2);
    };
    const auto below = [&](double x) {
      return 0.9 * (x >= 1 ? 1 : rank(x) - rank(2 * least - x)) + 0.1 * (x - least) / (1 - least);
    };
    constexpr size_t count = 20000;
    std::vector<double> times;
    for (size_t i = 0; i < count; ++i) {
      Random random(7, Purpose::timestep, i, 0);
      times.push_back(law.draw(random, tokens));
    }
    std::ranges::sort(times);
    EXPECT_GE(times.front(), least);
    EXPECT_LE(times.back(), 1);
    double apart = 0;
    for (size_t i = 0; i < count && times[i] < 1; ++i)
      apart = std::max(apart, std::abs(below(times[i]) - (static_cast<double>(i) + 0.5) / count));
    // Kolmogorov's: more than 2 / sqrt(n) of 1 in 1500 samples. Without the even part it is 0.1 apart.
    EXPECT_LT(apart, 2 / std::sqrt(static_cast<double>(count))) << tokens;
  }
}

TEST(TimestepLaws, DenoisingStepsLimitTheRank) {
  TrainSection train;
  train.min_denoising_steps = 100;
  train.max_denoising_steps = 399;  // of 1000 from pure noise: the times of ranks 0.6 to 0.9
  struct Row {
    const char* type;
    double low, high;
  };
  const double z60 = 0.2533471031357997, z90 = 1.2815515655446004;  // normal quantiles
  for (const Row& row :
       {Row{"linear", 0.6, 0.9}, Row{"sigmoid", sigmoid_law(z60, 1), sigmoid_law(z90, 1)},
        Row{"mode", mode_law(0.4, 1.29), mode_law(0.1, 1.29)}, Row{"cosmap", cosmap_law(0.6), cosmap_law(0.9)}}) {
    train.timestep_type = row.type;
    const TimestepLaw law(train, flow_recipe());
    double least = 1, most = 0;
    for (uint64_t step = 0; step < 2000; ++step) {
      Random random(5, Purpose::timestep, step, 0);
      const double t = law.draw(random, 1);
      least = std::min(least, t);
      most = std::max(most, t);
    }
    const double span = row.high - row.low;
    EXPECT_GE(least, row.low - 1e-12) << row.type;
    EXPECT_LT(most, row.high + 1e-12) << row.type;
    EXPECT_LT(least, row.low + 0.02 * span) << row.type << ": the whole range is drawn from";
    EXPECT_GT(most, row.high - 0.02 * span) << row.type;
  }
}

// A denoiser that serves a share of the levels is trained on that share, whatever the law.
TEST(TimestepLaws, ADenoiserIsTrainedOnItsShare) {
  const DenoiserSpec mine{}, noisy{"denoiser", 0.875}, noisier{"high_noise", 0.875}, clearer{"low_noise", 0};
  struct Row {
    std::vector<DenoiserSpec> denoisers;
    double above, up_to;
  };
  for (const Row& row : {Row{{noisy, clearer}, 0.875, 1}, Row{{noisier, mine}, 0, 0.875}, Row{{mine}, 0, 1}})
    for (const char* type : {"linear", "sigmoid", "shift", "flux_shift", "mode", "lognorm_blend", "eight_step"})
      for (const char* favoured : {"balanced", "style"}) {
        Recipe recipe = flow_recipe();
        recipe.timestep.shift = 3;
        recipe.denoisers = row.denoisers;
        TrainSection train;
        train.timestep_type = type;
        train.content_or_style = favoured;
        const TimestepLaw law(train, recipe);
        double least = 1, most = 0;
        for (uint64_t step = 0; step < 500; ++step) {
          Random random(5, Purpose::timestep, step, 0);
          const double t = law.draw(random, 1024);
          least = std::min(least, t);
          most = std::max(most, t);
        }
        EXPECT_GE(least, row.above) << type;
        EXPECT_LE(most, row.up_to) << type;
        EXPECT_GT(most - least, type == std::string("eight_step") ? -1 : 0.5 * (row.up_to - row.above)) << type;
      }
}

// Levels outside of a range are drawn again, or all are moved into it.
TEST(TimestepLaws, KeepToARange) {
  TrainSection train;
  train.timestep_type = "shift";
  train.timestep_shift = 3;
  const TimestepLaw plain(train, flow_recipe());
  train.noise_range = {0.25, 0.75};
  const TimestepLaw cut(train, flow_recipe());
  train.noise_range_fit = "scale";
  const TimestepLaw scaled(train, flow_recipe());
  for (uint64_t step = 0; step < 500; ++step) {
    const auto drawn = [&](const TimestepLaw& law) {
      Random random(5, Purpose::timestep, step, 0);
      return law.draw(random, 1024);
    };
    const double t = drawn(plain), kept = drawn(cut);
    EXPECT_DOUBLE_EQ(drawn(scaled), 0.25 + 0.5 * t);
    EXPECT_TRUE(kept >= 0.25 && kept <= 0.75) << kept;
    EXPECT_TRUE(t < 0.25 || t > 0.75 || kept == t) << t;
  }
  EXPECT_THAT(cut.text(), HasSubstr("shift 3 from 0.25 to 0.75"));
  EXPECT_THAT(scaled.text(), HasSubstr("scaled to 0.25 to 0.75"));
  train.noise_range = {0.5};
  EXPECT_THAT(error_of([&] { TimestepLaw(train, flow_recipe()); }),
              HasSubstr("train.noise_range: expected two numbers, the second above the first, found [0.5]"));
  train.timestep_type = "one_step";
  train.timestep_shift.reset();
  train.noise_range = {0, 0.5};
  train.noise_range_fit = "cut";
  Random random(5, Purpose::timestep, 0, 0);
  EXPECT_THAT(error_of([&] { TimestepLaw(train, flow_recipe()).draw(random, 1); }),
              HasSubstr("train.noise_range: timestep_type one_step draws no noise level from 0 to 0.5"));
}

TEST(TimestepLaws, AShareWithoutATimeIsSaid) {
  Recipe recipe = flow_recipe();
  recipe.denoisers = {{"high_noise", 0.875}, {}};
  TrainSection train;
  train.timestep_type = "one_step";
  Random random(5, Purpose::timestep, 0, 0);
  EXPECT_THAT(error_of([&] { TimestepLaw(train, recipe).draw(random, 1); }),
              HasSubstr("train.timestep_type: one_step draws no noise level above 0 and up to 0.875"));
  EXPECT_NE(TimestepLaw({}, recipe).text(), TimestepLaw({}, flow_recipe()).text());
}

TEST(TrainingObjective, DiscreteTimestepsAreAllDrawnEvenly) {
  const TrainingObjective objective({}, discrete_recipe(Objective::epsilon));
  std::vector<int> counts(1000);
  Random random(1, Purpose::timestep, 0, 0);
  constexpr int draws = 200000;
  for (int i = 0; i < draws; ++i) {
    const float time = objective.draw(random, 1).time;
    ASSERT_EQ(time, std::floor(time));
    ++counts.at(static_cast<size_t>(time));
  }
  // Poisson with mean 200: all thousand within six standard deviations.
  for (const int count : counts) EXPECT_NEAR(count, 200, 6 * std::sqrt(200.0));
}

// From x_t and the target one gets back x0 and noise.
TEST(TrainingObjective, ExamplesSayWhatTheModelShould) {
  const std::vector<float> x0{0.5f, -1, 2, 0.25f}, noise{1, -0.5f, 0.75f, -1.25f};
  for (const Objective kind : {Objective::flow, Objective::epsilon, Objective::v_prediction}) {
    const TrainingObjective objective({}, kind == Objective::flow ? flow_recipe() : discrete_recipe(kind));
    Random random(7, Purpose::timestep, 0, 0);
    const NoiseLevel level = objective.draw(random, 1);
    ASSERT_GT(level.alpha, 0.05);
    EXPECT_EQ(level.weight, 1);
    std::vector<float> noisy(4), target(4);
    objective.make_pair(x0, noise, level, noisy, target);
    for (size_t i = 0; i < 4; ++i) {
      SCOPED_TRACE(fmt::format("{} {}", objective_name(kind), i));
      constexpr double rounding = 16 * 0x1p-24;
      EXPECT_NEAR(noisy[i], level.alpha * x0[i] + level.sigma * noise[i], rounding);
      switch (kind) {
        case Objective::flow:
          EXPECT_EQ(level.time, static_cast<float>(level.sigma));
          EXPECT_NEAR(noisy[i] - level.sigma * target[i], x0[i], rounding);
          break;
        case Objective::epsilon: EXPECT_EQ(target[i], noise[i]); break;
        case Objective::v_prediction:
          EXPECT_NEAR(level.alpha * noisy[i] - level.sigma * target[i], x0[i], rounding);
          EXPECT_NEAR(level.sigma * noisy[i] + level.alpha * target[i], noise[i], rounding);
      }
    }
  }
}

// x_t and the target have the noise that is as loud as the recipe says, and so says what a run is bound to.
TEST(TrainingObjective, NoiseMayBeLouder) {
  const std::vector<float> x0{0.5f, -1}, noise{1, -0.5f};
  Recipe recipe = flow_recipe();
  const std::string plain = TrainingObjective({}, recipe).text();
  recipe.noise = {.scale = 8, .clip = 2.5};
  const TrainingObjective objective({}, recipe);
  EXPECT_EQ(objective.text(), plain + "; noise times 8; noise within 2.5 standard deviations");
  std::vector<float> noisy(2), target(2);
  objective.make_pair(x0, noise, {.alpha = 0.75, .sigma = 0.25, .time = 0.25f}, noisy, target);
  EXPECT_THAT(noisy, ElementsAre(0.75f * 0.5f + 0.25f * 8, 0.75f * -1 + 0.25f * -4));
  EXPECT_THAT(target, ElementsAre(8 - 0.5f, -4 + 1.0f));
}

TEST(TrainingObjective, NoiseIsClippedByItsOwnDeviation) {
  std::vector<float> noise{1, -1, 1, -1, 6, -6};  // squares: 76, of six numbers
  const auto most = static_cast<float>(1.25 * std::sqrt(76.0 / 5));
  clip_noise(noise, 1.25);
  EXPECT_THAT(noise, ElementsAre(1, -1, 1, -1, most, -most));
}

TEST(TrainingObjective, SamplesAreWeightedByTheirNoise) {
  TrainSection cosmap, min_snr, debiased;
  cosmap.weighting_scheme = "cosmap";
  min_snr.min_snr_gamma = 5;
  debiased.debiased_estimation_loss = true;
  Recipe own = flow_recipe();
  own.timestep.weighting = "sigma_sqrt";
  const NoiseSchedule noise{NoiseScheduleSpec{.zero_terminal_snr = true}};
  struct Row {
    TrainingObjective objective;
    std::function<double(const NoiseLevel&)> weight;
  };
  const auto snr = [&](const NoiseLevel& l) { return noise.snr(std::llround(l.time)); };
  const Row rows[] = {
      {{cosmap, flow_recipe()}, [](const NoiseLevel& l) { return cosmap_weight(l.sigma); }},
      {{{}, own}, [](const NoiseLevel& l) { return sigma_sqrt_weight(std::max(l.sigma, 1e-3)); }},
      {{min_snr, discrete_recipe(Objective::v_prediction, true)},
       [&](const NoiseLevel& l) { return min_snr_weight(Objective::v_prediction, snr(l), 5); }},
      {{debiased, discrete_recipe(Objective::v_prediction, true)},
       [&](const NoiseLevel& l) { return debiased_weight(Objective::v_prediction, snr(l)); }},
  };
  for (const Row& row : rows) {
    EXPECT_TRUE(row.objective.weighted());
    Random random(3, Purpose::timestep, 0, 0);
    for (int i = 0; i < 50; ++i) {
      const NoiseLevel level = row.objective.draw(random, 1);
      EXPECT_EQ(level.weight, static_cast<float>(row.weight(level))) << row.objective.text();
    }
  }
  EXPECT_FALSE(TrainingObjective({}, flow_recipe()).weighted());
}

TEST(TrainingObjective, NoiseOffsetIsOneNumberForEachChannel) {
  constexpr int64_t channels = 3;
  std::vector<float> noise(4 * channels, 0.0f);
  add_noise_offset(noise, channels, 0.5, Random(1, Purpose::noise_offset, 2, 3));
  std::vector<float> draw(channels);
  Random(1, Purpose::noise_offset, 2, 3).fill_normal(draw);
  for (size_t i = 0; i < noise.size(); ++i) EXPECT_EQ(noise[i], 0.5f * draw[i % channels]) << i;
}

// The published formulas of kohya's scripts in float64 (train_util.get_huber_threshold_if_needed, conditional_loss),
// for a timestep t of 1000 and SNR = alphas_cumprod / (1 - alphas_cumprod).
TEST(Huber, WidthsMoveWithTheNoise) {
  const auto schedule = [](const char* loss, const char* name, const Recipe& recipe) {
    TrainSection train;
    train.loss = loss;
    train.huber_schedule = name;
    train.huber_c = 0.2;
    train.huber_scale = 1.5;
    return HuberSchedule(train, recipe);
  };
  const Recipe discrete = discrete_recipe(Objective::epsilon);
  const NoiseSchedule noise{NoiseScheduleSpec{}};
  for (const int64_t t : {0, 1, 250, 999}) {
    const double time = static_cast<double>(t) / 1000, bar = noise.alpha_cumprod(t);
    const double alpha = -std::log(0.2) / 1000, sigma = std::sqrt((1 - bar) / bar);
    const auto near = [](double got, double want) { EXPECT_NEAR(got, want, 1e-12 * std::abs(want)); };
    near(schedule("huber", "exponential", discrete).width(time, noise.snr(t)),
         1.5 * std::exp(-alpha * static_cast<double>(t)));
    near(schedule("huber", "snr", discrete).width(time, noise.snr(t)), (1 - 0.2) / ((1 + sigma) * (1 + sigma)) + 0.2);
    near(schedule("huber", "constant", discrete).width(time, noise.snr(t)), 0.3);
    near(schedule("pseudo_huber", "", discrete).width(time, noise.snr(t)), 0.01);
  }
  EXPECT_EQ(schedule("huber", "constant", discrete).factor(0.25), 0.5);
  EXPECT_EQ(schedule("smooth_l1", "constant", discrete).factor(0.25), 2);
  EXPECT_EQ(schedule("pseudo_huber", "", discrete).factor(0.25), 1);
  EXPECT_FALSE(schedule("mse", "", discrete).on());
  EXPECT_EQ(schedule("huber", "", discrete).text(), "huber snr c 0.2 scale 1.5");
  EXPECT_EQ(schedule("huber", "", flow_recipe()).text(), "huber exponential c 0.2 scale 1.5");
  EXPECT_THROW(schedule("smooth_l1", "snr", flow_recipe()), Error);
}

TEST(TrainingObjective, LevelsHaveTheWidthOfTheLoss) {
  TrainSection train;
  train.loss = "huber";
  const TrainingObjective objective(train, flow_recipe());
  EXPECT_TRUE(objective.weighted());
  Random random(3, Purpose::timestep, 0, 0);
  for (int i = 0; i < 20; ++i) {
    const NoiseLevel level = objective.draw(random, 1);
    const double width = std::pow(0.1, double{level.time});
    EXPECT_EQ(level.width, static_cast<float>(width));
    EXPECT_EQ(level.weight, static_cast<float>(2 * width));
  }
}

// u^3 of the law's times are noisier than a drawn one for content, 1 - u^3 for style: the rank of u^3 is even, so that
// P(noisier share < q) = q^(1/3).
TEST(TimestepLaws, ContentAndStyleFavourTheirLevels) {
  for (const char* type : {"sigmoid", "linear", "mode", "cosmap"})
    for (const char* favoured : {"content", "style"}) {
      SCOPED_TRACE(fmt::format("{} {}", type, favoured));
      TrainSection train, balanced;
      train.timestep_type = balanced.timestep_type = type;
      train.content_or_style = favoured;
      const TimestepLaw law(train, flow_recipe()), plain(balanced, flow_recipe());
      Random random(5, Purpose::timestep, 0, 0), other(5, Purpose::noise, 0, 0);
      constexpr int draws = 4000;
      std::vector<double> times(draws), of_law(draws);
      for (double& t : of_law) t = plain.draw(other, 1);
      for (double& t : times) t = law.draw(random, 1);
      std::ranges::sort(of_law);
      std::ranges::sort(times, std::greater());
      // The median of the cube of u is 1/8: from the noisy end for content, from the other for style.
      const size_t eighth = favoured == std::string("content") ? draws * 7 / 8 : draws / 8;
      // Both are known to about 1/60 in rank: four standard deviations are 1/15.
      const double rank = static_cast<double>(std::ranges::lower_bound(of_law, times[draws / 2]) - of_law.begin());
      EXPECT_NEAR(rank / draws, static_cast<double>(eighth) / draws, 1.0 / 15);
      // Regularization images have a word of their own.
      Random one(5, Purpose::timestep, 1, 0), two(5, Purpose::timestep, 1, 0);
      EXPECT_EQ(law.draw(one, 1, true), plain.draw(two, 1));
      balanced.content_or_style_reg = favoured;
      const TimestepLaw of_reg(balanced, flow_recipe());
      EXPECT_EQ(of_reg.draw(one, 1, true), law.draw(two, 1));
      EXPECT_EQ(of_reg.draw(one, 1), plain.draw(two, 1));
      // A run is not resumed with another word.
      const std::set<std::string> texts{plain.text(), law.text(), of_reg.text()};
      EXPECT_EQ(texts.size(), 3u);
    }
}

TEST(TimestepLaws, FewStepsAreDrawnAlike) {
  for (const auto& [type, times] : std::map<std::string, std::set<double>>{
           {"one_step", {1}}, {"two_step", {0.501, 1}}, {"four_step", {0.25, 0.5, 0.75, 1}}}) {
    TrainSection train;
    train.timestep_type = type;
    const TimestepLaw law(train, flow_recipe());
    Random random(5, Purpose::timestep, 0, 0);
    constexpr int draws = 4000;
    std::map<double, int> seen;
    for (int i = 0; i < draws; ++i) ++seen[law.draw(random, 1)];
    const double share = 1.0 / static_cast<double>(times.size());
    EXPECT_EQ(seen.size(), times.size());
    // Four standard deviations of a share.
    for (const auto& [t, count] : seen) {
      EXPECT_TRUE(times.contains(t)) << t;
      EXPECT_NEAR(static_cast<double>(count) / draws, share, 4 * std::sqrt(share * (1 - share) / draws));
    }
  }
  TrainSection train;
  train.timestep_type = "two_step";
  train.timestep_shift = 3;
  EXPECT_THROW(TimestepLaw(train, flow_recipe()), Error);
}

TEST(TrainingNoise, PerturbationIsOnlyInWhatTheModelSees) {
  const std::vector<float> x0{0.5f, -1}, noise{1, -0.5f};
  const std::vector<float> perturbed = perturb(noise, 0.1, false, Random(1, Purpose::input_perturbation, 2, 3));
  std::vector<float> draw(2);
  Random(1, Purpose::input_perturbation, 2, 3).fill_normal(draw);
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(perturbed[i], noise[i] + 0.1f * draw[i]);
  const TrainingObjective objective({}, flow_recipe());
  std::vector<float> noisy(2), target(2);
  objective.make_pair(x0, noise, {.alpha = 0.75, .sigma = 0.25, .time = 0.25f}, noisy, target, perturbed);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(target[i], noise[i] - x0[i]);
    EXPECT_NEAR(noisy[i], 0.75 * x0[i] + 0.25 * perturbed[i], 4 * 0x1p-24);
  }
  // Drawn strengths are below the given one, and even: their mean is a half, within four standard deviations.
  double sum = 0;
  for (uint32_t i = 0; i < 400; ++i) {
    const float v = perturb(std::vector<float>(1), 1, true, Random(1, Purpose::input_perturbation, 0, i))[0];
    Random again(1, Purpose::input_perturbation, 0, i);
    const double strength = again.uniform();
    std::vector<float> normal(1);
    again.fill_normal(normal);
    EXPECT_EQ(v, static_cast<float>(strength) * normal[0]);
    sum += strength;
  }
  EXPECT_NEAR(sum / 400, 0.5, 4 * 0.289 / 20);
}

// One grid of the size of the latents: sqrt(2) as strong, scaled back to 1. Coarse grids: neighbours are alike.
TEST(TrainingNoise, MultiResolutionNoiseHasOneAsItsDeviation) {
  constexpr int64_t side = 16, channels = 4;
  const auto noise_of = [&](int64_t iterations, uint32_t lane) {
    std::vector<float> noise(side * side * channels);
    Random(1, Purpose::noise, 0, lane).fill_normal(noise);
    add_multires_noise(noise, side, side, channels, iterations, 0.9, Random(1, Purpose::multires_noise, 0, lane));
    return noise;
  };
  std::vector<float> plain(side * side * channels), other(plain.size());
  Random(1, Purpose::noise, 0, 0).fill_normal(plain);
  Random draws(1, Purpose::multires_noise, 0, 0);
  draws.uniform();
  draws.fill_normal(other);
  const std::vector<float> once = noise_of(1, 0);
  double ratio = 0;
  for (size_t i = 0; i < plain.size(); ++i) {
    const double want = double{plain[i]} + double{other[i]};
    if (i == 0) ratio = once[i] / want;
    EXPECT_NEAR(once[i], want * ratio, 1e-5 * std::abs(want) + 1e-6);
  }
  EXPECT_NEAR(ratio, 1 / std::numbers::sqrt2, 0.1);
  double alike = 0, squares = 0, mean = 0;
  constexpr uint32_t samples = 40;
  for (uint32_t lane = 0; lane < samples; ++lane) {
    const std::vector<float> noise = noise_of(8, lane);
    double sum = 0, square = 0;
    for (const float v : noise) sum += double{v}, square += double{v} * double{v};
    const auto count = static_cast<double>(noise.size());
    mean += sum / count / samples;
    EXPECT_NEAR(square - sum * sum / count, count - 1, 1e-3 * count) << "the deviation is 1";
    for (size_t i = 0; i + channels < noise.size(); ++i) {
      if ((i / channels + 1) % side == 0) continue;
      alike += double{noise[i]} * double{noise[i + channels]};
      squares += double{noise[i]} * double{noise[i]};
    }
  }
  EXPECT_GT(alike / squares, 0.2) << "white noise has 0";
  EXPECT_LT(std::abs(mean), 0.2);
}

TEST(TrainingObjective, SettingsThatDoNotFitAreRefused) {
  struct Row {
    Recipe recipe;
    void (*set)(TrainSection&);
    const char* text;
  };
  const Row rows[] = {
      {flow_recipe(), [](TrainSection& t) { t.min_snr_gamma = 5; },
       "train.min_snr_gamma: weighs by the signal-to-noise ratio of discrete timesteps, but this model is trained by "
       "flow matching"},
      {flow_recipe(), [](TrainSection& t) { t.debiased_estimation_loss = true; }, "train.debiased_estimation_loss:"},
      {discrete_recipe(Objective::epsilon), [](TrainSection& t) { t.weighting_scheme = "cosmap"; },
       "train.weighting_scheme: cosmap is a weight for flow models, this one is of objective epsilon"},
      {discrete_recipe(Objective::epsilon),
       [](TrainSection& t) {
         t.min_snr_gamma = 5;
         t.debiased_estimation_loss = true;
       },
       "keep one"},
      {discrete_recipe(Objective::epsilon), [](TrainSection& t) { t.timestep_type = "flux_shift"; },
       "train.timestep_type: flux_shift is for flow models"},
      {flow_recipe(),
       [](TrainSection& t) {
         t.weighting_scheme = "mode";
         t.timestep_type = "sigmoid";
       },
       "train.weighting_scheme: mode says how noise levels are drawn, and so does train.timestep_type: sigmoid"},
      {flow_recipe(), [](TrainSection& t) { t.logit_mean = 1; },
       "train.logit_mean: belongs to timestep_type logit_normal, but noise levels are drawn by sigmoid"},
      {flow_recipe(),
       [](TrainSection& t) {
         t.timestep_type = "flux_shift";
         t.timestep_shift = 3;
       },
       "train.timestep_shift: belongs to"},
      {flow_recipe(),
       [](TrainSection& t) {
         t.min_denoising_steps = 500;
         t.max_denoising_steps = 400;
       },
       "train.max_denoising_steps: 400 is below train.min_denoising_steps: 500"},
  };
  for (const Row& row : rows) {
    TrainSection train;
    row.set(train);
    EXPECT_THAT(error_of([&] { TrainingObjective(train, row.recipe); }), HasSubstr(row.text));
  }
  TrainSection off;
  off.min_snr_gamma = 0;
  EXPECT_EQ(error_of([&] { TrainingObjective(off, flow_recipe()); }), "");
}

// Whatever changes what is drawn changes the text that a resumed run is compared by.
TEST(TrainingObjective, TextTellsRunsApart) {
  void (*const changes[])(TrainSection&) = {[](TrainSection&) {},
                                            [](TrainSection& t) { t.timestep_type = "linear"; },
                                            [](TrainSection& t) { t.timestep_shift = 2; },
                                            [](TrainSection& t) { t.sigmoid_scale = 2; },
                                            [](TrainSection& t) { t.timestep_type = "logit_normal"; },
                                            [](TrainSection& t) {
                                              t.timestep_type = "logit_normal";
                                              t.logit_std = 2;
                                            },
                                            [](TrainSection& t) { t.timestep_type = "flux_shift"; },
                                            [](TrainSection& t) { t.min_denoising_steps = 1; },
                                            [](TrainSection& t) { t.weighting_scheme = "cosmap"; },
                                            [](TrainSection& t) { t.weighting_scheme = "mode"; }};
  std::vector<std::string> texts;
  for (const auto change : changes) {
    TrainSection train;
    change(train);
    texts.push_back(TrainingObjective(train, flow_recipe()).text());
  }
  for (const bool zero : {false, true})
    texts.push_back(TrainingObjective({}, discrete_recipe(Objective::v_prediction, zero)).text());
  std::ranges::sort(texts);
  EXPECT_EQ(std::ranges::adjacent_find(texts), texts.end());
}

// Of an image of 1000 x 600, in a bucket of 640 x 384 and of 320 x 512, mirrored or not.
TEST(SizeIds, AreTheGeometryOfResizingAndCropping) {
  Sample sample;
  sample.image.size = {1000, 600};
  sample.bucket = {640, 384};
  EXPECT_EQ(image_numbers(sample.cut()), (ImageNumbers{600, 1000, 0, 0, 384, 640}));
  sample.bucket = {320, 512};  // scaled to 853 x 512; (853 - 320) / 2 = 266 left, 267 right
  EXPECT_EQ(image_numbers(sample.cut()), (ImageNumbers{600, 1000, 0, 266, 512, 320}));
  sample.flip = {.x = true};
  EXPECT_EQ(image_numbers(sample.cut()), (ImageNumbers{600, 1000, 0, 267, 512, 320}));
  sample.image.size = {100, 301};
  sample.bucket = {64, 64};  // scaled to 64 x 193; (193 - 64) / 2 = 64 above, 65 below
  EXPECT_EQ(image_numbers(sample.cut()), (ImageNumbers{301, 100, 64, 0, 64, 64}));
  sample.flip = {.y = true};
  EXPECT_EQ(image_numbers(sample.cut()), (ImageNumbers{301, 100, 65, 0, 64, 64}));
  sample.flip = {};
  EXPECT_EQ(image_numbers(sample.cut()), (ImageNumbers{301, 100, 64, 0, 64, 64}));
}

}  // namespace
}  // namespace lh::test::objective_test
