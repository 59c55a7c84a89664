// Training timesteps at even distances (Lin et al. 2024, table 2), N of them.
//   leading   whole steps of N / steps from 0 up, plus an offset
//   trailing  steps of N / steps from N - 1 down, rounded
//   linspace  from N - 1 to 0, both included, not rounded; sigma between two timesteps lies between theirs, itself
//             (diffusers' EulerDiscreteScheduler) or its logarithm (ComfyUI, whose name for that is normal). Flow
//             models: times from 1 to the smallest sigma, shifted
//   sgm_uniform  linspace of logarithms with one step more, its last timestep left out (ComfyUI)
// In log SNR, leading and linspace have one step more too, and leave out the last; linspace is rounded then
// (diffusers' DPMSolverMultistepScheduler and UniPCMultistepScheduler).
#include <cmath>

#include "schedules.h"

namespace schedules {

std::vector<int64_t> leading_timesteps(const Facts& facts, int64_t offset) {
  const int64_t steps = facts.steps, dropped = facts.space == LH_SPACE_LOG_SNR ? 1 : 0;
  std::vector<int64_t> times;
  for (int64_t i = 0; i < steps; ++i)
    times.push_back((steps - 1 - i + dropped) * (facts.timesteps / (steps + dropped)) + offset);
  return times;
}

std::vector<int64_t> trailing_timesteps(const Facts& facts) {
  std::vector<int64_t> times;
  const auto count = static_cast<double>(facts.timesteps);
  for (uint32_t i = 0; i < facts.steps; ++i)
    times.push_back(std::llrint(count - static_cast<double>(i) * count / static_cast<double>(facts.steps)) - 1);
  return times;
}

namespace {

// Where a run ends: at 0, or at the smallest sigma.
constexpr const char* ends[] = {"zero", "sigma_min", nullptr};
constexpr lh_option end_option = option::choice("final_sigma", "zero", ends, "Where the run ends.");

class Leading : public lora_host::Schedule {
 public:
  explicit Leading(const Options& options)
      : to_zero_(options.text("final_sigma") == "zero"),
        offset_(options.has("offset") ? options.integer("offset") : -1) {}
  Levels levels(const Facts& facts) const override {
    Levels levels = trained(facts, leading_timesteps(facts, offset_ < 0 ? facts.offset : offset_));
    if (!to_zero_) levels.sigma.back() = facts.sigma_min;
    if (facts.space == LH_SPACE_SIGMA) levels.start = std::sqrt(levels.sigma[0] * levels.sigma[0] + 1);
    return levels;
  }

 private:
  bool to_zero_;
  int64_t offset_;
};

class Trailing : public lora_host::Schedule {
 public:
  explicit Trailing(const Options& options) : to_zero_(options.text("final_sigma") == "zero") {}
  Levels levels(const Facts& facts) const override {
    Levels levels = trained(facts, trailing_timesteps(facts));
    if (!to_zero_) levels.sigma.back() = facts.sigma_min;
    if (facts.space == LH_SPACE_SIGMA) levels.start = levels.sigma[0];
    return levels;
  }

 private:
  bool to_zero_;
};

// Sigma of a timestep between whole ones.
double sigma_at(const Facts& facts, double t, bool logarithm) {
  const auto low = static_cast<size_t>(t);
  const double part = t - static_cast<double>(low);
  if (part == 0) return facts.trained_sigma[low];
  if (logarithm) return facts.sigma_at(t);
  return facts.trained_sigma[low] + part * (facts.trained_sigma[low + 1] - facts.trained_sigma[low]);
}

class Linspace : public lora_host::Schedule {
 public:
  explicit Linspace(const Options& options)
      : logarithm_(options.text("interpolation") == "log"), to_zero_(options.text("final_sigma") == "zero") {}
  Levels levels(const Facts& facts) const override {
    Levels levels = facts.flow() ? flow(facts) : discrete(facts);
    if (!to_zero_) levels.sigma.back() = facts.sigma_min;
    if (!facts.flow() && facts.space == LH_SPACE_SIGMA) levels.start = levels.sigma[0];
    return levels;
  }

 private:
  static Levels flow(const Facts& facts) {
    if (facts.space != LH_SPACE_LOG_SNR) return shifted(facts, evenly(1, facts.sigma_min, facts.steps));
    Numbers times = evenly(1, 1.0 / facts.timesteps, facts.steps + int64_t{1});
    times.pop_back();
    Levels levels = shifted(facts, times);
    levels.sigma[0] = std::min(levels.sigma[0], 1 - 1e-6);  // log SNR stays finite
    return levels;
  }
  Levels discrete(const Facts& facts) const {
    if (facts.space == LH_SPACE_LOG_SNR) {
      std::vector<int64_t> rounded;
      for (const double t : evenly(facts.timesteps - 1.0, 0, facts.steps + int64_t{1}))
        rounded.push_back(std::llrint(t));
      rounded.pop_back();
      return trained(facts, rounded);
    }
    Levels levels;
    levels.time = evenly(facts.timesteps - 1.0, 0, facts.steps);
    for (const double t : levels.time) levels.sigma.push_back(sigma_at(facts, t, logarithm_));
    levels.sigma.push_back(0);
    levels.time.push_back(0);
    return levels;
  }
  bool logarithm_, to_zero_;
};

class SgmUniform : public lora_host::Schedule {
 public:
  explicit SgmUniform(const Options& /*options*/) {}
  Levels levels(const Facts& facts) const override {
    const bool flow = facts.flow();
    Levels levels;
    levels.time = flow ? evenly(1, facts.sigma_min, facts.steps + int64_t{1})
                       : evenly(facts.timesteps - 1.0, 0, facts.steps + int64_t{1});
    levels.time.back() = 0;
    for (const double t : levels.time) levels.sigma.push_back(flow ? facts.shifted(t) : sigma_at(facts, t, true));
    levels.sigma.back() = 0;
    return levels;
  }
};

constexpr const char* interpolations[] = {"linear", "log", nullptr};
constexpr lh_option leading_options[] = {
    option::integer("offset", nullptr, option::at_least(0), "Added to the timesteps; unless given, the model's own."),
    end_option, option::end};
constexpr lh_option trailing_options[] = {end_option, option::end};
constexpr lh_option linspace_options[] = {option::choice("interpolation", "linear", interpolations,
                                                         "What lies evenly between trained ones: sigma, or its log."),
                                          end_option, option::end};

}  // namespace

constinit const lh_schedule leading =
    lora_host::schedule<Leading>({.id = "leading", .objectives = discrete_models, .options = leading_options});
constinit const lh_schedule trailing =
    lora_host::schedule<Trailing>({.id = "trailing", .objectives = discrete_models, .options = trailing_options});
constinit const lh_schedule linspace =
    lora_host::schedule<Linspace>({.id = "linspace", .objectives = all_models, .options = linspace_options});
constinit const lh_schedule sgm_uniform =
    lora_host::schedule<SgmUniform>({.id = "sgm_uniform", .objectives = all_models});

}  // namespace schedules
