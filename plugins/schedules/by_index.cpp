// Schedules that take some of the model's training levels, N of them, as ComfyUI has them.
//   simple        i N / steps from the last, i = 0 .. steps - 1, cut to whole ones
//   ddim_uniform  each N / steps-th from number 1; as many as there are, which may be more than were asked for
//   lcm           of `original_steps` evenly spaced ones, those that consistency distillation knew, `steps` again
//                 (diffusers' LCMScheduler)
#include <cmath>

#include "schedules.h"

namespace schedules {
namespace {

// Levels of flow models have no timestep of their own.
Levels levels_of(const Facts& facts, const std::vector<int64_t>& timesteps) {
  Levels levels = trained(facts, timesteps);
  if (facts.flow()) levels.time.clear();
  return levels;
}

class Simple : public lora_host::Schedule {
 public:
  explicit Simple(const Options& /*options*/) {}
  Levels levels(const Facts& facts) const override {
    std::vector<int64_t> times;
    const double step = static_cast<double>(facts.timesteps) / static_cast<double>(facts.steps);
    for (uint32_t i = 0; i < facts.steps; ++i) times.push_back(facts.timesteps - 1 - static_cast<int64_t>(i * step));
    return levels_of(facts, times);
  }
};

class DdimUniform : public lora_host::Schedule {
 public:
  explicit DdimUniform(const Options& /*options*/) {}
  Levels levels(const Facts& facts) const override {
    std::vector<int64_t> times;
    for (int64_t t = 1; t < facts.timesteps; t += std::max(facts.timesteps / facts.steps, 1u)) times.push_back(t);
    std::reverse(times.begin(), times.end());
    return levels_of(facts, times);
  }
};

class Lcm : public lora_host::Schedule {
 public:
  explicit Lcm(const Options& options) : original_(options.integer("original_steps")) {}
  Levels levels(const Facts& facts) const override {
    const int64_t distance = facts.timesteps / original_;
    std::vector<int64_t> times;
    for (int64_t i = 0; i < facts.steps; ++i) times.push_back((original_ - i * original_ / facts.steps) * distance - 1);
    return levels_of(facts, times);
  }

 private:
  int64_t original_;
};

constexpr lh_option lcm_options[] = {
    option::integer("original_steps", "50", option::within(1, 1000), "Steps that the model was distilled from."),
    option::end};

}  // namespace

constinit const lh_schedule simple = lora_host::schedule<Simple>({.id = "simple", .objectives = all_models});
constinit const lh_schedule ddim_uniform =
    lora_host::schedule<DdimUniform>({.id = "ddim_uniform", .objectives = all_models});
constinit const lh_schedule lcm =
    lora_host::schedule<Lcm>({.id = "lcm", .objectives = discrete_models, .options = lcm_options});

}  // namespace schedules
