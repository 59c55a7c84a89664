// Schedule plugins: the tables of other programs, what every schedule has to do, names and options, and plugins that
// misbehave.
#include <gmock/gmock.h>

#include <cmath>
#include <set>

#include "plugin/services.h"
#include "support/given_options.h"
#include "support/io_files.h"
#include "support/model_files.h"
#include "support/paths.h"
#include "support/sampler_case.h"

namespace lh::test::schedules_test {
namespace {

namespace fs = std::filesystem;
using golden::levels_of;
using golden::Spacing;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::json;

Json table(const std::string& name) { return Json::parse(get(fs::path(test_data()) / "golden" / "schedules" / name)); }

// Formulas against the original code agreed below 1e-9 when the tables were made.
void expect_sigmas(const Json& row, const LevelList& list, double limit = 1e-9) {
  SCOPED_TRACE(row.dump().substr(0, 200));
  const auto want = row.at("sigmas").get<std::vector<double>>();
  ASSERT_EQ(list.sigma.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(list.sigma[i], want[i], limit * std::max(1.0, want[i])) << i;
}

Recipe discrete_recipe(ScheduleSpec::Spacing spacing = ScheduleSpec::Spacing::leading) {
  Recipe recipe;
  recipe.objective = Objective::epsilon;
  recipe.sampling.schedule = {.spacing = spacing, .offset = spacing == ScheduleSpec::Spacing::leading ? 1 : 0};
  return recipe;
}

Recipe flow_recipe(double shift) {
  Recipe recipe;
  recipe.sampling.schedule.shift = shift;
  return recipe;
}

Recipe dynamic_recipe(const ResolutionShift& law) {
  Recipe recipe;
  recipe.timestep.resolution_shift = law;
  recipe.sampling.schedule.dynamic = true;
  return recipe;
}

TEST(Schedules, AreThoseOfComfyUi) {
  std::set<std::string> seen;
  const Json tables = table("comfy_schedules.json");
  for (const Json& row : tables.at("rows")) {
    const std::string model = row.at("model"), name = row.at("schedule");
    seen.insert(model + " " + name);
    Recipe recipe = model == "sdxl" ? discrete_recipe() : model == "sd3" ? flow_recipe(3) : dynamic_recipe({});
    if (model == "flux") recipe.sampling.schedule.timesteps = 10000;
    Spacing spacing{.id = name, .steps = row.at("steps"), .tokens = 4096};
    if (name == "normal") spacing.id = "linspace", spacing.options["interpolation"] = "log";
    for (const char* option : {"rho", "alpha", "beta"})
      if (row.contains(option)) spacing.options[option] = row.at(option);
    expect_sigmas(row, levels_of(recipe, spacing));
  }
  EXPECT_EQ(seen.size(), 3 * 10u);
}

// A row of EulerDiscreteScheduler for SDXL.
void check_discrete_row(const Json& row) {
  const std::string use = row.value("use", "");
  Spacing spacing{.id = use.empty() ? row.at("spacing").get<std::string>() : use, .steps = row.at("steps")};
  if (use == "beta") spacing.options["of"] = "sigmas";
  const LevelList list = levels_of(discrete_recipe(), spacing);
  expect_sigmas(row, list);
  if (row.contains("init_noise_sigma")) {
    EXPECT_NEAR(list.start, row.at("init_noise_sigma").get<double>(), 1e-9 * list.start);
  }
  if (!row.contains("timesteps")) return;
  const auto times = row.at("timesteps").get<std::vector<double>>();
  for (size_t i = 0; i < times.size(); ++i) EXPECT_NEAR(list.time[i], times[i], 1e-9) << row.dump();
}

TEST(Schedules, AreThoseOfDiffusers) {
  std::set<std::string> seen;
  const Json tables = table("diffusers_schedules.json");
  for (const Json& row : tables.at("rows")) {
    const std::string model = row.value("model", "");
    seen.insert(model + " " + row.value("use", row.value("spacing", row.value("time_shift_type", ""))));
    const int64_t steps = row.at("steps"), tokens = row.value("tokens", 1);
    if (model == "sdxl") {
      check_discrete_row(row);
    } else if (model == "qwen-image") {
      expect_sigmas(
          row, levels_of(dynamic_recipe({256, 0.5, 8192, 0.9}),
                         {.id = "shift_terminal", .options = {{"terminal", 0.02}}, .steps = steps, .tokens = tokens}));
    } else if (model == "flux.2") {
      expect_sigmas(row, levels_of(Recipe(), {.id = "mu_by_steps", .steps = steps, .tokens = tokens}));
    } else if (model == "sd3") {
      Spacing spacing{.id = row.at("use"), .options = {{"sigma_min", row.at("sigma_min")}}, .steps = steps};
      if (spacing.id == "beta") spacing.options["of"] = "sigmas";
      expect_sigmas(row, levels_of(flow_recipe(3), spacing));
    } else {
      ASSERT_EQ(row.at("time_shift_type"), "linear");  // mu itself is the shift
      expect_sigmas(row, levels_of(flow_recipe(row.at("mu")), {.id = "normal", .steps = steps}));
    }
  }
  EXPECT_EQ(seen.size(), 6 + 1 + 1 + 3 + 1u);
}

TEST(Schedules, OfPipelines) {
  std::set<std::string> models;
  for (const char* file : {"flow_shift.json", "flow_shift2.json"}) {
    const Json tables = table(file);
    for (const Json& row : tables.at("schedules")) {
      const std::string model = row.at("model");
      models.insert(model);
      const bool shifts_with_size = row.contains("mu");
      Spacing spacing{.id = "normal", .steps = row.at("steps"), .tokens = row.value("tokens", 1)};
      Recipe recipe = flow_recipe(row.value("shift", 1.0));
      recipe.sampling.schedule.shift_twice = model == "sd35";
      if (model == "flux2") spacing.id = "mu_by_steps";
      if (model == "qwen_image") spacing.id = "shift_terminal", recipe = dynamic_recipe({256, 0.5, 8192, 0.9});
      if (model == "flux-dev") recipe = dynamic_recipe({});
      if (shifts_with_size && model != "flux2") {
        EXPECT_NEAR(recipe.timestep.resolution_shift->mu(spacing.tokens), row.at("mu").get<double>(), 1e-14);
      }
      expect_sigmas(row, levels_of(recipe, spacing), 1e-14);
    }
  }
  EXPECT_EQ(models.size(), 6u);
}

// Tables that are not in this repository: LORA_GOLDEN.
TEST(Schedules, TablesAreInterpolated) {
  const LevelList list =
      levels_of(discrete_recipe(), {.id = "table", .options = {{"sigmas", {8.0, 2.0, 0.5}}}, .steps = 4});
  EXPECT_THAT(list.sigma, testing::Pointwise(testing::DoubleNear(1e-14), {8.0, 4.0, 2.0, 1.0, 0.0}));
  for (const fs::path& file : golden::entries_of("schedules")) {
    if (file.filename() != "align_your_steps.json") continue;
    const Json json = Json::parse(get(file));
    for (const Json& row : json.at("rows")) {
      const Json options = {{"sigmas", json.at("tables").at(row.at("model").get<std::string>())}};
      expect_sigmas(row, levels_of(discrete_recipe(), {.id = "table", .options = options, .steps = row.at("steps")}));
    }
  }
}

// Quantiles of a normal number by Python's statistics.NormalDist, with mu log(2) and 0.
TEST(Schedules, QuantilesOfALogitNormal) {
  const Recipe recipe = dynamic_recipe({1024, 0, 4096, std::log(2)});
  const LevelList plain =
      levels_of(recipe, {.id = "logit_normal", .options = {{"std", 1.75}}, .steps = 4, .tokens = 4096});
  EXPECT_THAT(plain.sigma, testing::Pointwise(testing::DoubleNear(1e-12),
                                              {1.0, 0.8668632271877241, 0.6666666666666666, 0.38055106799839133, 0.0}));
  const LevelList moved = levels_of(recipe, {.id = "logit_normal",
                                             .options = {{"std", 1.5}, {"mean", 0.5}, {"sigma_max", 0.9995}},
                                             .steps = 5,
                                             .tokens = 1024});
  EXPECT_THAT(moved.sigma,
              testing::Pointwise(testing::DoubleNear(1e-12), {0.9995, 0.8535139707389626, 0.7068265012373525,
                                                              0.5299589066301726, 0.3181185181876874, 0.0}));
  // Shifted by sqrt(1.5).
  const LevelList between = levels_of(dynamic_recipe({1024, 0, 4096, std::log(2), true}),
                                      {.id = "logit_normal", .options = {{"std", 1.5}}, .steps = 5, .tokens = 1536});
  EXPECT_THAT(between.sigma,
              testing::Pointwise(testing::DoubleNear(1e-12), {1.0, 0.8123212864403977, 0.6417006732805167,
                                                              0.45579370183414697, 0.2573669237575947, 0.0}));
  // What would begin below the second level.
  EXPECT_THAT(
      error_of([&] {
        levels_of(recipe,
                  {.id = "logit_normal", .options = {{"mean", 3.0}, {"sigma_max", 0.95}}, .steps = 20, .tokens = 1024});
      }),
      AllOf(HasSubstr("not below the one before, 0.95"), HasSubstr("a larger sigma_max")));
}

// Whatever the model, the sampler's space and the number of steps: levels fall from the first to 0.
TEST(Schedules, FallInEverySpace) {
  std::set<std::string> seen;
  Recipe zero_snr = discrete_recipe(ScheduleSpec::Spacing::trailing);
  zero_snr.objective = Objective::v_prediction;
  zero_snr.noise_schedule.zero_terminal_snr = true;
  for (const Recipe& recipe : {flow_recipe(3), dynamic_recipe({}), discrete_recipe(), zero_snr})
    for (const Offered<lh_schedule>& offered : built_plugins().schedules())
      for (const int32_t space : {LH_SPACE_SIGMA, LH_SPACE_ALPHA, LH_SPACE_LOG_SNR})
        for (const int64_t steps : {1, 2, 7, 50}) {
          const lh_schedule& schedule = *offered.descriptor;
          const auto named = [&](const char* const* list) {
            for (; *list != nullptr; ++list)
              if (objective_name(recipe.objective) == *list) return true;
            return false;
          };
          if (!named(schedule.objectives)) continue;
          SCOPED_TRACE(fmt::format("{} {} {} {}", schedule.id, objective_name(recipe.objective), space, steps));
          seen.insert(schedule.id);
          Spacing spacing{.id = schedule.id, .space = space, .steps = steps, .tokens = 1024};
          if (spacing.id == "table") spacing.options["sigmas"] = {0.9, 0.1};
          const LevelList list = levels_of(recipe, spacing);
          const ScheduleFacts facts(recipe, space, steps, spacing.tokens);
          const SamplingSchedule run(recipe, facts, list);
          EXPECT_EQ(list.sigma.back(), 0);
          for (int64_t i = 0; i <= run.steps(); ++i) {
            const SamplingLevel& level = run.level(i);
            EXPECT_TRUE(std::isfinite(level.alpha) && std::isfinite(level.sigma) && std::isfinite(level.time));
            EXPECT_TRUE(space != LH_SPACE_LOG_SNR || level.alpha > 0);
            EXPECT_TRUE(i == 0 || i == run.steps() || level.sigma < run.level(i - 1).sigma) << i;
          }
        }
  EXPECT_EQ(seen.size(), built_plugins().schedules().size());
}

struct Mistake {
  const char *schedule, *options, *text;
};

TEST(Schedules, MistakesAreNamedWithTheirPlace) {
  const Mistake rows[] = {
      {"karras", "{rho: 0}", "c.yaml:1:"},
      {"karras", "{rho: 0}", "sample.scheduler_params.rho: must be 0.1 to 100, found"},
      {"karras", "{roh: 7}", "schedule 'karras' has no such option. Did you mean rho?"},
      {"karras", "{rho: .nan}", "sample.scheduler_params.rho:"},
      {"karras", "{round_times: 2}", "expected true or false"},
      {"beta", "{of: sigma}", "Did you mean sigmas?"},
      {"simple", "{rho: 7}", "schedule 'simple' takes no options"},
      {"table", "{}", "needs the option sigmas"},
      {"table", "{sigmas: [1, 2]}", "each smaller than the one before"},
      {"exponential", "{sigma_min: 2, sigma_max: 1}", "sigma_min is not below sigma_max"},
  };
  const Recipe recipe = discrete_recipe();
  for (const Mistake& row : rows) {
    const std::string text = error_of([&] {
      SampleConfig config{.sampler = "euler", .scheduler = row.schedule};
      config.scheduler_params = given_options(row.options);
      choose_sampler(built_plugins(), recipe, config);
    });
    EXPECT_THAT(text, HasSubstr(row.text));
  }
}

TEST(Schedules, ThatDoNotFitAreRefused) {
  const auto chosen = [](const Recipe& recipe, const char* scheduler) {
    return error_of([&] { choose_sampler(built_plugins(), recipe, {.sampler = "euler", .scheduler = scheduler}); });
  };
  EXPECT_THAT(chosen(discrete_recipe(), "karas"),
              AllOf(HasSubstr("sample.scheduler: schedule 'karas' is in no plugin. Did you mean karras?"),
                    HasSubstr("exponential")));
  EXPECT_THAT(chosen(discrete_recipe(), "shift_terminal"),
              HasSubstr("is for models of objective flow, this one is of objective epsilon; use one of: normal"));
  for (const int32_t space : {LH_SPACE_SIGMA, LH_SPACE_ALPHA, LH_SPACE_LOG_SNR}) {
    EXPECT_EQ(error_of([&] { levels_of(discrete_recipe(), {.id = "normal", .space = space, .steps = 998}); }), "");
    EXPECT_EQ(error_of([&] { levels_of(discrete_recipe(), {.id = "normal", .space = space, .steps = 1000}); }),
              "sample.scheduler: schedule 'normal': 1000 steps are too many for a model of 1000 timesteps; lower "
              "sample.sample_steps");
  }
}

// Plugins that break the contract of schedule.h.
struct Breach {
  lh_status (*levels)(void*, const lh_schedule_facts*, lh_schedule_levels*);
  const char* text;
};

lh_status give(lh_schedule_levels* out, std::initializer_list<double> sigmas, double time) {
  out->count = 0;
  for (const double sigma : sigmas) {
    out->time[out->count] = time;
    out->sigma[out->count++] = sigma;
  }
  return LH_OK;
}

TEST(Schedules, ThatMisbehaveAreNamed) {
  const Breach rows[] = {
      {[](void*, const lh_schedule_facts*, lh_schedule_levels*) { return lh_status{LH_OK}; },
       "gave 0 levels, expected 2"},
      {[](void*, const lh_schedule_facts*, lh_schedule_levels* out) {
         out->count = out->room + 1;
         return lh_status{LH_OK};
       },
       "levels, expected 2 to"},
      {[](void*, const lh_schedule_facts*, lh_schedule_levels* out) {
         return give(out, {3, 4, 0}, 0);
       },
       "gave sigma 4 at level 1 after 3; levels must fall"},
      {[](void*, const lh_schedule_facts*, lh_schedule_levels* out) {
         return give(out, {3, -1}, 0);
       },
       "gave sigma -1 at level 1"},
      {[](void*, const lh_schedule_facts*, lh_schedule_levels* out) {
         return give(out, {INFINITY, 0}, 0);
       },
       "gave sigma inf at level 0"},
      {[](void*, const lh_schedule_facts*, lh_schedule_levels* out) {
         return give(out, {NAN, 0}, 0);
       },
       "gave sigma nan at level 0"},
      {[](void*, const lh_schedule_facts*, lh_schedule_levels* out) {
         return give(out, {3, 0}, 1000);
       },
       "gave time 1000 at level 0, expected 0 to 999"},
      {[](void*, const lh_schedule_facts*, lh_schedule_levels*) { return lh_status{LH_E_INTERNAL}; },
       "failed with status -5"},
  };
  static constexpr const char* objectives[] = {"epsilon", nullptr};
  const PluginHost host{{&host_api()}, "test", {}};
  const Recipe recipe = discrete_recipe();
  const ScheduleFacts facts(recipe, LH_SPACE_SIGMA, 2, 1);
  for (const Breach& row : rows) {
    lh_schedule bad{};
    bad.struct_size = sizeof bad;
    bad.id = "bad";
    bad.objectives = objectives;
    bad.create = [](const lh_host*, const lh_attr*, uint32_t, void**) { return lh_status{LH_OK}; };
    bad.destroy = [](void*) {};
    bad.levels = row.levels;
    const Schedule schedule({&bad, &host}, {});
    EXPECT_THAT(error_of([&] { schedule.levels(facts.get()); }),
                AllOf(HasSubstr("plugin 'test', schedule 'bad', levels: "), HasSubstr(row.text)));
  }
}

}  // namespace
}  // namespace lh::test::schedules_test
