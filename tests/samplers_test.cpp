// Sampler plugins along schedules of plugins: golden trajectories, what every sampler has to do on a model that
// knows the answer, and what a stage is given.
#include <gmock/gmock.h>

#include <cmath>
#include <set>

#include "support/device.h"
#include "support/given_options.h"
#include "support/io_files.h"
#include "support/model_files.h"
#include "support/sampler_case.h"

namespace lh::test::samplers_test {
namespace {

namespace fs = std::filesystem;
using golden::Case;
using ::testing::HasSubstr;

TEST(Samplers, FollowTheGoldenTrajectories) {
  Device device(tested_device());
  std::set<std::string> samplers, classes;
  for (const fs::path& folder : golden::entries_of("samplers")) {
    SCOPED_TRACE(folder.string());
    const Case c(folder);
    if (c.json.contains("sampler"))
      samplers.insert(c.json.at("sampler").at("name"));
    else
      classes.insert(c.json.at("scheduler").at("class"));
    const golden::Floats found = golden::trajectory(c, device);
    for (const std::string& name : c.expected_names()) {
      ASSERT_TRUE(found.contains(name)) << name;
      const double limit = std::max(4 * c.json.at("fp32_error").at(name).get<double>(), 2e-6);
      const HostTensor expected = c.expected(name);
      ASSERT_EQ(found.at(name).size(), expected.as<float>().size()) << name;
      EXPECT_LE(golden::relative_error(found.at(name), expected.as<float>()), limit) << name;
    }
  }
  EXPECT_GE(classes.size(), 9u);
  EXPECT_GE(samplers.size(), 12u);
}

// alpha and sigma of the model's own scale, which have to be those of the time that it is given.
std::pair<double, double> level_of(const Recipe& recipe, const SamplingLevel& at) {
  if (recipe.objective == Objective::flow) {
    EXPECT_EQ(at.time, at.sigma);
    return {1 - at.time, at.time};
  }
  const NoiseSchedule noise = NoiseSchedule(recipe.noise_schedule).with_signal();
  EXPECT_NEAR(noise.time_of_ratio(at.sigma / at.alpha), at.time, 1e-6);
  return {at.alpha, at.sigma};
}

bool fits(const Offered<lh_sampler>& offered, Objective objective) {
  for (const char* const* name = offered.descriptor->objectives; *name != nullptr; ++name)
    if (objective_name(objective) == *name) return true;
  return false;
}

// A model that knows x0 leads every sampler to it, whatever the objective and the spacing.
TEST(Samplers, EndAtTheX0OfAModelThatKnowsIt) {
  Device device(tested_device());
  const HostTensor x0 = floats({1, 2, 2, 3}, {0.5f, -1, 2, 0.25f, 0, -0.75f, 1, 1.5f, -2, 0.125f, -0.5f, 3});
  const HostTensor start = floats({1, 2, 2, 3}, {1, -0.5f, 0.75f, -1.25f, 0.1f, 2, -0.3f, 0.6f, 1.1f, -0.9f, 0.4f, 0});
  int runs = 0;
  for (const Objective objective : {Objective::flow, Objective::epsilon, Objective::v_prediction})
    for (const auto spacing : {ScheduleSpec::Spacing::leading, ScheduleSpec::Spacing::trailing})
      for (const Offered<lh_sampler>& offered : built_plugins().samplers()) {
        const Recipe recipe = golden::recipe_of(objective, spacing);
        const std::string id = offered.descriptor->id;
        if (id == "lcm_boundary" || !fits(offered, objective)) continue;  // keeps a share of x by design
        SCOPED_TRACE(fmt::format("{} {} {}", id, objective_name(objective), static_cast<int>(spacing)));
        const Sampler sampler(offered, {});
        const SamplingSchedule schedule = golden::own_schedule(recipe, sampler.space(), 7);
        SamplerRun run(device, sampler, objective, schedule, x0.desc.shape);
        const HostTensor end = run.run(
            start, {.model =
                        [&](const HostTensor& x, const SamplingLevel& at, int64_t) {
                          const auto [alpha, sigma] = level_of(recipe, at);
                          HostTensor out(x.desc);
                          for (size_t i = 0; i < out.as<float>().size(); ++i) {
                            const double image = x0.as<float>()[i], noise = (x.as<float>()[i] - alpha * image) / sigma;
                            out.as<float>()[i] =
                                static_cast<float>(objective == Objective::flow      ? noise - image
                                                   : objective == Objective::epsilon ? noise
                                                                                     : alpha * noise - sigma * image);
                          }
                          return out;
                        },
                    .noise = [&](int64_t, int64_t) { return start; },
                    .proceed = [](int64_t, const HostTensor&) { return true; }});
        // x0 of epsilon is x / alpha, with the rounding of x and of the model's output: 2^-24 / alpha of x at the last
        // level, which is at least 0.9 here, after as many additions as a step has.
        EXPECT_LE(golden::relative_error(end.as<float>(), x0.as<float>()), 16 * 0x1p-24);
        ++runs;
      }
  EXPECT_EQ(runs, 2 * (16 + 16 + 16));
}

// Of images whose values are normal with mean m and variance v, the best model and its trajectories are known:
//   x0 = m + alpha v / (alpha^2 v + sigma^2) (x - alpha m),   (x - alpha m) / sqrt(alpha^2 v + sigma^2) stays the same
// so the error of a sampler can be seen to fall with its order.
class NormalPictures {
 public:
  explicit NormalPictures(const Recipe& recipe) : recipe_(recipe) {}

  double error(Device& device, const Sampler& sampler, int64_t steps) const {
    const SamplingSchedule schedule = golden::own_schedule(recipe_, sampler.space(), steps);
    const HostTensor start = floats({1, 1, 1, 4}, {1, -0.5f, 0.75f, -1.25f});
    HostTensor first;
    SamplerRun run(device, sampler, recipe_.objective, schedule, start.desc.shape);
    const HostTensor end =
        run.run(start, {.model = [&](const HostTensor& x, const SamplingLevel& at, int64_t) { return say(x, at); },
                        .noise = [&](int64_t, int64_t) { return start; },
                        .proceed =
                            [&](int64_t step, const HostTensor& x) {
                              if (step == 0) first = x;
                              return true;
                            }});
    const SamplingLevel& level = schedule.level(0);
    double sum = 0;
    for (size_t i = 0; i < 4; ++i) {
      const double kept = (first.as<float>()[i] - level.alpha * mean) /
                          std::sqrt(level.alpha * level.alpha * variance + level.sigma * level.sigma);
      sum += std::abs(end.as<float>()[i] - (mean + std::sqrt(variance) * kept));
    }
    return sum;
  }

 private:
  HostTensor say(const HostTensor& in, const SamplingLevel& at) const {
    const auto [alpha, sigma] = level_of(recipe_, at);
    HostTensor out(in.desc);
    for (size_t i = 0; i < out.as<float>().size(); ++i) {
      const double x = in.as<float>()[i];
      const double x0 = mean + alpha * variance / (alpha * alpha * variance + sigma * sigma) * (x - alpha * mean);
      const double noise = (x - alpha * x0) / sigma;
      out.as<float>()[i] = static_cast<float>(recipe_.objective == Objective::flow      ? noise - x0
                                              : recipe_.objective == Objective::epsilon ? noise
                                                                                        : alpha * noise - sigma * x0);
    }
    return out;
  }

  static constexpr double mean = 0.4, variance = 0.3;
  const Recipe& recipe_;
};

TEST(Samplers, ErrorsFallWithTheirOrder) {
  struct Row {
    const char *sampler, *options;
    int order;
  };
  // In log SNR the last steps stay long however many there are, so multistep methods are of second order only before
  // them; lms begins with first order steps.
  const Row rows[] = {{"euler", "{}", 1},
                      {"flow_euler", "{}", 1},
                      {"ddim", "{}", 1},
                      {"heun", "{}", 2},
                      {"flow_heun", "{}", 2},
                      {"dpm_2", "{}", 1},
                      {"dpmpp_2m", "{}", 1},
                      {"res_multistep", "{}", 1},
                      {"lms", "{}", 1},
                      {"uni_pc", "{}", 1},
                      {"uni_pc", "{order: 3}", 1},
                      {"dpmpp_2m_sde", "{eta: 0}", 1},
                      {"dpmpp_sde", "{eta: 0}", 1},
                      {"dpmpp_3m_sde", "{eta: 0}", 1},
                      {"euler_ancestral", "{eta: 0}", 1}};
  Device device(tested_device());
  for (const Objective objective : {Objective::flow, Objective::epsilon, Objective::v_prediction}) {
    std::map<std::string, double> errors;
    for (const Row& row : rows) {
      const Recipe recipe = golden::recipe_of(objective, ScheduleSpec::Spacing::leading);
      SampleConfig config{.sampler = row.sampler};
      config.sampler_params = given_options(row.options);
      const std::string_view id = row.sampler;
      if (id.starts_with("flow_") && objective != Objective::flow) continue;
      if (id == "res_multistep" && objective == Objective::flow) continue;  // compared with ComfyUI alone
      const SamplerChoice choice = choose_sampler(built_plugins(), recipe, config);
      const NormalPictures images(recipe);
      const double coarse = images.error(device, *choice.sampler, 20), fine = images.error(device, *choice.sampler, 40);
      errors[row.sampler] = fine;
      const double order = std::log2(coarse / fine);
      // Half an order is left to what is not yet asymptotic, as much as tells the two apart.
      EXPECT_GT(order, row.order - 0.5) << row.sampler << row.options << " " << objective_name(objective) << ": "
                                        << coarse << ", " << fine;
    }
    EXPECT_LT(errors.at("dpmpp_2m"), errors.at("ddim")) << objective_name(objective);
  }
}

TEST(Samplers, StopBeforeAStep) {
  Device device(tested_device());
  const Recipe recipe = golden::recipe_of(Objective::flow, ScheduleSpec::Spacing::leading);
  const SamplerChoice choice = choose_sampler(built_plugins(), recipe, {.sampler = "euler"});
  const SamplingSchedule schedule = schedule_of(choice, recipe, 5, 1);
  SamplerRun run(device, *choice.sampler, recipe.objective, schedule, {1, 1, 1, 1});
  int calls = 0;
  run.run(floats({1, 1, 1, 1}, {1}), {.model =
                                          [&](const HostTensor& x, const SamplingLevel&, int64_t) {
                                            ++calls;
                                            return x;
                                          },
                                      .noise = {},
                                      .proceed = [](int64_t step, const HostTensor&) { return step < 2; }});
  EXPECT_EQ(calls, 2);
}

HostTensor constant_like(const HostTensor& x, double value) {
  HostTensor out(x.desc);
  for (float& v : out.as<float>()) v = static_cast<float>(value);
  return out;
}

TEST(Samplers, EachStageHasADrawOfItsOwn) {
  Device device(tested_device());
  const Recipe recipe = golden::recipe_of(Objective::epsilon, ScheduleSpec::Spacing::leading);
  const SamplerChoice choice = choose_sampler(built_plugins(), recipe, {.sampler = "dpmpp_sde"});
  const SamplingSchedule schedule = schedule_of(choice, recipe, 3, 1);
  SamplerRun run(device, *choice.sampler, recipe.objective, schedule, {1, 1, 1, 1});
  std::vector<std::pair<int64_t, int64_t>> draws;
  run.run(floats({1, 1, 1, 1}, {1}),
          {.model = [](const HostTensor& x, const SamplingLevel&, int64_t) { return constant_like(x, 0); },
           .noise =
               [&](int64_t step, int64_t draw) {
                 draws.emplace_back(step, draw);
                 return floats({1, 1, 1, 1}, {0});
               },
           .proceed = [](int64_t, const HostTensor&) { return true; }});
  // The last step, to sigma 0, has one stage.
  const std::vector<std::pair<int64_t, int64_t>> expected{{0, 0}, {0, 1}, {1, 0}, {1, 1}, {2, 0}};
  EXPECT_EQ(draws, expected);
}

// CFG++: x' = denoised + sigma' derivative, the second without the prompt.
TEST(Samplers, SeeWhatTheModelSaysWithoutThePrompt) {
  Device device(tested_device());
  const Recipe recipe = golden::recipe_of(Objective::epsilon, ScheduleSpec::Spacing::leading);
  const SamplerChoice choice = choose_sampler(built_plugins(), recipe, {.sampler = "euler_cfg_pp"});
  const SamplingSchedule schedule = schedule_of(choice, recipe, 4, 1);
  SamplerRun run(device, *choice.sampler, recipe.objective, schedule, {1, 1, 1, 1});
  std::vector<double> xs;
  const auto keep = [&](int64_t, const HostTensor& x) {
    xs.push_back(x.as<float>()[0]);
    return true;
  };
  run.run(floats({1, 1, 1, 1}, {1}),
          {.model = [](const HostTensor& x, const SamplingLevel&,
                       int64_t) { return ModelSaid(constant_like(x, 0.5), constant_like(x, 0.25)); },
           .noise = {},
           .proceed = keep});
  ASSERT_EQ(xs.size(), 4u);
  for (size_t i = 0; i + 1 < xs.size(); ++i) {
    const double expected = xs[i] - 0.5 * schedule.level(static_cast<int64_t>(i)).sigma +
                            0.25 * schedule.level(static_cast<int64_t>(i) + 1).sigma;
    EXPECT_NEAR(xs[i + 1], expected, 4 * 0x1p-24 * xs[0]) << i;
  }
}

// Churn: noise takes x up to sigma_hat, where the model then sees it.
TEST(Samplers, ChurnAddsNoiseBeforeTheModelIsAsked) {
  Device device(tested_device());
  const Recipe recipe = golden::recipe_of(Objective::epsilon, ScheduleSpec::Spacing::leading);
  SampleConfig config{.sampler = "euler"};
  config.sampler_params = given_options("{s_churn: 1, s_noise: 0.5, s_tmax: 2}");
  const SamplerChoice choice = choose_sampler(built_plugins(), recipe, config);
  const SamplingSchedule schedule = schedule_of(choice, recipe, 4, 1);
  SamplerRun run(device, *choice.sampler, recipe.objective, schedule, {1, 1, 1, 1});
  std::vector<double> begins, seen, sigmas;
  run.run(floats({1, 1, 1, 1}, {1}), {.model =
                                          [&](const HostTensor& x, const SamplingLevel& at, int64_t) {
                                            sigmas.push_back(at.sigma / at.alpha);
                                            seen.push_back(x.as<float>()[0] / at.alpha);
                                            return constant_like(x, 0);
                                          },
                                      .noise =
                                          [](int64_t, int64_t) {
                                            return floats({1, 1, 1, 1}, {1});
                                          },
                                      .proceed =
                                          [&](int64_t, const HostTensor& x) {
                                            begins.push_back(x.as<float>()[0]);
                                            return true;
                                          }});
  ASSERT_EQ(sigmas.size(), 4u);
  for (size_t i = 0; i < sigmas.size(); ++i) {
    const double sigma = schedule.level(static_cast<int64_t>(i)).sigma, hat = sigma > 2 ? sigma : 1.25 * sigma;
    EXPECT_NEAR(sigmas[i], hat, 1e-12 * hat) << i;
    EXPECT_NEAR(seen[i], begins[i] + 0.5 * std::sqrt(hat * hat - sigma * sigma), 1e-6 * (hat + std::abs(begins[i])))
        << i;
  }
  EXPECT_GT(schedule.level(0).sigma, 2);
  EXPECT_LT(schedule.level(1).sigma, 2);
  const Recipe flow = golden::recipe_of(Objective::flow, ScheduleSpec::Spacing::leading);
  EXPECT_THAT(error_of([&] {
                const SamplingSchedule of_flow = schedule_of(choice, flow, 4, 1);
                SamplerRun(device, *choice.sampler, flow.objective, of_flow, {1, 1, 1, 1});
              }),
              HasSubstr("s_churn is for models of discrete timesteps"));
}

}  // namespace
}  // namespace lh::test::samplers_test
