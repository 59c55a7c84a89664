// One training step of one batch shape, ready to run: graph, plan and, once memory is there, program.
#pragma once

#include <memory>

#include "run/weights.h"
#include "train/adapters.h"
#include "train/compile.h"

namespace lh {

// What a step computes from: everything on the host, image tensors [B, H, W, C].
struct StepInputs {
  HostTensor latents, target;  // noisy latents and what the model should say
  HostTensor text, pooled;
  HostTensor timestep;  // f32 [B]
  HostTensor guidance;  // f32 [B]; empty for models without
  int32_t step = 0;     // counter for dropout
  float loss_scale = 1;
};

class TrainStep {
 public:
  TrainStep(TrainGraph graph, bool gradients_outside);

  const TrainGraph& train_graph() const { return train_; }
  int64_t arena_bytes() const { return plan_.bytes; }
  const Plan& plan() const { return plan_; }

  // Binds memory; the arena may be shared with other steps.
  void bind(Device& device, std::byte* arena, const Weights& weights, const Adapters& adapters);
  Program& program() { return *program_; }
  // Forward and backward. Gradients are then in the adapters' "g" section (outside) or in outputs "grad.<name>".
  void run(const StepInputs& inputs, const Program::Probe& probe = {});
  double loss() const;

 private:
  TrainGraph train_;
  bool gradients_outside_;
  Plan plan_;
  std::unique_ptr<Program> program_;
};

// Finds the op that first gives a NaN or infinity when the step is run again; empty when there is none.
std::string find_non_finite(Device& device, TrainStep& step, const StepInputs& inputs);

}  // namespace lh
