// Training steps that are timed.
#pragma once

#include <cstdint>
#include <functional>

#include "cli/step_without_data.h"
#include "train/step_runner.h"

namespace lh {

struct Times {
  double least = 0, median = 0, most = 0;  // seconds
  int64_t count = 0;
};

// Inputs of a step as training makes them, from made-up images and prompts at half noise. Where text encoders are part
// of the step, what they are given for a sample.
StepInputs step_inputs(StepWithoutData& bare, const Graph& graph);

// Trained tensors and states as they are before the first step. hollow: the checkpoint has no contents.
void begin_training(StepRunner& runner, TrainPlan& plan, StepWithoutData& bare, const Weights& weights, bool hollow);

// Hands one step over at each call, with the same inputs; all of these have to stay.
std::function<void()> steps_of(StepRunner& runner, TrainPlan& plan, const Config& config, const StepInputs& inputs);

// One step is always waiting, as in training. `enqueue` hands one over; the last one's result goes to `result`.
Times time_steps(StepRunner& runner, int64_t repeats, const std::function<void()>& enqueue, StepResult& result);

}  // namespace lh
