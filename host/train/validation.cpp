#include "train/validation.h"

namespace lh {

ValidationSteps::ValidationSteps(Device& device, const Model& model, const SelectAdapter& select,
                                 const std::set<StepShape>& shapes, const StepOptions& options,
                                 const Sizes& encoder_sizes)
    : device_(device) {
  for (const StepShape& shape : shapes) {
    Sizes sizes = shape.sizes(model.recipe().latents);
    sizes.insert(encoder_sizes.begin(), encoder_sizes.end());
    Graph graph = build_loss_graph(model, sizes, select, options);
    Plan plan = plan_memory(graph, parameters(graph));
    steps_.emplace(shape, Step{std::move(graph), std::move(plan), nullptr});
  }
}

std::vector<PlannedGraph> ValidationSteps::graphs() const {
  std::vector<PlannedGraph> all;
  for (const auto& [shape, step] : steps_) all.push_back({&step.graph, &step.plan});
  return all;
}

void ValidationSteps::bind(std::byte* arena, const Weights& weights, const Adapters& adapters) {
  for (auto& [shape, step] : steps_) {
    Externals externals = weights.bind(step.graph);
    adapters.bind(step.graph, externals);
    step.program = std::make_unique<Program>(device_, step.graph, step.plan, arena, externals);
  }
}

double ValidationSteps::loss(const StepShape& shape, const StepInputs& inputs) {
  Program& program = *steps_.at(shape).program;
  for (const auto& [name, value] : program.graph().inputs) program.set_input(name, inputs.tensors.at(name));
  program.run();
  return static_cast<double>(program.output("loss").as<float>()[0]);
}

}  // namespace lh
