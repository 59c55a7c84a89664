// What training needs of the device, known before a byte is taken: a compiled step for each batch shape, the trained
// tensors, the optimizer's updates, and how much memory they take.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <vector>

#include "compile/norm_limit.h"
#include "data/dataset.h"
#include "plugin/optimizer.h"
#include "run/update.h"
#include "train/step.h"
#include "train/step_shapes.h"

namespace lh {

// Device memory of a run while it trains, in bytes.
struct MemoryReport {
  int64_t weights = 0;      // of the denoiser, and of the VAE decoder where samples are made
  int64_t adapters = 0;     // LoRA tensors, gradients, optimizer states
  int64_t activations = 0;  // one arena for everything that runs
  int64_t workspace = 0;    // of single operations
  int64_t small = 0;        // constants, inputs, scalars
  int64_t total() const { return weights + adapters + activations + workspace + small; }
};

// The message of a step starts with the learning rates (float32), at these offsets; its inputs follow.
enum Rate : int64_t { DENOISER_RATE = 0, TEXT_RATE = 64, RATES = plan_alignment };

// Scalars on the device that a training step reads and writes (float32), at these offsets.
enum Scalar : int64_t { STEP = 0, NORM = 256, LOSS_SCALE = 512, LOSS = 768, SCALARS = 1024 };

struct PlanOptions {
  StepOptions step;
  int64_t batch = 1;
  Sizes encoder_sizes = {};               // "<encoder>.length", where text encoders are part of the step
  bool accumulate = false;                // gradients of several micro-batches are added up
  std::optional<double> norm_limit = {};  // of each module's change
};

struct TrainPlan {
  TrainPlan(Device& device, const Model& model, const Optimizer& optimizer, const AdapterSelection& selection,
            const std::set<StepShape>& shapes, const PlanOptions& options);
  // Makes room for a program that runs between the steps, in the same arena. All in bytes.
  void also(int64_t arena, int64_t workspace, int64_t constants);

  std::map<StepShape, std::unique_ptr<TrainStep>> steps;
  std::unique_ptr<Adapters> adapters;     // shapes only until memory is taken
  std::vector<AdapterTensor> parts;       // what one update works on: a tensor, or all of a component as one
  std::vector<UpdatePlan> updates;        // one for each part
  std::unique_ptr<NormLimit> norm_limit;  // where there is one
  MemoryReport memory;
  int64_t message_bytes() const;      // learning rates and the inputs of the largest step
  const TrainGraph& largest() const;  // the step with the most activations
};

}  // namespace lh
