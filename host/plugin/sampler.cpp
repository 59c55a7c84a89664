#include "plugin/sampler.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "plugin/services.h"

namespace lh {
namespace {

bool contains(const std::vector<std::string>& list, std::string_view item) {
  return std::ranges::find(list, item) != list.end();
}

// What a stage may ask for that is like the latents, beside its carried tensors.
std::vector<std::string> given_tensors(int32_t space) {
  std::vector<std::string> names{"x", "noise"};
  for (const std::string prefix : {"", "uncond_"}) {
    for (const char* name : {"model_out", "denoised", "epsilon"}) names.push_back(prefix + name);
    if (space == LH_SPACE_SIGMA) names.push_back(prefix + "derivative");
  }
  return names;
}

}  // namespace

bool asks_model(const Graph& stage, const Sampler& sampler) {
  return std::ranges::any_of(stage.inputs, [&](const auto& input) {
    const std::string& name = input.first;
    return name != "x" && name != "noise" && !contains(sampler.carried(), name) && !contains(sampler.scalars(), name);
  });
}

Sampler::Sampler(const Offered<lh_sampler>& offered, const GivenOptions& params)
    : part_("sampler", offered, params, "sample.sampler_params") {
  Call stages = part_.call("stages");
  stages_ = stages.run([&] { return part_->stages(part_.self()); });
  stages.check();
  if (stages_ < 1 || stages_ > 64) stages.wrong(fmt::format("gave {}, expected 1 to 64", stages_));
  carried_ = names(part_->carried, "carried");
  scalars_ = names(part_->scalar, "scalar");
}

std::vector<std::string> Sampler::names(const char* (*list)(void*, uint32_t), const std::string& function) const {
  constexpr uint32_t limit = 256;
  std::vector<std::string> found;
  for (uint32_t i = 0;; ++i) {
    Call call = part_.call(function);
    const char* name = call.run([&] { return list(part_.self(), i); });
    call.check();
    if (name == nullptr) return found;
    if (i == limit) call.wrong(fmt::format("the list does not end: number {} is still there", i));
    if (contains(found, name)) call.wrong(fmt::format("lists '{}' twice", name));
    if (contains(given_tensors(space()), name) || contains(carried_, name) || std::string_view(name) == "time")
      call.wrong(fmt::format("lists '{}', which is another input's name", name));
    found.emplace_back(name);
  }
}

Graph Sampler::build(uint32_t stage, const Shape& latents) const {
  Graph graph(DType::f32);
  const GraphHandle handle = open_graph(part_.host(), graph);
  const lh_desc desc = to_abi({DType::f32, latents});
  Call call = part_.call(fmt::format("build of stage {}", stage), handle.get());
  call.check(call.run([&] { return part_->build_stage(part_.self(), handle.get(), stage, &desc); }));
  check_inputs(call, graph, latents);
  check_outputs(call, graph, latents);
  return graph;
}

void Sampler::check_inputs(const Call& call, const Graph& graph, const Shape& latents) const {
  std::vector<std::string> tensors = given_tensors(space());
  tensors.insert(tensors.end(), carried_.begin(), carried_.end());
  for (const auto& [name, value] : graph.inputs) {
    const bool number = name == "time" || contains(scalars_, name);
    if (!number && !contains(tensors, name))
      call.wrong(fmt::format("asks for the input '{}'; known: {}, time, and its scalars: {}", name,
                             fmt::join(tensors, ", "), fmt::join(scalars_, ", ")));
    const Desc expected{DType::f32, number ? Shape{1} : latents};
    if (graph.desc(value) != expected)
      call.wrong(fmt::format("input '{}' is {}, expected {}", name, graph.desc(value).text(), expected.text()));
  }
}

void Sampler::check_outputs(const Call& call, const Graph& graph, const Shape& latents) const {
  if (!graph.outputs.contains("x")) call.wrong("needs an output 'x' like the latents");
  const Desc expected{DType::f32, latents};
  for (const auto& [name, value] : graph.outputs) {
    if (name != "x" && !contains(carried_, name))
      call.wrong(fmt::format("gives '{}', which is neither x nor one of its carried tensors: {}", name,
                             fmt::join(carried_, ", ")));
    if (graph.desc(value) != expected)
      call.wrong(fmt::format("gives '{}' as {}, expected {}", name, graph.desc(value).text(), expected.text()));
  }
}

double Sampler::stage_sigma(const lh_levels& levels, uint32_t step, uint32_t stage) const {
  if (part_->stage_sigma == nullptr) return levels.sigma[step];
  Call call = part_.call("stage_sigma");
  double sigma = std::numeric_limits<double>::quiet_NaN();
  call.check(call.run([&] { return part_->stage_sigma(part_.self(), &levels, step, stage, &sigma); }));
  if (!std::isfinite(sigma) || (sigma < 0 && sigma != LH_STAGE_WITHOUT_MODEL))
    call.wrong(fmt::format("gave {} at step {}, stage {}", sigma, step, stage));
  return sigma;
}

std::vector<double> Sampler::scalar_values(const lh_levels& levels, uint32_t step, uint32_t stage) const {
  std::vector<double> numbers(scalars_.size(), std::numeric_limits<double>::quiet_NaN());
  if (numbers.empty()) return numbers;
  Call call = part_.call("scalar_values");
  call.check(call.run([&] { return part_->scalar_values(part_.self(), &levels, step, stage, numbers.data()); }));
  for (size_t i = 0; i < numbers.size(); ++i)
    if (!std::isfinite(numbers[i]))
      call.wrong(fmt::format("gave {} = {} at step {}, stage {}", scalars_[i], numbers[i], step, stage));
  return numbers;
}

}  // namespace lh
