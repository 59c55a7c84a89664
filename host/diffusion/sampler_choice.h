// Which sampler and which schedule a run has: of the configuration, or the model's own.
#pragma once

#include <memory>
#include <string>

#include "config/config.h"
#include "diffusion/sampling_schedule.h"
#include "plugin/sampler.h"
#include "plugin/schedule.h"

namespace lh {

struct SamplerChoice {
  std::shared_ptr<const Sampler> sampler;
  std::shared_ptr<const Schedule> schedule;
};

// sample.sampler and sample.scheduler name them by id or as other programs do ("euler_a", "DPM++ 2M SDE Karras": a
// schedule may stand behind the sampler); empty means the model's own. Options are those of sample.sampler_params and
// sample.scheduler_params, over those of the recipe where the choice is the recipe's. Throws lh::Error(Code::config)
// that lists what there is for this model.
SamplerChoice choose_sampler(const Registry& registry, const Recipe& recipe, const SampleConfig& config);

// What is wrong with a name that no plugin has, whatever the model: with the nearest one and all there are. Empty:
// nothing.
std::string unknown_sampler(const Registry& registry, const std::string& name);
std::string unknown_schedule(const Registry& registry, const std::string& name);

// The levels of a run of so many steps. tokens: image tokens.
SamplingSchedule schedule_of(const SamplerChoice& choice, const Recipe& recipe, int64_t steps, int64_t tokens);

}  // namespace lh
