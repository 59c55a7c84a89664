// One training step of one batch shape, ready to run: graph, plan and, once memory is there, program.
#pragma once

#include <memory>

#include "compile/adapters.h"
#include "compile/compile.h"
#include "run/weights.h"

namespace lh {

// What a step computes from: everything on the host, image tensors [B, H, W, C].
struct StepInputs {
  HostTensor latents, target;  // noisy latents and what the model should say
  HostTensor text, pooled;
  std::map<std::string, HostTensor> token_ids;  // "<encoder>.input_ids" i32 [B, L], where text encoders are trained
  HostTensor timestep;                          // f32 [B]
  HostTensor guidance;                          // f32 [B]; for models that take it
  HostTensor size_ids;                          // f32 [B, 6]; for models that take them
  HostTensor loss_weight;                       // f32 [B]; for weighted steps
  int32_t step = 0;                             // counter for dropout
};

// Memory of a step that outlives it.
struct StepMemory {
  std::byte* arena;   // arena_bytes(); steps that do not run at the same time may share it
  std::byte* inputs;  // input_bytes(), laid out as TrainStep::write does
  void* loss_scale;   // f32 [1]: the gradients are multiplied by it
};

class TrainStep {
 public:
  explicit TrainStep(TrainGraph graph);

  const TrainGraph& train_graph() const { return train_; }
  int64_t arena_bytes() const { return plan_.bytes; }
  int64_t input_bytes() const { return input_bytes_; }
  const Plan& plan() const { return plan_; }

  void bind(Device& device, const StepMemory& memory, const Weights& weights, const Adapters& adapters);
  Program& program() { return *program_; }
  // The inputs in their storage types, as they have to stand in StepMemory::inputs.
  void write(const StepInputs& inputs, std::byte* staging) const;
  // Forward and backward pass; the gradients are then in the adapters' "g" section, times the loss scale.
  void run(const StepInputs& inputs, const Program::Probe& probe = {});
  double loss() const;

 private:
  const HostTensor* given(const std::string& name, const StepInputs& inputs) const;
  TrainGraph train_;
  Plan plan_;
  std::map<std::string, int64_t> input_offsets_;
  int64_t input_bytes_ = 0;
  std::unique_ptr<Program> program_;
};

// Finds the op that first gives a NaN or infinity when the step is run again; empty when there is none.
std::string find_non_finite(Device& device, TrainStep& step, const StepInputs& inputs);

}  // namespace lh
