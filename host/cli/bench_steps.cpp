#include "cli/bench_steps.h"

#include <algorithm>
#include <vector>

#include "compile/slider.h"
#include "core/clock.h"
#include "core/rows.h"
#include "encode/denoiser_inputs.h"
#include "io/synthetic.h"
#include "run/lr_schedule.h"

namespace lh {
namespace {

// Weights of one number: their norm is all that matters.
BaseWeight even_weights(const Device& device, const Checkpoint& checkpoint) {
  constexpr double value = 0.02;
  return {.read =
              [&checkpoint](const std::string& weight) {
                HostTensor made(Desc{DType::f32, checkpoint.weights().at(weight).shape});
                std::ranges::fill(made.as<float>(), static_cast<float>(value));
                return made;
              },
          .put =
              [&device](const std::string& weight, const lk_tensor& out) {
                const lk_fill_params params{.y = out, .value = value};
                device.check(lk_fill(device.context(), &params), weight);
              }};
}

}  // namespace

StepInputs step_inputs(StepWithoutData& bare, const Graph& graph) {
  const Recipe& recipe = bare.model.recipe();
  const Sizes sizes = bare.shape.sizes(recipe.latents);
  const Tokens tokens = bare.tokens();
  const DenoiserInputs table(recipe);
  const NamedTensors conditioning = tokens.empty() ? table.pattern(graph) : NamedTensors{};
  const auto side = [&](const char* name) { return static_cast<float>(sizes.at(name) * recipe.latents.downscale); };
  const float h = side("height"), w = side("width");
  const auto batch = static_cast<size_t>(sizes.at("batch"));
  const InputRow row{
      tokens.empty() ? &conditioning : nullptr, {0.5, 0.5, 0.5f}, 1, {h, w, 0, 0, h, w}, table.pattern_images(sizes)};
  StepInputs inputs{table.batch(std::vector<InputRow>(batch, row), sizes)};
  for (const auto& [name, ids] : tokens) inputs.tensors[name] = stack_rows(std::vector<const HostTensor*>(batch, &ids));
  for (const char* name : {"latents", "target", "loss_weight", "loss_delta", "sound", "sound_target", "sound_weight"})
    if (const auto it = graph.inputs.find(name); it != graph.inputs.end())
      inputs.tensors[name] = made_up(graph.desc(it->second).shape);
  if (const auto heard = inputs.tensors.find("sound_weight"); heard != inputs.tensors.end())
    std::ranges::fill(heard->second.as<float>(), 1.0f);  // that the loss is one
  for (const char* front :
       {positive_front, negative_front, anchor_front})  // a slider's other prompts are like this one
    for (const auto& [name, tensor] : NamedTensors(inputs.tensors))
      if (graph.inputs.contains(front + name)) inputs.tensors[front + name] = tensor;
  return inputs;
}

void begin_training(StepRunner& runner, TrainPlan& plan, StepWithoutData& bare, const Weights& weights, bool hollow) {
  const Checkpoint& checkpoint = bare.model.checkpoint();
  plan.adapters->initialise(1, hollow ? even_weights(bare.device, checkpoint)
                                      : base_weights(bare.device, checkpoint, weights, plan.largest().graph));
  runner.initialise();
  runner.set_state(0, {1024, 0});
}

std::function<void()> steps_of(StepRunner& runner, TrainPlan& plan, const Config& config, const StepInputs& inputs) {
  return [&] {
    runner.enqueue(learning_rates(config.train, plan.optimizer->rates(config.train), 0), [&](int64_t) {
      return MicroBatch{plan.steps.begin()->second.get(), inputs};
    });
  };
}

Times time_steps(StepRunner& runner, int64_t repeats, const std::function<void()>& enqueue, StepResult& result) {
  std::vector<double> seconds;
  double last = 0;
  enqueue();
  for (int64_t i = 0; i < repeats; ++i) {
    enqueue();
    result = runner.collect();
    const double t = seconds_now();
    if (i > 0) seconds.push_back(t - last);
    last = t;
  }
  runner.collect();
  std::ranges::sort(seconds);
  return {seconds.front(), seconds[seconds.size() / 2], seconds.back(), static_cast<int64_t>(seconds.size())};
}

}  // namespace lh
