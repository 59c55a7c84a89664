// Sampler plugins along the schedules of the host: golden trajectories, what every sampler has to do on a model that
// knows the answer, names, and samplers that misbehave.
#include <gmock/gmock.h>

#include <cmath>
#include <set>

#include "diffusion/sampler.h"
#include "support/device.h"
#include "support/golden.h"
#include "support/io_files.h"
#include "support/model_files.h"

namespace lh::test {
namespace {

namespace fs = std::filesystem;
using golden::Case;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::json;

const fs::path data = fs::path(LORA_TEST_DATA) / "golden";

// A case's scheduler in the words of a recipe. Class names and options are those of diffusers.
struct Setting {
  Recipe recipe;
  SampleConfig config;
  int64_t tokens = 1;
};

NoiseScheduleSpec noise_of(const Json& config) {
  return {.kind = config.at("beta_schedule"),
          .beta_start = config.at("beta_start"),
          .beta_end = config.at("beta_end"),
          .steps = config.at("num_train_timesteps"),
          .zero_terminal_snr = config.value("rescale_betas_zero_snr", false)};
}

void set_flow_schedule(const Json& scheduler, Setting& s) {
  const Json &config = scheduler.at("config"), &timesteps = scheduler.at("set_timesteps");
  ScheduleSpec& schedule = s.recipe.sampling.schedule;
  schedule.shift = config.contains("flow_shift") ? config.at("flow_shift") : config.at("shift");
  schedule.dynamic = config.value("use_dynamic_shifting", false);
  schedule.shift_twice = !timesteps.contains("sigmas");  // made by the scheduler itself, between its shifted ends
  if (!schedule.dynamic) return;
  const ResolutionShift law{config.at("base_image_seq_len"), config.at("base_shift"), config.at("max_image_seq_len"),
                            config.at("max_shift")};
  s.recipe.timestep.resolution_shift = law;
  const double mu = timesteps.at("mu");
  s.tokens =
      std::llround(law.base_tokens + (mu - law.base) * (law.max_tokens - law.base_tokens) / (law.max - law.base));
  ASSERT_EQ(law.mu(s.tokens), mu);
}

Setting setting_of(const Case& c) {
  static const std::map<std::string, const char*> samplers{{"EulerDiscreteScheduler", "euler"},
                                                           {"EulerAncestralDiscreteScheduler", "euler_ancestral"},
                                                           {"DDIMScheduler", "ddim"},
                                                           {"DPMSolverMultistepScheduler", "dpmpp_2m"},
                                                           {"FlowMatchEulerDiscreteScheduler", "flow_euler"},
                                                           {"FlowMatchHeunDiscreteScheduler", "flow_heun"}};
  const Json &scheduler = c.json.at("scheduler"), &config = scheduler.at("config");
  Setting s;
  s.config.sampler = samplers.at(scheduler.at("class"));
  if (config.value("use_karras_sigmas", false)) s.config.scheduler = "karras";
  const std::string prediction = c.json.at("prediction");
  if (prediction == "flow") {
    s.recipe.objective = Objective::flow;
    set_flow_schedule(scheduler, s);
    return s;
  }
  s.recipe.objective = prediction == "epsilon" ? Objective::epsilon : Objective::v_prediction;
  s.recipe.noise_schedule = noise_of(config);
  ScheduleSpec& schedule = s.recipe.sampling.schedule;
  schedule.spacing =
      config.at("timestep_spacing") == "leading" ? ScheduleSpec::Spacing::leading : ScheduleSpec::Spacing::trailing;
  schedule.offset = config.value("steps_offset", 0);
  schedule.set_alpha_to_one = config.value("set_alpha_to_one", false);
  return s;
}

// The model of the cases, as their "about" has it.
HostTensor model_of(const Case& c, const HostTensor& x, double time) {
  const bool flow = c.json.at("prediction") == "flow";
  const double frequency = flow ? 2 : 3,
               rest = flow ? 0.2 * time : c.json.at("time_weight").get<double>() * time / 1000;
  HostTensor out(x.desc);
  for (size_t i = 0; i < out.as<float>().size(); ++i) {
    const double value = x.as<float>()[i];
    out.as<float>()[i] = static_cast<float>(0.3 * value + 0.1 * std::sin(frequency * value) + rest);
  }
  return out;
}

using Floats = std::map<std::string, std::vector<float>>;

// Everything that a case may expect, by the name it expects it under.
Floats trajectory(const Case& c) {
  const Setting s = setting_of(c);
  const SamplerChoice choice = choose_sampler(built_plugins(), s.recipe, s.config);
  const SamplingSchedule schedule(s.recipe, choice.sampler.descriptor->space, c.json.at("steps"), s.tokens,
                                  choice.karras);
  const HostTensor start = c.input("latents");
  Device device(tested_device());
  Floats found;
  const auto keep = [&](const std::string& name, const HostTensor& nhwc) {
    const HostTensor nchw = golden::nhwc_to_nchw(nhwc);
    found[name].assign(nchw.as<float>().begin(), nchw.as<float>().end());
  };
  int64_t step_before = -1;
  SamplerRun run(device, choice.sampler, s.recipe.objective, schedule, start.desc.shape);
  const HostTensor end = run.run(start, {.model =
                                             [&](const HostTensor& x, const SamplingLevel& at, int64_t step) {
                                               if (step == step_before) keep(fmt::format("predictor.{}", step), x);
                                               step_before = step;
                                               found["times"].push_back(static_cast<float>(at.time));
                                               return model_of(c, x, at.time);
                                             },
                                         .noise = [&](int64_t step) { return c.input(fmt::format("noise.{}", step)); },
                                         .proceed =
                                             [&](int64_t step, const HostTensor& x) {
                                               keep(fmt::format("latents.{}", step), x);
                                               return true;
                                             }});
  keep(fmt::format("latents.{}", schedule.steps()), end);
  const bool flow = s.recipe.objective == Objective::flow;
  for (int64_t i = 0; i <= schedule.steps(); ++i) {
    const SamplingLevel& level = schedule.level(i);
    found["sigmas"].push_back(static_cast<float>(flow ? level.sigma : level.sigma / level.alpha));
  }
  return found;
}

std::vector<fs::path> golden_samplers() {
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(data / "samplers")) folders.push_back(entry.path());
  if (const char* more = std::getenv("LORA_GOLDEN"); more != nullptr && fs::exists(fs::path(more) / "samplers"))
    for (const auto& entry : fs::directory_iterator(fs::path(more) / "samplers")) folders.push_back(entry.path());
  std::ranges::sort(folders);
  return folders;
}

TEST(Samplers, FollowTheGoldenTrajectories) {
  std::set<std::string> classes;
  for (const fs::path& folder : golden_samplers()) {
    SCOPED_TRACE(folder.string());
    const Case c(folder);
    classes.insert(c.json.at("scheduler").at("class"));
    const Floats found = trajectory(c);
    for (const std::string& name : c.expected_names()) {
      ASSERT_TRUE(found.contains(name)) << name;
      const double limit = std::max(4 * c.json.at("fp32_error").at(name).get<double>(), 2e-6);
      const HostTensor expected = c.expected(name);
      EXPECT_LE(golden::relative_error(found.at(name), expected.as<float>()), limit) << name;
    }
  }
  EXPECT_EQ(classes.size(), 6u);
}

// alpha and sigma of the model's own scale at a time it is given.
std::pair<double, double> level_of(const Recipe& recipe, double time) {
  if (recipe.objective == Objective::flow) return {1 - time, time};
  const NoiseSchedule noise = NoiseSchedule(recipe.noise_schedule).with_signal();
  const auto t = std::llround(time);
  EXPECT_EQ(static_cast<double>(t), time);
  return {noise.alpha(t), noise.sigma(t)};
}

Recipe recipe_of(Objective objective, ScheduleSpec::Spacing spacing) {
  Recipe recipe;
  recipe.objective = objective;
  recipe.noise_schedule.zero_terminal_snr =
      objective == Objective::v_prediction && spacing == ScheduleSpec::Spacing::trailing;
  recipe.sampling.schedule = {.shift = 3, .spacing = spacing, .set_alpha_to_one = true};
  recipe.sampling.schedule.offset = spacing == ScheduleSpec::Spacing::leading ? 1 : 0;
  return recipe;
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
        const Recipe recipe = recipe_of(objective, spacing);
        SampleConfig config;
        config.sampler = offered.descriptor->id;
        if (!error_of([&] { choose_sampler(built_plugins(), recipe, config); }).empty()) continue;
        SCOPED_TRACE(
            fmt::format("{} {} {}", offered.descriptor->id, objective_name(objective), static_cast<int>(spacing)));
        const SamplingSchedule schedule(recipe, offered.descriptor->space, 7, 1, false);
        SamplerRun run(device, offered, objective, schedule, x0.desc.shape);
        const HostTensor end = run.run(
            start, {.model =
                        [&](const HostTensor& x, const SamplingLevel& at, int64_t) {
                          const auto [alpha, sigma] = level_of(recipe, at.time);
                          HostTensor out(x.desc);
                          for (size_t i = 0; i < out.as<float>().size(); ++i) {
                            const double picture = x0.as<float>()[i],
                                         noise = (x.as<float>()[i] - alpha * picture) / sigma;
                            out.as<float>()[i] =
                                static_cast<float>(objective == Objective::flow      ? noise - picture
                                                   : objective == Objective::epsilon ? noise
                                                                                     : alpha * noise - sigma * picture);
                          }
                          return out;
                        },
                    .noise = [&](int64_t) { return start; },
                    .proceed = [](int64_t, const HostTensor&) { return true; }});
        // x0 of epsilon is x / alpha, with the rounding of x and of the model's output: 2^-24 / alpha of x at the last
        // level, which is at least 0.9 here, after as many additions as a step has.
        EXPECT_LE(golden::relative_error(end.as<float>(), x0.as<float>()), 16 * 0x1p-24);
        ++runs;
      }
  EXPECT_EQ(runs, 2 * (6 + 5 + 5));
}

// Of pictures whose values are normal with mean m and variance v, the best model and its trajectories are known:
//   x0 = m + alpha v / (alpha^2 v + sigma^2) (x - alpha m),   (x - alpha m) / sqrt(alpha^2 v + sigma^2) stays the same
// so the error of a sampler can be seen to fall with its order.
class NormalPictures {
 public:
  explicit NormalPictures(const Recipe& recipe) : recipe_(recipe) {}

  double error(Device& device, const Offered<lh_sampler>& sampler, int64_t steps) const {
    const SamplingSchedule schedule(recipe_, sampler.descriptor->space, steps, 1, false);
    const HostTensor start = floats({1, 1, 1, 4}, {1, -0.5f, 0.75f, -1.25f});
    HostTensor first;
    SamplerRun run(device, sampler, recipe_.objective, schedule, start.desc.shape);
    const HostTensor end =
        run.run(start, {.model = [&](const HostTensor& x, const SamplingLevel& at, int64_t) { return say(x, at.time); },
                        .noise = {},
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
  HostTensor say(const HostTensor& in, double time) const {
    const auto [alpha, sigma] = level_of(recipe_, time);
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
  Device device(tested_device());
  // In log SNR the last steps stay long however many there are, so dpmpp_2m is of second order only before them.
  const std::map<std::string, int> orders{{"euler", 1}, {"flow_euler", 1}, {"ddim", 1},
                                          {"heun", 2},  {"flow_heun", 2},  {"dpmpp_2m", 1}};
  for (const Objective objective : {Objective::flow, Objective::epsilon, Objective::v_prediction}) {
    std::map<std::string, double> errors;
    for (const Offered<lh_sampler>& offered : built_plugins().samplers()) {
      const Recipe recipe = recipe_of(objective, ScheduleSpec::Spacing::leading);
      const std::string id = offered.descriptor->id;
      SampleConfig config;
      config.sampler = id;
      if (id == "euler_ancestral" || !error_of([&] { choose_sampler(built_plugins(), recipe, config); }).empty())
        continue;
      const NormalPictures pictures(recipe);
      const double coarse = pictures.error(device, offered, 20), fine = pictures.error(device, offered, 40);
      errors[id] = fine;
      const double order = std::log2(coarse / fine);
      // Half an order is left to what is not yet asymptotic, as much as tells the two apart.
      EXPECT_GT(order, orders.at(id) - 0.5) << id << " " << objective_name(objective) << ": " << coarse << ", " << fine;
    }
    EXPECT_LT(errors.at("dpmpp_2m"), errors.at("ddim")) << objective_name(objective);
  }
}

TEST(Samplers, StopBeforeAStep) {
  Device device(tested_device());
  const Recipe recipe = recipe_of(Objective::flow, ScheduleSpec::Spacing::leading);
  const SamplerChoice choice = choose_sampler(built_plugins(), recipe, {.sampler = "euler"});
  const SamplingSchedule schedule(recipe, choice.sampler.descriptor->space, 5, 1, false);
  SamplerRun run(device, choice.sampler, recipe.objective, schedule, {1, 1, 1, 1});
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

TEST(Samplers, AreKnownByTheNamesOfOtherPrograms) {
  struct Row {
    const char *sampler, *scheduler, *id;
    bool karras;
  };
  const Row rows[] = {{"", "", "ddim", false},
                      {"", "karras", "ddim", true},
                      {"euler_a", "", "euler_ancestral", false},
                      {"Euler a", "", "euler_ancestral", false},
                      {"DPM++ 2M", "", "dpmpp_2m", false},
                      {"DPM++ 2M Karras", "", "dpmpp_2m", true},
                      {"dpm++_2m_karras", "normal", "dpmpp_2m", false},
                      {"dpmsolver++", "karras", "dpmpp_2m", true},
                      {"heun", "normal", "heun", false}};
  Recipe recipe = recipe_of(Objective::epsilon, ScheduleSpec::Spacing::leading);
  recipe.sampling.sampler = "ddim";
  for (const Row& row : rows) {
    SampleConfig config;
    config.sampler = row.sampler;
    config.scheduler = row.scheduler;
    const SamplerChoice choice = choose_sampler(built_plugins(), recipe, config);
    EXPECT_STREQ(choice.sampler.descriptor->id, row.id) << row.sampler;
    EXPECT_EQ(choice.karras, row.karras) << row.sampler;
  }
}

TEST(Samplers, ThatDoNotFitTheModelAreRefusedWithThoseThatDo) {
  const Recipe flow = recipe_of(Objective::flow, ScheduleSpec::Spacing::leading);
  const std::string text = error_of([&] { choose_sampler(built_plugins(), flow, {.sampler = "euler_a"}); });
  EXPECT_THAT(text, AllOf(HasSubstr("sampler 'euler_ancestral' is for models of objective epsilon, v_prediction, this "
                                    "one is of objective flow; use one of:"),
                          HasSubstr("flow_euler"), HasSubstr("dpmpp_2m")));
  EXPECT_THAT(text.substr(text.find("use one of")), testing::Not(HasSubstr("ancestral")));
  EXPECT_THAT(error_of([&] { SamplingSchedule(flow, LH_SPACE_SIGMA, 10, 1, true); }),
              HasSubstr("sample.scheduler: karras"));
  const Recipe epsilon = recipe_of(Objective::epsilon, ScheduleSpec::Spacing::leading);
  for (const int32_t space : {LH_SPACE_SIGMA, LH_SPACE_ALPHA, LH_SPACE_LOG_SNR}) {
    EXPECT_EQ(error_of([&] { SamplingSchedule(epsilon, space, 998, 1, false); }), "");
    EXPECT_EQ(error_of([&] { SamplingSchedule(epsilon, space, 1000, 1, false); }),
              "sample.sample_steps: 1000 is too many for a model of 1000 timesteps");
  }
}

// Plugins that break the contract of sampler.h are named with what they asked for.
TEST(Samplers, ThatMisbehaveAreNamed) {
  static constexpr const char* objectives[] = {"flow", nullptr};
  struct Row {
    int32_t space;
    lh_status (*build)(lh_graph*, uint32_t, const lh_desc*);
    const char* text;
  };
  const Row rows[] = {
      {LH_SPACE_ALPHA,
       [](lh_graph* g, uint32_t, const lh_desc* latents) {
         host_api().output(g, "x", host_api().input(g, "derivative", latents));
         return lh_status{LH_OK};
       },
       "plugin 'test', sampler 'bad', build of stage 0: asks for the input 'derivative'; known: x, model_out, "
       "denoised, epsilon, noise"},
      {LH_SPACE_SIGMA,
       [](lh_graph* g, uint32_t, const lh_desc*) {
         const lh_desc one{LH_F32, 1, {1}};
         host_api().output(g, "x", host_api().input(g, "x", &one));
         return lh_status{LH_OK};
       },
       "plugin 'test', sampler 'bad', build of stage 0: input 'x' is"},
      {LH_SPACE_SIGMA,
       [](lh_graph* g, uint32_t, const lh_desc* latents) {
         host_api().output(g, "y", host_api().input(g, "x", latents));
         return lh_status{LH_OK};
       },
       "plugin 'test', sampler 'bad', build of stage 0: needs an output 'x' like the latents"},
      {LH_SPACE_SIGMA,
       [](lh_graph* g, uint32_t, const lh_desc* latents) {
         host_api().input(g, "x", latents);
         host_api().input(g, "x", latents);
         return lh_status{LH_OK};
       },
       "plugin 'test', sampler 'bad', build of stage 0: graph input 'x' is declared twice"},
  };
  Device device(tested_device());
  const Recipe recipe = recipe_of(Objective::flow, ScheduleSpec::Spacing::leading);
  const PluginHost host{{&host_api()}, "test", {}};
  for (const Row& row : rows) {
    lh_sampler bad{};
    bad.struct_size = sizeof bad;
    bad.id = "bad";
    bad.objectives = objectives;
    bad.space = row.space;
    bad.stages = 1;
    bad.build_stage = row.build;
    const SamplingSchedule schedule(recipe, row.space, 2, 1, false);
    const Offered<lh_sampler> offered{&bad, &host};
    EXPECT_THAT(error_of([&] {
                  SamplerRun(device, offered, recipe.objective, schedule, {1, 2, 2, 4});
                }),
                HasSubstr(row.text));
  }
}

TEST(Schedules, FlowSigmas) {
  const auto json = Json::parse(get(data / "schedules" / "flow_shift.json"));
  std::set<std::string> models;
  for (const auto& row : json.at("schedules")) {
    models.insert(row.at("model").get<std::string>());
    Recipe recipe;
    recipe.timestep.resolution_shift.emplace();
    ScheduleSpec& spec = recipe.sampling.schedule;
    spec.dynamic = row.contains("mu");
    spec.shift = row.value("shift", 1.0);
    spec.shift_twice = spec.shift != 1;
    const int64_t tokens = row.value("tokens", 1);
    if (spec.dynamic) {
      EXPECT_NEAR(recipe.timestep.resolution_shift->mu(tokens), row.at("mu").get<double>(), 1e-14);
    }
    const auto want = row.at("sigmas").get<std::vector<double>>();
    const SamplingSchedule schedule(recipe, LH_SPACE_SIGMA, row.at("steps"), tokens, false);
    ASSERT_EQ(schedule.steps() + 1, static_cast<int64_t>(want.size()));
    for (size_t i = 0; i < want.size(); ++i) {
      const SamplingLevel& level = schedule.level(static_cast<int64_t>(i));
      EXPECT_NEAR(level.sigma, want[i], 1e-14) << row.at("model") << " " << i;
      EXPECT_EQ(level.time, level.sigma);
    }
  }
  EXPECT_EQ(models.size(), 3u);
}

}  // namespace
}  // namespace lh::test
