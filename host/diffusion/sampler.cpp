#include "diffusion/sampler.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "plugin/call.h"
#include "plugin/services.h"

namespace lh {
namespace {

std::vector<std::string> names(const char* const* list) {
  std::vector<std::string> out;
  for (; list != nullptr && *list != nullptr; ++list) out.emplace_back(*list);
  return out;
}

bool contains(const std::vector<std::string>& list, std::string_view item) {
  return std::ranges::find(list, item) != list.end();
}

bool fits(const lh_sampler& sampler, Objective objective) {
  return contains(names(sampler.objectives), objective_name(objective));
}

// "DPM++ 2M Karras" -> "dpmpp_2m_karras"
std::string plain(const std::string& spelling) {
  std::string out;
  for (const char c : spelling) {
    if (c == '+')
      out += 'p';
    else if (c == ' ' || c == '-')
      out += '_';
    else
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return out;
}

// What other programs call samplers.
std::string id_of(const std::string& name) {
  static const std::map<std::string, std::string> known{{"euler_a", "euler_ancestral"},   {"k_euler", "euler"},
                                                        {"k_euler_a", "euler_ancestral"}, {"k_heun", "heun"},
                                                        {"k_dpmpp_2m", "dpmpp_2m"},       {"dpmsolverpp", "dpmpp_2m"}};
  const auto it = known.find(name);
  return it == known.end() ? name : it->second;
}

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

SamplerChoice choose_sampler(const Registry& registry, const Recipe& recipe, const SampleConfig& config) {
  SamplerChoice choice{.sampler = {}, .karras = config.scheduler == "karras"};
  std::string id = id_of(plain(config.sampler));
  if (id.empty()) id = plain(recipe.sampling.sampler);
  constexpr std::string_view karras = "_karras";
  if (id.ends_with(karras)) {
    id.resize(id.size() - karras.size());
    choice.karras = config.scheduler != "normal";
  }
  choice.sampler = registry.sampler(id_of(id));
  const lh_sampler& found = *choice.sampler.descriptor;
  if (fits(found, recipe.objective)) return choice;
  std::vector<std::string> others;
  for (const Offered<lh_sampler>& offered : registry.samplers())
    if (fits(*offered.descriptor, recipe.objective)) others.emplace_back(offered.descriptor->id);
  fail(Code::config, "sampler '{}' is for models of objective {}, this one is of objective {}; use one of: {}",
       found.id, fmt::join(names(found.objectives), ", "), objective_name(recipe.objective), fmt::join(others, ", "));
}

SamplerRun::SamplerRun(Device& device, const Offered<lh_sampler>& sampler, Objective objective,
                       const SamplingSchedule& schedule, const Shape& latents)
    : sampler_(sampler), objective_(objective), schedule_(schedule), shape_(latents) {
  const lh_sampler& descriptor = *sampler.descriptor;
  scalars_ = names(descriptor.scalars);
  for (const std::string& name : names(descriptor.carried))
    carried_.emplace(name, HostTensor(Desc{DType::f32, latents}));
  for (int64_t i = 0; i <= schedule.steps(); ++i) {
    alphas_.push_back(schedule.level(i).alpha);
    sigmas_.push_back(schedule.level(i).sigma);
  }
  for (uint32_t stage = 0; stage < descriptor.stages; ++stage)
    stages_.emplace_back(device, build(stage), Externals{}, "sampler");
}

Graph SamplerRun::build(uint32_t stage) const {
  const lh_sampler& descriptor = *sampler_.descriptor;
  Graph graph(DType::f32);
  const GraphHandle handle = open_graph(*sampler_.host, graph);
  const lh_desc desc = to_abi({DType::f32, shape_});
  Call call(*sampler_.host, fmt::format("sampler '{}', build of stage {}", descriptor.id, stage), nullptr,
            handle.get());
  call.check(call.run([&] { return descriptor.build_stage(handle.get(), stage, &desc); }));
  std::vector<std::string> tensors{"x", "model_out", "denoised", "epsilon", "noise"};
  if (descriptor.space == LH_SPACE_SIGMA) tensors.emplace_back("derivative");
  for (const auto& [carried, zero] : carried_) tensors.push_back(carried);
  for (const auto& [name, value] : graph.inputs) {
    const bool number = contains(scalars_, name);
    if (!number && !contains(tensors, name))
      call.wrong(fmt::format("asks for the input '{}'; known: {}, and its scalars: {}", name, fmt::join(tensors, ", "),
                             fmt::join(scalars_, ", ")));
    const Desc expected{DType::f32, number ? Shape{1} : shape_};
    if (graph.desc(value) != expected)
      call.wrong(fmt::format("input '{}' is {}, expected {}", name, graph.desc(value).text(), expected.text()));
  }
  if (!graph.outputs.contains("x") || graph.desc(graph.outputs.at("x")) != Desc{DType::f32, shape_})
    call.wrong("needs an output 'x' like the latents");
  return graph;
}

// The tensors that are made from x and the model's output.
HostTensor SamplerRun::input(const std::string& name, const HostTensor& x, const HostTensor& model_out,
                             const SamplingLevel& level) const {
  if (name == "x") return x;
  if (name == "denoised") return denoised(objective_, level, x, model_out);
  if (name == "epsilon") return epsilon(objective_, level, x, model_out);
  // On straight lines: dx/dsigma is the velocity of a flow model and the noise of the others.
  if (name == "derivative") return objective_ == Objective::flow ? model_out : epsilon(objective_, level, x, model_out);
  return model_out;
}

double SamplerRun::stage_sigma(const lh_levels& levels, uint32_t step, uint32_t stage) const {
  Call call(*sampler_.host, fmt::format("sampler '{}', stage_sigma", sampler_.descriptor->id));
  const double sigma = call.run([&] { return sampler_.descriptor->stage_sigma(&levels, step, stage); });
  if (!std::isfinite(sigma)) call.wrong(fmt::format("gave {} at step {}, stage {}", sigma, step, stage));
  return sigma;
}

std::vector<double> SamplerRun::scalar_values(const lh_levels& levels, uint32_t step, uint32_t stage) const {
  std::vector<double> numbers(scalars_.size(), std::numeric_limits<double>::quiet_NaN());
  if (numbers.empty()) return numbers;
  Call call(*sampler_.host, fmt::format("sampler '{}', scalar_values", sampler_.descriptor->id));
  call.run([&] { sampler_.descriptor->scalar_values(&levels, step, stage, numbers.data()); });
  for (size_t i = 0; i < numbers.size(); ++i)
    if (!std::isfinite(numbers[i]))
      call.wrong(fmt::format("gave {} = {} at step {}, stage {}", scalars_[i], numbers[i], step, stage));
  return numbers;
}

HostTensor SamplerRun::run(const HostTensor& start, const SamplerCalls& calls) {
  const lh_sampler& descriptor = *sampler_.descriptor;
  const lh_levels levels{sizeof(lh_levels), static_cast<uint32_t>(schedule_.steps()), alphas_.data(), sigmas_.data()};
  for (auto& [name, value] : carried_) value = HostTensor(value.desc);
  HostTensor x = scaled(schedule_.start(), start);
  for (uint32_t step = 0; step < levels.steps && calls.proceed(step, x); ++step) {
    SamplingLevel at = schedule_.level(step);
    for (uint32_t stage = 0; stage < descriptor.stages; ++stage) {
      if (stage > 0) {
        const double sigma = stage_sigma(levels, step, stage);
        if (sigma <= 0) break;
        at = schedule_.at_sigma(sigma);
      }
      const HostTensor said = calls.model(scaled(at.input_scale, x), at.for_model(), step);
      Program& program = *stages_[stage];
      const std::vector<double> numbers = scalar_values(levels, step, stage);
      for (const auto& [name, value] : program.graph().inputs) {
        const auto number = std::ranges::find(scalars_, name);
        if (number != scalars_.end())
          program.set_input(name, scalar(numbers[static_cast<size_t>(number - scalars_.begin())]));
        else if (const auto carried = carried_.find(name); carried != carried_.end())
          program.set_input(name, carried->second);
        else
          program.set_input(name, name == "noise" ? calls.noise(step) : input(name, x, said, at));
      }
      program.run();
      x = program.output("x");
      for (auto& [name, value] : carried_)
        if (program.graph().outputs.contains(name)) value = program.output(name);
    }
  }
  return x;
}

}  // namespace lh
