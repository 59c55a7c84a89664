#include "train/step.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/log.h"

namespace lh {

TrainStep::TrainStep(TrainGraph graph, bool gradients_outside)
    : train_(std::move(graph)),
      gradients_outside_(gradients_outside),
      plan_(plan_memory(train_.graph, external_values(train_.graph, gradients_outside))) {
  if (verbose("plan")) spdlog::info("plan: {}", print(train_.graph, plan_, 40));
}

void TrainStep::bind(Device& device, std::byte* arena, const Weights& weights, const Adapters& adapters) {
  Externals externals = weights.bind(train_.graph);
  adapters.bind(train_.graph, externals);
  if (gradients_outside_)
    for (const AdapterTensor& tensor : adapters.tensors())
      externals[train_.graph.outputs.at("grad." + tensor.name)] = adapters.at("g", tensor);
  program_ = std::make_unique<Program>(device, train_.graph, plan_, arena, externals);
}

void TrainStep::run(const StepInputs& inputs, const Program::Probe& probe) {
  program_->set_input("latents", inputs.latents);
  program_->set_input("target", inputs.target);
  program_->set_input("timestep", inputs.timestep);
  const Graph& graph = train_.graph;
  if (graph.inputs.contains("text")) program_->set_input("text", inputs.text);
  if (graph.inputs.contains("pooled")) program_->set_input("pooled", inputs.pooled);
  if (graph.inputs.contains("guidance")) program_->set_input("guidance", inputs.guidance);
  if (graph.inputs.contains("step"))
    program_->set_input("step", HostTensor::from_ints({1}, std::span(&inputs.step, 1)));
  program_->set_input("loss_scale", HostTensor::from_floats({1}, std::span(&inputs.loss_scale, 1)));
  program_->run(probe);
}

double TrainStep::loss() const { return program_->output("loss").as<float>()[0]; }

std::string find_non_finite(Device& device, TrainStep& step, const StepInputs& inputs) {
  std::string found;
  step.run(inputs, [&](const Node& node, std::span<const lk_tensor> outputs) {
    for (const lk_tensor& t : outputs) {
      if (!found.empty() || !is_float(static_cast<DType>(t.dtype)) || t.data == nullptr) continue;
      const int64_t count = lk_numel(&t);
      HostTensor raw(Desc{static_cast<DType>(t.dtype), {count}}), values(Desc{DType::f32, {count}});
      device.check(lk_download(device.context(), raw.data.data(), t.data, raw.desc.bytes()), "diagnosis");
      convert(raw.desc.dtype, raw.data.data(), DType::f32, values.data.data(), count);
      if (!std::ranges::all_of(values.as<float>(), [](float v) { return std::isfinite(v); }))
        found = step.train_graph().graph.describe(node);
    }
  });
  return found;
}

}  // namespace lh
