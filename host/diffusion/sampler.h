// A sampler plugin at work: from noise to x0 along a schedule, with a model that is a function of (x, time).
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "config/config.h"
#include "diffusion/sampling_schedule.h"
#include "plugin/registry.h"
#include "run/program.h"

namespace lh {

struct SamplerChoice {
  Offered<lh_sampler> sampler;
  bool karras = false;
};

// The sampler of sample.sampler and sample.scheduler: by the id that its plugin gives it or a spelling of other
// programs
// ("euler_a", "DPM++ 2M Karras"); empty and the names of scheduler families mean the model's own. Throws
// lh::Error(Code::config) that lists the samplers for this model.
SamplerChoice choose_sampler(const Registry& registry, const Recipe& recipe, const SampleConfig& config);

struct SamplerCalls {
  // The model's output for x, in the model's own scale as is the level.
  std::function<HostTensor(const HostTensor& x, const SamplingLevel& level, int64_t step)> model;
  // New noise, for samplers that add some.
  std::function<HostTensor(int64_t step)> noise;
  // Before each step, with the x it begins with in the sampler's scale; false stops the run.
  std::function<bool(int64_t step, const HostTensor& x)> proceed;
};

class SamplerRun {
 public:
  // Builds the sampler's graphs for latents of this shape.
  SamplerRun(Device& device, const Offered<lh_sampler>& sampler, Objective objective, const SamplingSchedule& schedule,
             const Shape& latents);
  // start: a normal draw.
  HostTensor run(const HostTensor& start, const SamplerCalls& calls);

 private:
  Graph build(uint32_t stage) const;
  double stage_sigma(const lh_levels& levels, uint32_t step, uint32_t stage) const;
  std::vector<double> scalar_values(const lh_levels& levels, uint32_t step, uint32_t stage) const;
  HostTensor input(const std::string& name, const HostTensor& x, const HostTensor& model_out,
                   const SamplingLevel& level) const;
  const Offered<lh_sampler>& sampler_;
  Objective objective_;
  const SamplingSchedule& schedule_;
  Shape shape_;
  std::vector<OwnedProgram> stages_;
  std::map<std::string, HostTensor> carried_;
  std::vector<std::string> scalars_;
  std::vector<double> alphas_, sigmas_;
};

}  // namespace lh
