// One training step of one batch shape, ready to run: graph, plan and, once memory is there, program.
#pragma once

#include <memory>

#include "compile/adapters.h"
#include "compile/compile.h"
#include "encode/denoiser_inputs.h"
#include "run/offloadable.h"
#include "run/weights.h"

namespace lh {

// What a step computes from, by name, on the host: the noisy `latents` and their `target` [B, H, W, C], `loss_weight`
// [B], whatever the denoiser asks for besides, and token ids where text encoders are trained. More than the graph asks
// for may be there.
struct StepInputs {
  NamedTensors tensors;
  int32_t step = 0;  // counter for dropout, the input `step`
};

// Memory of a step that outlives it.
struct StepMemory {
  std::byte* arena;           // arena_bytes(); steps that do not run at the same time may share it
  std::byte* inputs;          // input_bytes(), laid out as TrainStep::write does
  void* loss_scale;           // f32 [1]: the gradients are multiplied by it
  std::byte* host = nullptr;  // host_bytes() of host memory that copies can use, shared as the arena is
};

class TrainStep {
 public:
  explicit TrainStep(TrainGraph graph);

  const TrainGraph& train_graph() const { return train_; }
  int64_t arena_bytes() const { return plan_.bytes; }
  int64_t input_bytes() const { return input_bytes_; }
  int64_t host_bytes() const { return offloaded_bytes(train_.graph); }
  const Plan& plan() const { return plan_; }

  void bind(Device& device, const StepMemory& memory, const Weights& weights, const Adapters& adapters);
  Program& program() { return *program_; }
  // Gradients of what other steps train and this one does not become 0; in front of each of its runs.
  void clear_absent(Device& device) const;
  // The inputs in their storage types, as they have to stand in StepMemory::inputs.
  void write(const StepInputs& inputs, std::byte* staging) const;
  // Forward and backward pass; the gradients are then in the adapters' "g" section, times the loss scale.
  void run(const StepInputs& inputs, const Program::Probe& probe = {});
  double loss() const;
  // For each trained tensor the number of the node behind which its gradient is there.
  std::vector<size_t> gradient_nodes(const Adapters& adapters) const;

 private:
  const HostTensor* given(const std::string& name, const StepInputs& inputs) const;
  TrainGraph train_;
  Plan plan_;
  std::map<std::string, int64_t> input_offsets_;
  int64_t input_bytes_ = 0;
  std::unique_ptr<Program> program_;
  std::vector<lk_tensor> absent_;  // such gradients
};

// The op that first gives a NaN or infinity when the step is run again.
struct FirstNonFinite {
  std::string op;                    // empty: there is none
  std::vector<std::string> weights;  // that it reads
};
FirstNonFinite find_non_finite(Device& device, TrainStep& step, const StepInputs& inputs);

}  // namespace lh
