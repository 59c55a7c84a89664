// Chooses by predicted time how a training step fits into a memory budget: how much of what the blocks leave for their
// backward passes is made again, how much of it waits in host memory, of how many blocks the weights stay there, and
// whether the optimizer's states do. Nothing is taken and nothing runs.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "config/config.h"
#include "passes/stream.h"
#include "run/predict.h"
#include "train/train_plan.h"
#include "world/world.h"

namespace lh {

struct MemoryChoice {
  double recompute = 0;  // shares, as ActivationChoice has them
  int64_t streamed = 0;  // blocks
  double offload = 0;
  bool states = false;  // of the optimizer, in host memory
  StatePlace states_at() const { return states ? StatePlace::host : StatePlace::device; }
  ActivationChoice activations() const { return {recompute, offload}; }
  auto operator<=>(const MemoryChoice&) const = default;
};

struct PlannedMemory {
  MemoryChoice choice;
  MemoryReport memory;
  PredictedTime time;           // of a micro-batch of the largest shape, without the optimizer's operations
  double states_seconds = 0;    // of these, for states that come from host memory and go back
  KeptActivations activations;  // of the same; empty where nothing is made again
};

// What the user left to be chosen.
struct MemoryWishes {
  MemoryWishes(const Config& config, int64_t blocks);
  double least_share = 0, most_share = 1;         // of recomputation
  double least_offload = 0, most_offload = 1;     // likewise
  int64_t least = 0, most = 0;                    // streamed blocks
  bool least_states = false, most_states = true;  // in host memory
  MemoryChoice least_kept() const {
    return {.recompute = least_share, .offload = least_offload, .states = least_states};
  }
};

// Host memory that each of so many processes of this machine may take for all that is kept there: as memory.host says,
// or what is free less a margin; any amount where the device stands for another machine's.
int64_t host_memory_for(const Device& device, const Config& config, int processes);

// [together] What plans are made by is the same on all processes then: the least memory that one of them has, and the
// rates of the first.
void agree_on_plan(World& world, int64_t& limit, Rates& rates);

// What it takes to decode the samples of a run in such a room: in the largest tiles that fit, or else the smallest.
using DecodingOf = std::function<VaeMemory(const MemoryRoom& room)>;

class MemoryPlanner {
 public:
  // base: the whole run, made with `options`, with nothing streamed. model and selection have to stay. host_memory:
  // that what is kept there may take. decoding: of samples, where some are made.
  MemoryPlanner(const TrainPlan& base, const Model& model, const AdapterSelection& selection,
                const PlanOptions& options, const Config& config, const Rates& rates, int64_t host_memory,
                DecodingOf decoding = {});
  // The same run with steps of another shape, for a look at what that would take.
  MemoryPlanner otherwise(const StepShape& shape) const;
  int64_t host_memory() const { return host_memory_; }
  // Of the states that could be in host memory, as far as they are on the device.
  int64_t states_bytes() const { return updates_.at(StatePlace::device).here; }
  int64_t blocks() const { return static_cast<int64_t>(blocks_.size()); }
  const MemoryWishes& wishes() const { return wishes_; }
  const StepShape& shape() const { return shape_; }
  const std::set<StepShape>& shapes() const { return shapes_; }  // of the run, shape() being the largest
  Streaming streaming(int64_t count) const { return streaming(count, options_.share()); }
  // Where processes keep different weights, of the one that takes most.
  PlannedMemory at(const MemoryChoice& choice);
  // The fastest that takes no more than `budget` bytes of the device, with samples decoded in the largest tiles that
  // fit beside it; nothing where none does.
  std::optional<PlannedMemory> best(int64_t budget);
  // The one that takes least of the device, of whose bytes best() makes a plan, where host memory is not short.
  PlannedMemory least();
  const TrainGraph& step(const ActivationChoice& choice);

 private:
  Streaming streaming(int64_t count, const WeightShare& share) const;
  // The fastest, with the smallest tiles.
  std::optional<PlannedMemory> fastest(int64_t budget);
  void decode_in(PlannedMemory& planned, int64_t budget) const;
  // `placed`: it is within the budget.
  PlannedMemory plan_for(const MemoryChoice& choice, const WeightShare& share, int64_t budget, bool& placed);
  bool fits(const PlannedMemory& planned, int64_t budget) const;
  // What the choice takes where that is within the budget; else no more than it takes, and more than the budget.
  const PlannedMemory& within(const MemoryChoice& choice, int64_t budget);
  // With the fewest streamed blocks that fit; nothing where none do, or none that are faster than so many seconds.
  std::optional<PlannedMemory> fewest_streamed(const MemoryChoice& choice, int64_t budget, double seconds);
  // The fastest with the states there.
  std::optional<PlannedMemory> best_with(bool states_on_host, int64_t budget);
  // The best with so much offloaded, where that is faster than what is known.
  void improve(std::optional<PlannedMemory>& best, double offload, bool states, int64_t budget);
  // Likewise, with no more made again or streamed than in what is known; whether it was.
  bool improve_offloaded(PlannedMemory& best, double offload, int64_t budget);
  void use_less_host_memory(PlannedMemory& planned, int64_t budget);
  const Model& model_;
  const AdapterSelection& selection_;
  PlanOptions options_;
  StepShape shape_;
  std::set<StepShape> shapes_;
  MemoryReport base_;  // with the states where base_states_ says, without decoding
  StatePlace base_states_;
  std::map<StatePlace, UpdateNeeds> updates_;
  double state_seconds_ = 0;  // that they take in a micro-batch, in host memory
  int64_t other_arena_;
  std::vector<StreamableBlock> blocks_;
  MemoryWishes wishes_;
  Rates rates_;
  int64_t host_memory_;
  DecodingOf decoding_;
  VaeMemory least_decoding_;
  std::optional<StepBeforeRecompute> all_kept_;
  std::map<ActivationChoice, TrainGraph> steps_;
  std::map<MemoryChoice, PlannedMemory> planned_, bounds_;
};

}  // namespace lh
