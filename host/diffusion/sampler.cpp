// Runs the stages of a sampler: what each is given of x and of what the model said.
#include "diffusion/sampler.h"

#include <algorithm>

#include "core/error.h"

namespace lh {
namespace {

HostTensor combined(double a, const HostTensor& x, double b, const HostTensor& y) {
  HostTensor out(x.desc);
  for (size_t i = 0; i < out.as<float>().size(); ++i)
    out.as<float>()[i] = static_cast<float>(a * double{x.as<float>()[i]} + b * double{y.as<float>()[i]});
  return out;
}

HostTensor scaled(double a, const HostTensor& x) { return a == 1 ? x : combined(a, x, 0, x); }

HostTensor scalar(double value) {
  const auto v = static_cast<float>(value);
  return HostTensor::from_floats({1}, std::span(&v, 1));
}

// x0 from what the model said at this level.
HostTensor denoised(Objective objective, const SamplingLevel& at, const HostTensor& x, const HostTensor& said) {
  switch (objective) {
    case Objective::flow: return combined(1, x, -at.sigma, said);
    case Objective::epsilon: return combined(1 / at.alpha, x, -at.sigma / at.alpha, said);
    case Objective::v_prediction: break;
  }
  const double own = at.input_scale;  // alpha and sigma of the model's scale are own times these
  return combined(own * own * at.alpha, x, -own * at.sigma, said);
}

HostTensor epsilon(Objective objective, const SamplingLevel& at, const HostTensor& x, const HostTensor& said) {
  switch (objective) {
    case Objective::flow: return combined(1, x, at.alpha, said);
    case Objective::epsilon: return said;
    case Objective::v_prediction: break;
  }
  const double own = at.input_scale;
  return combined(own * own * at.sigma, x, own * at.alpha, said);
}

}  // namespace

SamplerRun::SamplerRun(Device& device, const Sampler& sampler, Objective objective, const SamplingSchedule& schedule,
                       const Shape& latents)
    : sampler_(sampler), objective_(objective), schedule_(schedule), latents_(latents) {
  for (uint32_t stage = 0; stage < sampler.stages(); ++stage)
    programs_.emplace_back(device, sampler.build(stage, latents), Externals{}, "sampler");
  plan_steps();
}

void SamplerRun::plan_steps() {
  std::vector<double> alphas, sigmas, times;
  for (int64_t i = 0; i <= schedule_.steps(); ++i) {
    alphas.push_back(schedule_.level(i).alpha);
    sigmas.push_back(schedule_.level(i).sigma);
    times.push_back(schedule_.level(i).time);
  }
  const lh_levels levels{sizeof(lh_levels),
                         static_cast<uint32_t>(schedule_.steps()),
                         alphas.data(),
                         sigmas.data(),
                         times.data(),
                         objective_name(objective_).data(),  // a literal
                         sampler_.space()};
  for (uint32_t step = 0; step < levels.steps; ++step) {
    std::vector<Stage>& stages = steps_.emplace_back();
    for (uint32_t index = 0; index < sampler_.stages(); ++index) {
      const double sigma = sampler_.stage_sigma(levels, step, index);
      if (sigma == 0) break;
      stages.push_back(plan_stage(levels, step, index, sigma));
    }
  }
}

SamplerRun::Stage SamplerRun::plan_stage(const lh_levels& levels, uint32_t step, uint32_t index, double sigma) {
  const bool sees_model = sigma != LH_STAGE_WITHOUT_MODEL;
  if (!sees_model && asks_model(programs_[index]->graph(), sampler_))
    fail(Code::plugin, "sampler '{}', stage {} of step {} runs without the model, but asks for what the model said",
         sampler_.id(), index, step);
  const SamplingLevel& own = schedule_.level(step);
  return {index, sees_model && sigma != own.sigma ? schedule_.at_sigma(sigma) : own, sees_model,
          sampler_.scalar_values(levels, step, index)};
}

// The tensors and numbers that are made from x and the model's output.
HostTensor SamplerRun::input(const std::string& name, const Stage& stage, const HostTensor& x,
                             const ModelSaid& said) const {
  constexpr std::string_view unconditional = "uncond_";
  const bool without = name.starts_with(unconditional);
  const std::string what = without ? name.substr(unconditional.size()) : name;
  const HostTensor& out = without && said.unconditional ? *said.unconditional : said.guided;
  if (what == "denoised") return denoised(objective_, stage.at, x, out);
  if (what == "epsilon") return epsilon(objective_, stage.at, x, out);
  // On straight lines: dx/dsigma is the velocity of a flow model and the noise of the others.
  if (what == "derivative") return objective_ == Objective::flow ? out : epsilon(objective_, stage.at, x, out);
  return out;
}

SamplerState SamplerRun::begin(const HostTensor& start) const {
  SamplerState state{.x = scaled(schedule_.start(), start)};
  for (const std::string& name : sampler_.carried())
    state.carried.emplace(name, HostTensor(Desc{DType::f32, latents_}));
  return state;
}

HostTensor SamplerRun::run(const HostTensor& start, const SamplerCalls& calls) {
  SamplerState state = begin(start);
  go_on(state, calls);
  return std::move(state.x);
}

void SamplerRun::go_on(SamplerState& state, const SamplerCalls& calls) {
  HostTensor& x = state.x;
  for (; !done(state) && calls.proceed(state.step, x); ++state.step) {
    const int64_t number = state.step;
    for (const Stage& stage : steps_[static_cast<size_t>(number)]) {
      ModelSaid said = x;
      if (stage.sees_model) said = calls.model(scaled(stage.at.input_scale, x), stage.at.for_model(), number);
      Program& program = *programs_[stage.index];
      for (const auto& [name, value] : program.graph().inputs) {
        const auto at = std::ranges::find(sampler_.scalars(), name);
        if (at != sampler_.scalars().end())
          program.set_input(name, scalar(stage.numbers[static_cast<size_t>(at - sampler_.scalars().begin())]));
        else if (const auto carried = state.carried.find(name); carried != state.carried.end())
          program.set_input(name, carried->second);
        else if (name == "time")
          program.set_input(name, scalar(stage.at.time));
        else if (name == "noise")
          program.set_input(name, calls.noise(number, stage.index));
        else
          program.set_input(name, name == "x" ? x : input(name, stage, x, said));
      }
      program.run();
      x = program.output("x");
      for (auto& [name, value] : state.carried)
        if (program.graph().outputs.contains(name)) value = program.output(name);
    }
  }
}

}  // namespace lh
