// Which sampler and schedule a run has: names of other programs, options and mistakes in them, the reference page, and
// sampler plugins that misbehave.
#include <gmock/gmock.h>

#include <cmath>

#include "plugin/services.h"
#include "support/device.h"
#include "support/given_options.h"
#include "support/io_files.h"
#include "support/model_files.h"
#include "support/paths.h"
#include "support/sampler_case.h"

namespace lh::test::sampler_choice_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(SamplerChoice, AreKnownByTheNamesOfOtherPrograms) {
  struct Row {
    const char *sampler, *scheduler, *id, *schedule;
  };
  const Row rows[] = {{"", "", "ddim", "normal"},
                      {"", "karras", "ddim", "karras"},
                      {"euler_a", "", "euler_ancestral", "normal"},
                      {"Euler a", "SGM Uniform", "euler_ancestral", "sgm_uniform"},
                      {"DPM++ 2M", "", "dpmpp_2m", "normal"},
                      {"DPM++ 2M Karras", "", "dpmpp_2m", "karras"},
                      {"DPM++ 2M SDE Karras", "", "dpmpp_2m_sde", "karras"},
                      {"DPM++ 3M SDE Exponential", "", "dpmpp_3m_sde", "exponential"},
                      {"DPM++ SDE", "beta", "dpmpp_sde", "beta"},
                      {"DPM++ 2S a", "", "dpmpp_2s_ancestral", "normal"},
                      {"dpm++_2m_karras", "normal", "dpmpp_2m", "normal"},
                      {"dpmsolver++", "karras", "dpmpp_2m", "karras"},
                      {"uni_pc_bh2", "simple", "uni_pc", "simple"},
                      {"UniPCMultistepScheduler", "", "uni_pc", "normal"},
                      {"LCMScheduler", "lcm", "lcm_boundary", "lcm"},
                      {"heun", "normal", "heun", "normal"}};
  Recipe recipe = golden::recipe_of(Objective::epsilon, ScheduleSpec::Spacing::leading);
  recipe.sampling.sampler = "ddim";
  for (const Row& row : rows) {
    SampleConfig config;
    config.sampler = row.sampler;
    config.scheduler = row.scheduler;
    const SamplerChoice choice = choose_sampler(built_plugins(), recipe, config);
    EXPECT_STREQ(choice.sampler->id(), row.id) << row.sampler;
    EXPECT_STREQ(choice.schedule->id(), row.schedule) << row.sampler;
  }
}

// The recipe's options hold for the recipe's choice, and the user's over them.
TEST(SamplerChoice, OptionsOfARecipeAreThoseOfItsChoice) {
  Recipe recipe = golden::recipe_of(Objective::epsilon, ScheduleSpec::Spacing::leading);
  recipe.sampling.sampler = "lms";
  recipe.sampling.sampler_params = given_options("{order: 2}");
  recipe.sampling.scheduler = "karras";
  recipe.sampling.scheduler_params = given_options("{rho: 3, sigma_min: 0.5}");
  const auto last_sigma = [&](const SampleConfig& config) {
    const SamplerChoice choice = choose_sampler(built_plugins(), recipe, config);
    return schedule_of(choice, recipe, 3, 1).level(2).sigma;
  };
  const auto histories = [&](const SampleConfig& config) {
    return choose_sampler(built_plugins(), recipe, config).sampler->carried().size();
  };
  EXPECT_NEAR(last_sigma({}), 0.5, 1e-12);
  EXPECT_EQ(histories({}), 1u);
  SampleConfig own;
  own.scheduler_params = given_options("{sigma_min: 0.25}");
  own.sampler_params = given_options("{order: 4}");
  EXPECT_NEAR(last_sigma(own), 0.25, 1e-12);
  EXPECT_EQ(histories(own), 3u);
  EXPECT_NEAR(last_sigma({.scheduler = "exponential"}), 0.0291671582, 1e-9);
  EXPECT_EQ(error_of([&] { last_sigma({.sampler = "euler"}); }), "");
}

TEST(SamplerChoice, MistakesInOptionsAreNamedWithTheirPlace) {
  struct Row {
    const char *sampler, *options, *text;
  };
  const Row rows[] = {
      {"euler_ancestral", "{eta: -1}", "sample.sampler_params.eta: must be 0 to 100, found"},
      {"euler_ancestral", "{eta: -1}", "c.yaml:1:"},
      {"euler_ancestral", "{etha: 1}", "sampler 'euler_ancestral' has no such option. Did you mean eta?"},
      {"euler_ancestral", "{eta: .nan}", "sample.sampler_params.eta:"},
      {"dpmpp_2m_sde", "{solver_type: huen}", "Did you mean heun?"},
      {"uni_pc", "{order: 4}", "sample.sampler_params.order: must be 1 to 3, found"},
      {"uni_pc", "{order: 2.5}", "expected an integer"},
      {"dpmpp_2m", "{eta: 1}", "sampler 'dpmpp_2m' takes no options"},
  };
  const Recipe recipe = golden::recipe_of(Objective::epsilon, ScheduleSpec::Spacing::leading);
  for (const Row& row : rows) {
    SampleConfig config{.sampler = row.sampler};
    config.sampler_params = given_options(row.options);
    EXPECT_THAT(error_of([&] { choose_sampler(built_plugins(), recipe, config); }), HasSubstr(row.text));
  }
}

TEST(SamplerChoice, ThatDoNotFitTheModelAreRefusedWithThoseThatDo) {
  const Recipe epsilon = golden::recipe_of(Objective::epsilon, ScheduleSpec::Spacing::leading);
  const std::string text =
      error_of([&] { choose_sampler(built_plugins(), epsilon, {.sampler = "FlowMatchEulerDiscreteScheduler"}); });
  EXPECT_THAT(text, AllOf(HasSubstr("sampler 'flow_euler' is for models of objective flow, this one is of objective "
                                    "epsilon; use one of:"),
                          HasSubstr("euler_ancestral"), HasSubstr("dpmpp_2m")));
  EXPECT_THAT(text.substr(text.find("use one of")), testing::Not(HasSubstr("flow_")));
  EXPECT_THAT(error_of([&] { choose_sampler(built_plugins(), epsilon, {.sampler = "dpmpp_2n"}); }),
              AllOf(HasSubstr("sample.sampler: sampler 'dpmpp_2n' is in no plugin. Did you mean dpmpp_2m?"),
                    HasSubstr("Known: euler, ")));
}

// docs/samplers.md has a row for every sampler and schedule, with its other names and options.
TEST(SamplerChoice, AreInTheReference) {
  const std::string page = get(fs::path(source_dir()) / "docs" / "samplers.md");
  const auto check = [&](const auto& descriptor) {
    SCOPED_TRACE(descriptor.id);
    const size_t begin = page.find(fmt::format("\n| `{}` |", descriptor.id));
    ASSERT_NE(begin, std::string::npos);
    const std::string row = page.substr(begin + 1, page.find('\n', begin + 1) - begin - 1);
    for (const char* const* alias = descriptor.aliases; alias != nullptr && *alias != nullptr; ++alias)
      EXPECT_THAT(row, HasSubstr(fmt::format("`{}`", *alias)));
    for (const OptionSpec& option : read_options(descriptor.options, descriptor.id))
      EXPECT_THAT(row, HasSubstr(option.otherwise.empty() ? fmt::format("`{}`", option.name)
                                                          : fmt::format("`{}: {}`", option.name, option.otherwise)));
  };
  for (const Offered<lh_sampler>& offered : built_plugins().samplers()) check(*offered.descriptor);
  const std::string schedules = page.substr(page.find("\n## Schedules"));
  for (const Offered<lh_schedule>& offered : built_plugins().schedules()) {
    EXPECT_THAT(schedules, HasSubstr(fmt::format("\n| `{}` |", offered.descriptor->id)));
    if (offered.descriptor->id != std::string("lcm")) check(*offered.descriptor);  // a sampler has that id, too
  }
}

// A plugin that breaks the contract of sampler.h in one place.
lh_sampler broken() {
  static constexpr const char* objectives[] = {"flow", nullptr};
  lh_sampler bad{};
  bad.struct_size = sizeof bad;
  bad.id = "bad";
  bad.objectives = objectives;
  bad.create = [](const lh_host*, const lh_attr*, uint32_t, void**) { return lh_status{LH_OK}; };
  bad.destroy = [](void*) {};
  bad.stages = [](void*) -> uint32_t { return 1; };
  bad.carried = [](void*, uint32_t index) -> const char* { return index == 0 ? "kept" : nullptr; };
  bad.scalar = [](void*, uint32_t index) -> const char* { return index == 0 ? "number" : nullptr; };
  bad.scalar_values = [](void*, const lh_levels*, uint32_t, uint32_t, double* out) {
    *out = 1;
    return lh_status{LH_OK};
  };
  bad.build_stage = [](void*, lh_graph* g, uint32_t, const lh_desc* latents) {
    host_api().output(g, "x", host_api().input(g, "denoised", latents));
    return lh_status{LH_OK};
  };
  return bad;
}

// Plugins that break it are named with what they did.
TEST(SamplerChoice, ThatMisbehaveAreNamed) {
  struct Row {
    void (*change)(lh_sampler&);
    const char* text;
  };
  const Row rows[] = {
      {[](lh_sampler& s) {
         s.space = LH_SPACE_ALPHA;
         s.build_stage = [](void*, lh_graph* g, uint32_t, const lh_desc* latents) {
           host_api().output(g, "x", host_api().input(g, "derivative", latents));
           return lh_status{LH_OK};
         };
       },
       "build of stage 0: asks for the input 'derivative'; known: x, noise, model_out, denoised, epsilon, "
       "uncond_model_out, uncond_denoised, uncond_epsilon, kept, time, and its scalars: number"},
      {[](lh_sampler& s) {
         s.build_stage = [](void*, lh_graph* g, uint32_t, const lh_desc*) {
           const lh_desc one{LH_F32, 1, {1}};
           host_api().output(g, "x", host_api().input(g, "x", &one));
           return lh_status{LH_OK};
         };
       },
       "build of stage 0: input 'x' is"},
      {[](lh_sampler& s) {
         s.build_stage = [](void*, lh_graph* g, uint32_t, const lh_desc* latents) {
           host_api().output(g, "kept", host_api().input(g, "x", latents));
           return lh_status{LH_OK};
         };
       },
       "build of stage 0: needs an output 'x' like the latents"},
      {[](lh_sampler& s) {
         s.build_stage = [](void*, lh_graph* g, uint32_t, const lh_desc* latents) {
           const lh_value x = host_api().input(g, "x", latents);
           host_api().output(g, "x", x);
           host_api().output(g, "y", x);
           return lh_status{LH_OK};
         };
       },
       "build of stage 0: gives 'y', which is neither x nor one of its carried tensors: kept"},
      {[](lh_sampler& s) {
         s.build_stage = [](void*, lh_graph* g, uint32_t, const lh_desc* latents) {
           const lh_desc one{LH_F32, 1, {1}};
           host_api().output(g, "x", host_api().input(g, "x", latents));
           host_api().output(g, "kept", host_api().input(g, "number", &one));
           return lh_status{LH_OK};
         };
       },
       "build of stage 0: gives 'kept' as"},
      {[](lh_sampler& s) {
         s.build_stage = [](void*, lh_graph* g, uint32_t, const lh_desc* latents) {
           host_api().input(g, "x", latents);
           host_api().input(g, "x", latents);
           return lh_status{LH_OK};
         };
       },
       "build of stage 0: graph input 'x' is declared twice"},
      {[](lh_sampler& s) { s.stages = [](void*) -> uint32_t { return 0; }; }, "stages: gave 0, expected 1 to 64"},
      {[](lh_sampler& s) { s.stages = [](void*) -> uint32_t { return 65; }; }, "stages: gave 65, expected 1 to 64"},
      {[](lh_sampler& s) { s.carried = [](void*, uint32_t) -> const char* { return "kept"; }; },
       "carried: lists 'kept' twice"},
      {[](lh_sampler& s) {
         s.scalar = [](void*, uint32_t index) -> const char* {
           static std::string name;
           name = "number" + std::to_string(index);
           return name.c_str();
         };
       },
       "scalar: the list does not end: number 256 is still there"},
      {[](lh_sampler& s) {
         s.carried = [](void*, uint32_t index) -> const char* { return index == 0 ? "denoised" : nullptr; };
       },
       "carried: lists 'denoised', which is another input's name"},
      {[](lh_sampler& s) {
         s.scalar = [](void*, uint32_t index) -> const char* { return index == 0 ? "kept" : nullptr; };
       },
       "scalar: lists 'kept', which is another input's name"},
      {[](lh_sampler& s) {
         s.scalar_values = [](void*, const lh_levels*, uint32_t, uint32_t, double* out) {
           *out = NAN;
           return lh_status{LH_OK};
         };
       },
       "scalar_values: gave number = nan at step 0, stage 0"},
      {[](lh_sampler& s) {
         s.stage_sigma = [](void*, const lh_levels*, uint32_t, uint32_t, double* out) {
           *out = -2;
           return lh_status{LH_OK};
         };
       },
       "stage_sigma: gave -2 at step 0, stage 0"},
      {[](lh_sampler& s) {
         s.stage_sigma = [](void*, const lh_levels*, uint32_t, uint32_t, double* out) {
           *out = LH_STAGE_WITHOUT_MODEL;
           return lh_status{LH_OK};
         };
       },
       "stage 0 of step 0 runs without the model, but asks for what the model said"},
  };
  Device device(tested_device());
  const Recipe recipe = golden::recipe_of(Objective::flow, ScheduleSpec::Spacing::leading);
  const PluginHost host{{&host_api()}, "test", {}};
  for (const Row& row : rows) {
    lh_sampler bad = broken();
    row.change(bad);
    EXPECT_THAT(error_of([&] {
                  const Sampler sampler({&bad, &host}, {});
                  const SamplingSchedule schedule = golden::own_schedule(recipe, bad.space, 2);
                  SamplerRun(device, sampler, recipe.objective, schedule, {1, 2, 2, 4});
                }),
                AllOf(HasSubstr("sampler 'bad', "), HasSubstr(row.text)));
  }
}

}  // namespace
}  // namespace lh::test::sampler_choice_test
