// A sampler plugin at work: from noise to x0 along a schedule, with a model that is a function of (x, time).
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "diffusion/sampling_schedule.h"
#include "plugin/sampler.h"
#include "run/program.h"

namespace lh {

// What the model says of x: after guidance, and without the prompt where guidance asked for that too.
struct ModelSaid {
  ModelSaid(HostTensor after_guidance) : guided(std::move(after_guidance)) {}
  ModelSaid(HostTensor after_guidance, HostTensor without_prompt)
      : guided(std::move(after_guidance)), unconditional(std::move(without_prompt)) {}
  HostTensor guided;
  std::optional<HostTensor> unconditional;
};

struct SamplerCalls {
  // The model's output for x, in the model's own scale as is the level.
  std::function<ModelSaid(const HostTensor& x, const SamplingLevel& level, int64_t step)> model;
  // New noise, for samplers that add some: independent for each step and each of its draws, which are counted by stage.
  std::function<HostTensor(int64_t step, int64_t draw)> noise;
  // Before each step, with the x it begins with in the sampler's scale; false stops the run.
  std::function<bool(int64_t step, const HostTensor& x)> proceed;
};

// A run that stands before one of its steps: it may wait there.
struct SamplerState {
  HostTensor x = {};
  std::map<std::string, HostTensor> carried = {};
  int64_t step = 0;
};

class SamplerRun {
 public:
  // Builds the sampler's graphs for latents of this shape, and asks it for all its numbers.
  SamplerRun(Device& device, const Sampler& sampler, Objective objective, const SamplingSchedule& schedule,
             const Shape& latents);
  // start: a normal draw.
  SamplerState begin(const HostTensor& start) const;
  // Goes on until all steps are done, or `calls.proceed` stops it.
  void go_on(SamplerState& state, const SamplerCalls& calls);
  bool done(const SamplerState& state) const { return state.step == schedule_.steps(); }
  // All of it.
  HostTensor run(const HostTensor& start, const SamplerCalls& calls);

 private:
  struct Stage {
    uint32_t index;
    SamplingLevel at;
    bool sees_model;
    std::vector<double> numbers;  // of the sampler's scalars
  };
  void plan_steps();
  Stage plan_stage(const lh_levels& levels, uint32_t step, uint32_t index, double sigma);
  HostTensor input(const std::string& name, const Stage& stage, const HostTensor& x, const ModelSaid& said) const;
  const Sampler& sampler_;
  Objective objective_;
  const SamplingSchedule& schedule_;
  std::vector<OwnedProgram> programs_;     // by stage
  std::vector<std::vector<Stage>> steps_;  // the stages that each step has
  Shape latents_;
};

}  // namespace lh
