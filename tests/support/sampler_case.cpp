#include "support/sampler_case.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <sstream>

#include "core/error.h"
#include "support/given_options.h"
#include "support/model_files.h"
#include "support/paths.h"

namespace lh::golden {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// A case in the words of this program.
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
}

// The sampler of a class of diffusers, and its options.
void set_sampler(const std::string& name, const Json& config, SampleConfig& out) {
  out.sampler = name;  // classes are other spellings of samplers
  Json options = Json::object();
  if (name == "DPMSolverMultistepScheduler" && config.at("algorithm_type") == "sde-dpmsolver++") {
    out.sampler = "dpmpp_2m_sde";
    options["solver_type"] = config.value("solver_type", "midpoint");
  } else if (name == "UniPCMultistepScheduler") {
    options = {{"order", config.value("solver_order", 2)}, {"solver_type", config.value("solver_type", "bh2")}};
  } else if (name == "LCMScheduler") {
    options["timestep_scaling"] = config.value("timestep_scaling", 10.0);
  } else if (name == "FlowMatchEulerDiscreteScheduler" && config.value("stochastic_sampling", false)) {
    out.sampler = "flow_euler_stochastic";
  }
  out.sampler_params = options_of(options);
}

// How its levels of discrete timesteps are spaced.
void set_discrete_schedule(const std::string& name, const Json& config, Setting& s) {
  const bool multistep = name == "DPMSolverMultistepScheduler" || name == "UniPCMultistepScheduler";
  const bool leads = name == "DDIMScheduler" || name == "LCMScheduler";
  const std::string spacing = config.value("timestep_spacing", leads ? "leading" : "linspace");
  s.recipe.noise_schedule = noise_of(config);
  ScheduleSpec& schedule = s.recipe.sampling.schedule;
  schedule.spacing = spacing == "leading" ? ScheduleSpec::Spacing::leading : ScheduleSpec::Spacing::trailing;
  schedule.offset = config.value("steps_offset", 0);
  schedule.set_alpha_to_one = config.value("set_alpha_to_one", false);
  Json options = Json::object();
  const bool to_smallest = config.value("final_sigmas_type", "zero") == "sigma_min";
  if (config.value("use_karras_sigmas", false)) {
    s.config.scheduler = "karras";
    options["round_times"] = multistep;
  } else if (config.value("use_exponential_sigmas", false)) {
    s.config.scheduler = "exponential";
  } else if (config.value("use_beta_sigmas", false)) {
    s.config.scheduler = "beta";
    options["of"] = "sigmas";
  } else if (name == "LCMScheduler") {
    s.config.scheduler = "lcm";
    options["original_steps"] = config.value("original_inference_steps", 50);
  } else if (spacing == "linspace" || to_smallest) {
    s.config.scheduler = spacing;
    options["final_sigma"] = to_smallest ? "sigma_min" : "zero";
  }
  s.config.scheduler_params = options_of(options);
}

Setting setting_of(const Case& c) {
  Setting s;
  const std::string prediction = c.json.at("prediction");
  s.recipe.objective = prediction == "flow"      ? Objective::flow
                       : prediction == "epsilon" ? Objective::epsilon
                                                 : Objective::v_prediction;
  if (c.json.contains("sampler")) {
    s.config.sampler = c.json.at("sampler").at("name");
    s.config.sampler_params = options_of(c.json.at("sampler").at("options"));
    s.recipe.sampling.schedule.shift = c.json.value("shift", 1.0);
    return s;
  }
  const Json &scheduler = c.json.at("scheduler"), &config = scheduler.at("config");
  const std::string name = scheduler.at("class");
  set_sampler(name, config, s.config);
  if (s.recipe.objective != Objective::flow) {
    set_discrete_schedule(name, config, s);
  } else {
    set_flow_schedule(scheduler, s);
    if (name == "UniPCMultistepScheduler") s.config.scheduler = "linspace";
  }
  return s;
}

// The model of the cases, as their "about" has it. It is given x in the model's own scale.
HostTensor model_of(const Case& c, const HostTensor& x, const SamplingLevel& at) {
  const bool flow = c.json.at("prediction") == "flow";
  const double sigma = at.sigma / at.alpha, frequency = flow ? 2 : 3;
  const double rest = flow                         ? 0.2 * at.time
                      : c.json.contains("sampler") ? 0.05 * sigma / (1 + sigma)
                                                   : c.json.at("time_weight").get<double>() * at.time / 1000;
  HostTensor out(x.desc);
  for (size_t i = 0; i < out.as<float>().size(); ++i) {
    const double value = x.as<float>()[i];
    out.as<float>()[i] = static_cast<float>(0.3 * value + 0.1 * std::sin(frequency * value) + rest);
  }
  return out;
}

HostTensor times(double factor, const HostTensor& x) {
  HostTensor out(x.desc);
  for (size_t i = 0; i < out.as<float>().size(); ++i)
    out.as<float>()[i] = static_cast<float>(factor * double{x.as<float>()[i]});
  return out;
}

// Draws in the order in which they are asked for. A case has no draws whose factor is 0 in the last step: there, any
// number will do.
class Draws {
 public:
  explicit Draws(const Case& c) : case_(c) {}
  HostTensor next() {
    const std::string name = fmt::format("noise.{}", count_++);
    if (case_.json.at("inputs").contains(name)) return case_.input(name);
    HostTensor any = case_.input("latents");
    for (float& value : any.as<float>()) value = 1000;
    return any;
  }

 private:
  const Case& case_;
  int64_t count_ = 0;
};

// The levels of a case, and where the run begins.
struct Beginning {
  SamplingSchedule schedule;
  HostTensor start;
};

Beginning beginning_of(const Case& c, const Setting& s, const SamplerChoice& choice) {
  const int64_t steps = c.json.at("steps");
  const HostTensor latents = c.input("latents");
  if (!c.json.contains("sampler")) return {schedule_of(choice, s.recipe, steps, s.tokens), latents};
  const ScheduleFacts facts(s.recipe, choice.sampler->space(), steps, s.tokens);
  LevelList list;
  list.sigma = c.json.at("sigmas").get<std::vector<double>>();
  list.time.assign(list.sigma.size(), std::numeric_limits<double>::quiet_NaN());
  SamplingSchedule schedule(s.recipe, facts, list);
  const double alpha = s.recipe.objective == Objective::flow ? 1 : schedule.level(0).alpha;
  HostTensor start = times(c.json.at("init_scale").get<double>() * alpha / schedule.start(), latents);
  return {std::move(schedule), std::move(start)};
}

}  // namespace

Floats trajectory(const Case& c, Device& device) {
  const Setting s = setting_of(c);
  const bool flow = s.recipe.objective == Objective::flow, given = c.json.contains("sampler");
  const SamplerChoice choice = choose_sampler(test::built_plugins(), s.recipe, s.config);
  const Beginning beginning = beginning_of(c, s, choice);
  const SamplingSchedule& schedule = beginning.schedule;
  Floats found;
  // Cases with given levels are over x0 + sigma noise, whatever the sampler's own space is.
  const auto keep = [&](const std::string& name, const HostTensor& x, int64_t level) {
    const HostTensor nchw = nhwc_to_nchw(given && !flow ? times(1 / schedule.level(level).alpha, x) : x);
    found[name].assign(nchw.as<float>().begin(), nchw.as<float>().end());
  };
  // The model is given x in its own scale.
  const auto own_scale = [&](const HostTensor& x, const SamplingLevel& at) {
    return flow || choice.sampler->space() != LH_SPACE_SIGMA ? x : times(1 / at.alpha, x);
  };
  Draws draws(c);
  int64_t step_before = -1;
  SamplerRun run(device, *choice.sampler, s.recipe.objective, schedule, beginning.start.desc.shape);
  const HostTensor end = run.run(
      beginning.start, {.model =
                            [&](const HostTensor& x, const SamplingLevel& at, int64_t step) {
                              if (step == step_before) keep(fmt::format("predictor.{}", step), own_scale(x, at), step);
                              step_before = step;
                              found["times"].push_back(static_cast<float>(at.time));
                              found["call_sigmas"].push_back(static_cast<float>(flow ? at.sigma : at.sigma / at.alpha));
                              return model_of(c, x, at);
                            },
                        .noise = [&](int64_t, int64_t) { return draws.next(); },
                        .proceed =
                            [&](int64_t step, const HostTensor& x) {
                              keep(fmt::format("latents.{}", step), x, step);
                              return true;
                            }});
  keep(fmt::format("latents.{}", schedule.steps()), end, schedule.steps());
  for (int64_t i = 0; i <= schedule.steps(); ++i) {
    const SamplingLevel& level = schedule.level(i);
    found["sigmas"].push_back(static_cast<float>(flow ? level.sigma : level.sigma / level.alpha));
  }
  return found;
}

std::vector<fs::path> entries_of(const std::string& folder) {
  std::vector<fs::path> roots{fs::path(test::test_data()) / "golden"}, found;
  if (const char* more = std::getenv("LORA_GOLDEN"); more != nullptr) {
    std::istringstream list(more);
    for (std::string root; std::getline(list, root, ':');) roots.emplace_back(root);
  }
  for (const fs::path& root : roots)
    if (fs::exists(root / folder))
      for (const auto& entry : fs::directory_iterator(root / folder)) found.push_back(entry.path());
  std::ranges::sort(found);
  return found;
}

GivenOptions options_of(const Json& values) { return test::given_options(values.dump()); }

LevelList levels_of(const Recipe& recipe, const Spacing& spacing) {
  for (const Offered<lh_schedule>& offered : test::built_plugins().schedules())
    if (spacing.id == offered.descriptor->id) {
      const ScheduleFacts facts(recipe, spacing.space, spacing.steps, spacing.tokens);
      return Schedule(offered, options_of(spacing.options)).levels(facts.get());
    }
  fail(Code::config, "no schedule '{}'", spacing.id);
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

SamplingSchedule own_schedule(const Recipe& recipe, int32_t space, int64_t steps) {
  const ScheduleFacts facts(recipe, space, steps, 1);
  return SamplingSchedule(recipe, facts, levels_of(recipe, {.id = "normal", .space = space, .steps = steps}));
}

}  // namespace lh::golden
