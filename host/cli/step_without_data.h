// A training step of a model alone, for commands that have no dataset: its weights from a file, or made up from a key
// list.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "cli/options.h"
#include "encode/text_encoding.h"
#include "plugin/adapter.h"
#include "plugin/model.h"
#include "run/known_rates.h"
#include "train/memory_planner.h"

namespace lh {

// A checkpoint without contents, made from a key list; removed at the end.
class HollowCheckpoint {
 public:
  explicit HollowCheckpoint(const std::filesystem::path& key_list);
  ~HollowCheckpoint();
  HollowCheckpoint(const HollowCheckpoint&) = delete;
  HollowCheckpoint& operator=(const HollowCheckpoint&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

struct StepWithoutData {
  // options.input: the key list, if any. world: of the processes that do the step together.
  StepWithoutData(const Options& options, const std::string& device_name, World& world = World::alone());
  TrainPlan plan(const MemoryChoice& choice);
  MemoryPlanner planner(const TrainPlan& base);
  // Of the device, unless another's are given.
  const KnownRates& rates();
  void use(const KnownRates& rates) { rates_ = rates; }
  // As memory.budget and memory.stream ask for; without either nothing is streamed, and recomputed what the
  // configuration wants at least. Throws lh::Error where the budget is too small.
  TrainPlan fitted();
  bool shares_base() const { return config.memory.shard_base && world_.size() > 1; }
  WeightShare share(int rank) const {
    return shares_base() ? WeightShare{.rank = rank, .size = world_.size()} : WeightShare{};
  }
  // What text encoders that are part of the step are given for a sample; else empty.
  Tokens tokens();

  std::optional<HollowCheckpoint> hollow;
  Config config;
  Device device;
  Model model;
  DType compute;
  AdapterSelection selection;
  StepShape shape;

 private:
  PlanOptions options_for(const MemoryChoice& choice);
  Sizes encoder_sizes();
  const Registry& registry_;
  World& world_;
  Streaming streaming_;
  std::optional<KnownRates> rates_;
};

}  // namespace lh
