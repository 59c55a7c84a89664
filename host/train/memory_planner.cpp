#include "train/memory_planner.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>

#include "core/error.h"

namespace lh {

MemoryWishes::MemoryWishes(const Config& config, int64_t blocks) {
  const std::string& recompute = config.train.gradient_checkpointing;
  shares = recompute == "true"    ? std::vector<double>{1}
           : recompute == "false" ? std::vector<double>{0}
                                  : std::vector<double>{0, 0.25, 0.5, 0.75, 1};
  const std::string& stream = config.memory.stream;
  most = stream == "0" ? 0 : blocks;
  if (stream == "auto") return;
  int64_t number = 0;
  std::from_chars(stream.data(), stream.data() + stream.size(), number);
  least = std::min(blocks, stream.ends_with('%') ? (number * blocks + 99) / 100 : number);
}

int64_t host_memory_for(const Device& device) {
  std::ifstream file(device.stands_for_gpu() ? "" : "/proc/meminfo");
  for (std::string word; file >> word;)
    if (int64_t kib = 0; word == "MemAvailable:" && file >> kib) return kib << 10;
  return std::numeric_limits<int64_t>::max();  // a system that does not say
}

MemoryPlanner::MemoryPlanner(const TrainPlan& base, const Model& model, const AdapterSelection& selection,
                             const PlanOptions& options, const Config& config, const Rates& rates, int64_t host_memory)
    : model_(model),
      selection_(selection),
      options_(options),
      shape_(base.largest_shape()),
      base_(base.memory),
      other_arena_(base.other_arena()),
      blocks_(streamable_blocks(base.largest().graph, weight_names(base.largest().graph, model.checkpoint()))),
      wishes_(config, static_cast<int64_t>(blocks_.size())),
      rates_(rates),
      host_memory_(host_memory) {}

MemoryPlanner MemoryPlanner::otherwise(const StepShape& shape, int64_t batch) const {
  MemoryPlanner other = *this;
  other.shape_ = shape;
  other.options_.batch = batch;
  other.steps_.clear();
  other.planned_.clear();
  return other;
}

const TrainGraph& MemoryPlanner::step(double recompute) {
  if (const auto known = steps_.find(recompute); known != steps_.end()) return known->second;
  Sizes sizes = shape_.sizes(model_.recipe().latents, options_.batch);
  sizes.insert(options_.encoder_sizes.begin(), options_.encoder_sizes.end());
  StepOptions options = options_.step;
  options.recompute = recompute;
  return steps_.emplace(recompute, build_train_graph(model_, sizes, selection_, options)).first->second;
}

PlannedMemory MemoryPlanner::at(const MemoryChoice& choice) {
  if (const auto known = planned_.find(choice); known != planned_.end()) return known->second;
  Graph graph = step(choice.recompute).graph;
  const Streaming streaming = spread(blocks_, choice.streamed);
  stream(graph, streaming);
  const Plan plan = plan_memory(graph, external_to_step(graph));
  PlannedMemory planned{.choice = choice, .memory = base_, .time = predict(graph, plan, rates_)};
  const std::vector<std::string> names(streaming.weights.begin(), streaming.weights.end());
  planned.memory.streamed = streamed_bytes(graph, names);
  planned.memory.weights -= planned.memory.streamed;
  // What else runs in the arena fetches the same weights into it.
  planned.memory.activations = std::max(plan.bytes, other_arena_ + streaming.window);
  return planned_.emplace(choice, std::move(planned)).first->second;
}

bool MemoryPlanner::fits(const PlannedMemory& planned, int64_t budget) const {
  return planned.memory.total() <= budget && planned.memory.streamed <= host_memory_;
}

std::optional<PlannedMemory> MemoryPlanner::best(int64_t budget) {
  std::optional<PlannedMemory> best;
  for (const double share : wishes_.shares) {
    const auto with = [&](int64_t streamed) { return at({share, streamed}); };
    int64_t good = wishes_.least;
    if (!fits(with(good), budget)) {
      // More streamed blocks take less, once there is a window at all.
      int64_t bad = good;
      good = wishes_.most;
      if (good <= bad || !fits(with(good), budget)) continue;
      while (good - bad > 1) {
        const int64_t middle = bad + (good - bad) / 2;
        (fits(with(middle), budget) ? good : bad) = middle;
      }
    }
    const PlannedMemory found = with(good);
    if (!best || found.time.seconds < best->time.seconds) best = found;
    if (good == wishes_.least) break;  // recomputing more only takes longer
  }
  return best;
}

PlannedMemory MemoryPlanner::least() {
  const double share = wishes_.shares.back();
  const PlannedMemory few = at({share, wishes_.least}), many = at({share, wishes_.most});
  return many.memory.total() < few.memory.total() ? many : few;
}

}  // namespace lh
