// Training steps that are timed.
#pragma once

#include <cstdint>
#include <functional>

#include "encode/text_encoding.h"
#include "plugin/model.h"
#include "train/step_runner.h"

namespace lh {

double now();  // seconds since some moment

struct Times {
  double least = 0, median = 0, most = 0;  // seconds
  int64_t count = 0;
};

// Inputs of a step as training makes them, from made-up images and prompts at half noise. Where text encoders are part
// of the step, `tokens` are what they are given for a sample.
StepInputs step_inputs(const Model& model, const Graph& graph, const Sizes& sizes, const Tokens& tokens);

// One step is always waiting, as in training. `enqueue` hands one over; the last one's result goes to `result`.
Times time_steps(StepRunner& runner, int64_t repeats, const std::function<void()>& enqueue, StepResult& result);

}  // namespace lh
