// What training needs of the device, known before a byte is taken: a compiled step for each batch shape, the trained
// tensors, the optimizer's updates, and how much memory they take.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "compile/norm_limit.h"
#include "data/sample.h"
#include "encode/step_shapes.h"
#include "encode/vae.h"
#include "run/ema.h"
#include "run/groups.h"
#include "run/update.h"
#include "train/step.h"

namespace lh {

// Device memory of a run while it trains, in bytes.
struct MemoryReport {
  int64_t weights = 0;      // of the denoiser, and of the VAE decoder where samples are made
  int64_t adapters = 0;     // LoRA tensors, gradients, optimizer states that are here, average of the weights
  int64_t activations = 0;  // one arena for everything that runs
  int64_t workspace = 0;    // of single operations
  int64_t small = 0;        // constants, inputs, scalars
  int64_t streamed = 0;     // weights in host memory instead: not of the device
  int64_t offloaded = 0;    // activations likewise, between the passes
  int64_t states = 0;       // optimizer states likewise, between the updates
  int64_t on_host() const { return streamed + offloaded + states; }
  int64_t total() const { return weights + adapters + activations + workspace + small; }
};

// The message of a step starts with the learning rate of each group (float32), so many bytes apart; its inputs follow.
inline constexpr int64_t rate_spacing = 64;

// Scalars on the device that a training step reads and writes (float32), at these offsets.
// The counts of updates of the weights and of their average lie side by side: one launch counts both.
// OWN_LOSS is this process's where several train together, DISTRUST is not 0 where what came from others is of no use.
enum Scalar : int64_t {
  STEP = 0,
  AVERAGED = 4,
  NORM = 256,
  LOSS_SCALE = 512,
  LOSS = 768,
  OWN_LOSS = 772,
  DISTRUST = 776,
  SCALARS = 1024
};

// What the updates of a run need with the states at one place: the most that one of its optimizers does, in bytes.
struct UpdateNeeds {
  int64_t here = 0, on_host = 0;  // states
  int64_t small = 0, arena = 0, workspace = 0;
};

struct PlanOptions {
  StepOptions step;
  StatePlace states = StatePlace::device;
  int64_t micro_batches = 1;              // for each update, of a process
  Sizes encoder_sizes = {};               // "<encoder>.length", where text encoders are part of the step
  bool accumulate = false;                // gradients of several micro-batches are added up
  int64_t processes = 1, rank = 0;        // that train together; this one's number
  bool shares_base = false;               // what the steps fetch is kept in parts by them
  std::optional<double> norm_limit = {};  // of each module's change
  WeightShare share(int64_t of_rank) const {
    if (!shares_base) return {};
    return {.rank = static_cast<int>(of_rank), .size = static_cast<int>(processes)};
  }
  WeightShare share() const { return share(rank); }
};

struct TrainPlan {
  // settings: of the run as it begins.
  TrainPlan(Device& device, const Model& model, const Registry& registry, const TrainSection& settings,
            const AdapterSelection& selection, const std::set<StepShape>& shapes, const PlanOptions& options);
  // Makes room for a program that runs between the steps, in the same arena. All in bytes.
  void also(int64_t arena, int64_t workspace, int64_t constants);
  // For what is no reason to stream more: steps, which are planned for.
  void also_adapted(int64_t arena, int64_t workspace, int64_t constants);
  // Samples are decoded in the same arena, by weights of their own, in tiles that are made to fit beside the rest.
  void also_decoding(const VaeMemory& decoding);
  // `memory` without that, but for the arena: in other budgets other tiles are decoded.
  MemoryReport memory_beside_decoding() const;
  // Makes room for the sum of the gradients of several micro-batches.
  void accumulate();
  // Makes room for the optimizer that these settings ask for, in the place of the one in force. Throws
  // lh::Error(Code::config) for settings that no optimizer takes.
  void also(const TrainSection& settings);
  // The largest arena of what is no training step, no update, and not adapted to the room.
  int64_t other_arena() const { return other_arena_; }
  // The optimizer of these settings; one that is planned already where there is one.
  std::shared_ptr<const OptimizerSetup> setup_for(const TrainSection& settings);
  // Why it cannot take over in the memory that the run has taken; empty: it can. limit: of the whole run, in bytes.
  std::string obstacle(const OptimizerSetup& setup, int64_t limit) const;

  std::map<StepShape, std::unique_ptr<TrainStep>> steps;
  std::unique_ptr<Adapters> adapters;               // shapes only until memory is taken
  std::shared_ptr<const OptimizerSetup> optimizer;  // in force
  std::unique_ptr<NormLimit> norm_limit;            // where there is one
  std::unique_ptr<Ema> ema;                         // likewise
  MemoryReport memory;
  int64_t update_states() const { return update_.here + update_.on_host; }
  StatePlace states_at() const { return states_; }
  UpdateNeeds update_needs(StatePlace place) const;  // of all optimizers that were planned for
  int64_t rates_bytes() const { return placed_bytes(rate_slots_ * rate_spacing); }
  int64_t message_bytes() const;  // learning rates and the inputs of the largest step
  // Of the step with the most trained modules, which has every weight and adapter of the run, and of several the one
  // with the most activations.
  const StepShape& largest_shape() const;
  const TrainGraph& largest() const { return steps.at(largest_shape())->train_graph(); }

 private:
  void make_room(const OptimizerSetup& setup);
  UpdateNeeds needs_of(const UpdatePlan& update) const;
  Device& device_;
  const Registry& registry_;
  std::vector<std::shared_ptr<const OptimizerSetup>> setups_;
  int64_t other_arena_ = 0;
  VaeMemory decoding_;
  int64_t workspace_beside_decoding_ = 0;
  StatePlace states_;
  int64_t rate_slots_ = 0;
  UpdateNeeds update_;
};

}  // namespace lh
