// The loss of images that are not trained on: a forward pass for each batch shape, in the memory of the training steps,
// without dropout. Nothing that is trained is changed by it.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <vector>

#include "encode/step_shapes.h"
#include "train/step.h"

namespace lh {

class ValidationSteps {
 public:
  // For one sample at a time. encoder_sizes: where text encoders are part of the step.
  ValidationSteps(Device& device, const Model& model, const SelectAdapter& select, const std::set<StepShape>& shapes,
                  const StepOptions& options, const Sizes& encoder_sizes);
  std::vector<PlannedGraph> graphs() const;
  // The arena may be shared with programs that do not run at the same time.
  void bind(std::byte* arena, const Weights& weights, const Adapters& adapters);
  double loss(const StepShape& shape, const StepInputs& inputs);

 private:
  struct Step {
    Graph graph;
    Plan plan;
    std::unique_ptr<Program> program;
  };
  Device& device_;
  std::map<StepShape, Step> steps_;
};

}  // namespace lh
