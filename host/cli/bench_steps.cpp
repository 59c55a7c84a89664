#include "cli/bench_steps.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "core/rows.h"
#include "encode/denoiser_inputs.h"
#include "io/synthetic.h"

namespace lh {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

StepInputs step_inputs(const Model& model, const Graph& graph, const Sizes& sizes, const Tokens& tokens) {
  const DenoiserInputs table(model.recipe());
  const NamedTensors conditioning = tokens.empty() ? table.pattern(graph) : NamedTensors{};
  const auto side = [&](const char* name) {
    return static_cast<float>(sizes.at(name) * model.recipe().latents.downscale);
  };
  const float h = side("height"), w = side("width");
  const auto batch = static_cast<size_t>(sizes.at("batch"));
  const InputRow row{
      tokens.empty() ? &conditioning : nullptr, {0.5, 0.5, 0.5f}, 1, {h, w, 0, 0, h, w}, table.pattern_images(sizes)};
  StepInputs inputs{table.batch(std::vector<InputRow>(batch, row), sizes)};
  for (const auto& [name, ids] : tokens) inputs.tensors[name] = stack_rows(std::vector<const HostTensor*>(batch, &ids));
  for (const char* name : {"latents", "target", "loss_weight", "loss_delta"})
    if (const auto it = graph.inputs.find(name); it != graph.inputs.end())
      inputs.tensors[name] = made_up(graph.desc(it->second).shape);
  return inputs;
}

Times time_steps(StepRunner& runner, int64_t repeats, const std::function<void()>& enqueue, StepResult& result) {
  std::vector<double> seconds;
  double last = 0;
  enqueue();
  for (int64_t i = 0; i < repeats; ++i) {
    enqueue();
    result = runner.collect();
    const double t = now();
    if (i > 0) seconds.push_back(t - last);
    last = t;
  }
  runner.collect();
  std::ranges::sort(seconds);
  return {seconds.front(), seconds[seconds.size() / 2], seconds.back(), static_cast<int64_t>(seconds.size())};
}

}  // namespace lh
