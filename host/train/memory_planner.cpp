#include "train/memory_planner.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <functional>
#include <limits>

#include "core/bytes.h"
#include "core/error.h"
#include "run/offloadable.h"
#include "run/state_seconds.h"

namespace lh {

namespace {

// "35%"; 0 for "auto" and "0".
double share_in(const std::string& text) {
  int64_t percent = 0;
  if (text != "auto") std::from_chars(text.data(), text.data() + text.size(), percent);
  return static_cast<double>(percent) / 100;
}

// The least share in [from, to] of so many parts of 1 that is good, where more is as good as less: `to` is.
double least_good(double from, double to, int parts, const std::function<bool(double)>& good) {
  auto bad = static_cast<int>(std::ceil(from * parts)) - 1, fine = static_cast<int>(std::ceil(to * parts));
  while (fine - bad > 1) {
    const int middle = bad + (fine - bad) / 2;
    (good(static_cast<double>(middle) / parts) ? fine : bad) = middle;
  }
  return std::min(to, static_cast<double>(fine) / parts);
}

constexpr double coarse_step = 1.0 / 8, fine_step = 1.0 / 128;

// Shares of recomputation that are looked at first, with the last one below the most: what comes last may take more
// memory to be made again than it does to be kept. Then those on both sides of the best, which `best` gives.
std::vector<double> coarse_shares(const MemoryWishes& wishes) {
  std::vector<double> shares;
  for (double share = wishes.least_share; share < wishes.most_share; share += coarse_step) shares.push_back(share);
  if (!shares.empty() && wishes.most_share - fine_step > shares.back()) shares.push_back(wishes.most_share - fine_step);
  shares.push_back(wishes.most_share);
  return shares;
}

void look_beside(const std::function<double()>& best, const MemoryWishes& wishes,
                 const std::function<void(double)>& look) {
  for (double step = coarse_step / 2; step >= fine_step; step /= 2) {
    const double middle = best();
    for (const double share : {middle - step, middle + step})
      if (share > wishes.least_share && share < wishes.most_share) look(share);
  }
}

}  // namespace

MemoryWishes::MemoryWishes(const Config& config, int64_t blocks) {
  const std::string &checkpointing = config.train.gradient_checkpointing, &recompute = config.memory.recompute;
  if (recompute != "auto" && checkpointing != "auto")
    fail(
        Code::config,
        "memory.recompute: {} and train.gradient_checkpointing: {} say how much is recomputed, and not the same. Leave "
        "one of them at auto",
        recompute, checkpointing);
  least_share = share_in(recompute);
  least_offload = share_in(config.memory.offload);
  if (config.memory.offload == "0") most_offload = 0;
  least_states = config.memory.optimizer_states == "host";
  most_states = config.memory.optimizer_states != "device";
  if (checkpointing == "true") least_share = 1;
  if (checkpointing == "false" || recompute == "0") most_share = 0;
  const std::string& stream = config.memory.stream;
  most = stream == "0" ? 0 : blocks;
  if (stream == "auto") return;
  int64_t number = 0;
  std::from_chars(stream.data(), stream.data() + stream.size(), number);
  least = std::min(blocks, stream.ends_with('%') ? (number * blocks + 99) / 100 : number);
}

int64_t host_memory_for(const Device& device, const Config& config, int processes) {
  if (!config.memory.host.empty()) return *size_of(config.memory.host) / processes;
  std::ifstream file(device.stands_for_gpu() ? "" : "/proc/meminfo");
  for (std::string word; file >> word;)
    if (int64_t kib = 0; word == "MemAvailable:" && file >> kib) return (kib << 10) / 10 * 9 / processes;
  return std::numeric_limits<int64_t>::max();  // a system that does not say
}

void agree_on_plan(World& world, int64_t& limit, Rates& rates) {
  limit = std::ranges::min(gather_values(world, limit));
  rates = gather_values(world, rates).front();
}

MemoryPlanner::MemoryPlanner(const TrainPlan& base, const Model& model, const AdapterSelection& selection,
                             const PlanOptions& options, const Config& config, const Rates& rates, int64_t host_memory,
                             DecodingOf decoding)
    : model_(model),
      selection_(selection),
      options_(options),
      shape_(base.largest_shape()),
      base_(base.memory_beside_decoding()),
      base_states_(base.states_at()),
      updates_{{base.states_at(), base.update_needs(base.states_at())}},
      other_arena_(base.other_arena()),
      blocks_(streamable_blocks(base.largest().graph, weight_names(base.largest().graph, model.checkpoint()))),
      wishes_(config, static_cast<int64_t>(blocks_.size())),
      rates_(rates),
      host_memory_(host_memory),
      decoding_(std::move(decoding)) {
  for (const auto& [shape, step] : base.steps) shapes_.insert(shape);
  if (decoding_) least_decoding_ = decoding_({.limit = 0});
  options_.step.rates = rates;
  if (!wishes_.least_states) updates_.try_emplace(StatePlace::device, base.update_needs(StatePlace::device));
  if (wishes_.most_states) {
    updates_.try_emplace(StatePlace::host, base.update_needs(StatePlace::host));
    const UpdatePlan update = base.optimizer->plan_at(StatePlace::host);
    state_seconds_ = state_seconds(update, rates) / static_cast<double>(options_.micro_batches);
    wishes_.most_states = wishes_.least_states || updates_.at(StatePlace::host).on_host > 0;
  }
  if (!options_.shares_base) return;
  wishes_.least = wishes_.most = blocks();
  // All blocks come from other devices whatever is chosen, by ways whose rate is not known yet: were they slow, more
  // recomputation would seem to cost nothing. So nothing is offloaded then but what was asked for.
  rates_.link = rates_.memory;
  wishes_.most_offload = wishes_.least_offload;
}

MemoryPlanner MemoryPlanner::otherwise(const StepShape& shape) const {
  MemoryPlanner other = *this;
  other.shape_ = shape;
  other.all_kept_.reset();
  other.steps_.clear();
  other.planned_.clear();
  other.bounds_.clear();
  return other;
}

const TrainGraph& MemoryPlanner::step(const ActivationChoice& choice) {
  if (const auto known = steps_.find(choice); known != steps_.end()) return known->second;
  if (!all_kept_) {
    Sizes sizes = shape_.sizes(model_.recipe().latents);
    sizes.insert(options_.encoder_sizes.begin(), options_.encoder_sizes.end());
    all_kept_.emplace(model_, sizes, selection_, options_.step);
  }
  return steps_.emplace(choice, all_kept_->with(choice, {})).first->second;
}

PlannedMemory MemoryPlanner::at(const MemoryChoice& choice) {
  return within(choice, std::numeric_limits<int64_t>::max());
}

const PlannedMemory& MemoryPlanner::within(const MemoryChoice& choice, int64_t budget) {
  if (const auto known = planned_.find(choice); known != planned_.end()) return known->second;
  if (const auto known = bounds_.find(choice); known != bounds_.end() && known->second.memory.total() > budget)
    return known->second;
  bool placed = true;
  PlannedMemory planned = plan_for(choice, options_.share(0), budget, placed);
  if (options_.share().deals()) {
    PlannedMemory other = plan_for(choice, options_.share(1), budget, placed);
    if (other.memory.total() > planned.memory.total()) planned = std::move(other);
  }
  return (placed ? planned_ : bounds_).insert_or_assign(choice, std::move(planned)).first->second;
}

Streaming MemoryPlanner::streaming(int64_t count, const WeightShare& share) const {
  Streaming streaming = spread(blocks_, count);
  if (share.deals()) streaming.own = dealt(blocks_, share.rank);
  return streaming;
}

PlannedMemory MemoryPlanner::plan_for(const MemoryChoice& choice, const WeightShare& share, int64_t budget,
                                      bool& placed) {
  const TrainGraph& step = this->step(choice.activations());
  Graph graph = step.graph;
  const Streaming streaming = this->streaming(choice.streamed, share);
  stream(graph, streaming);
  PlannedMemory planned{.choice = choice, .memory = base_, .time = {}, .activations = step.activations};
  const UpdateNeeds &update = updates_.at(choice.states_at()), &of_base = updates_.at(base_states_);
  planned.memory.states = update.on_host;
  planned.memory.adapters += update.here - of_base.here;
  planned.memory.small += update.small - of_base.small;
  planned.memory.workspace = std::max(planned.memory.workspace, update.workspace);
  planned.memory.weights += least_decoding_.weights;
  planned.memory.small += least_decoding_.constants;
  planned.memory.workspace = std::max(planned.memory.workspace, least_decoding_.workspace);
  const std::vector<std::string> names(streaming.weights.begin(), streaming.weights.end());
  planned.memory.streamed = streamed_bytes(graph, names);
  planned.memory.offloaded = offloaded_bytes(graph);
  planned.memory.weights -= planned.memory.streamed;
  if (options_.shares_base) {
    planned.memory.weights += kept_bytes(graph, names, share);
    planned.memory.streamed = 0;
  }
  planned.memory.activations = 0;
  const Plan plan = plan_within(graph, external_to_step(graph), budget - planned.memory.total());
  placed &= plan.placed;
  planned.time = predict(graph, plan, rates_);
  if (choice.states) {
    planned.states_seconds = state_seconds_;
    planned.time.seconds += state_seconds_;
    planned.time.waiting += state_seconds_;
  }
  // What else runs in the arena fetches the same weights into it, but for updates.
  planned.memory.activations =
      std::max({plan.bytes, other_arena_ + streaming.window, update.arena, least_decoding_.arena});
  return planned;
}

bool MemoryPlanner::fits(const PlannedMemory& planned, int64_t budget) const {
  return planned.memory.total() <= budget && planned.memory.on_host() <= host_memory_;
}

std::optional<PlannedMemory> MemoryPlanner::fewest_streamed(const MemoryChoice& choice, int64_t budget,
                                                            double seconds) {
  const auto with = [&](int64_t streamed) {
    return MemoryChoice{choice.recompute, streamed, choice.offload, choice.states};
  };
  bool slow = false;  // more streamed blocks than these take longer still
  const auto good = [&](int64_t streamed) {
    const PlannedMemory& planned = within(with(streamed), budget);
    const bool fit = fits(planned, budget);
    slow |= !fit && planned.time.seconds >= seconds;
    return fit;
  };
  const int64_t least = wishes_.least, most = wishes_.most;
  if (good(least)) return at(with(least));
  if (slow || most <= least) return {};
  // Weights go block by block, so that about as many are needed as take what is over the budget, and their window where
  // there was none. From there in steps that double until the number lies between two, of which one is enough: more
  // streamed blocks take less, once there is a window at all.
  int64_t bytes = 0;
  for (const StreamableBlock& block : blocks_) bytes += block.bytes;
  const int64_t over = within(with(least), budget).memory.total() - budget;
  const int64_t window = least == 0 ? streaming(most).window : 0;
  int64_t few = least, many = most + 1;
  int64_t next = std::clamp(least + (over + window) / (bytes / blocks()), few + 1, most);
  for (int64_t step = 1; many - few > 1; step *= 2) {
    (good(next) ? many : few) = next;
    if (slow) return {};
    if (many > most)
      next = std::min(few + step, most);
    else if (few == least)
      next = std::max(many - step, few + 1);
    else
      next = (few + many) / 2;
  }
  if (many > most) return {};
  return at(with(many));
}

void MemoryPlanner::improve(std::optional<PlannedMemory>& best, double offload, bool states, int64_t budget) {
  bool better = false;
  // Whether more recomputation than this may still be better.
  const auto look = [&](double share) {
    const double before = best ? best->time.seconds : std::numeric_limits<double>::infinity();
    if (within({share, wishes_.least, offload, states}, budget).time.seconds >= before) return false;
    const std::optional<PlannedMemory> found = fewest_streamed({share, 0, offload, states}, budget, before);
    if (found && found->time.seconds < before) {
      best = found;
      better = true;
    }
    return !found || found->choice.streamed > wishes_.least;
  };
  for (const double share : coarse_shares(wishes_))
    if (!look(share)) break;
  look(wishes_.most_share);
  if (better) look_beside([&] { return best->choice.recompute; }, wishes_, look);
}

bool MemoryPlanner::improve_offloaded(PlannedMemory& best, double offload, int64_t budget) {
  const auto planned = [&](double share) -> const PlannedMemory& {
    return within({share, best.choice.streamed, offload, best.choice.states}, budget);
  };
  const auto good = [&](double share) { return fits(planned(share), budget); };
  const double before = best.time.seconds, to = best.choice.recompute;
  if (planned(wishes_.least_share).time.seconds >= before || !good(to)) return false;
  constexpr int parts = 16;
  const double share = least_good(wishes_.least_share, to, parts, good);
  PlannedMemory found = at({share, best.choice.streamed, offload, best.choice.states});
  if (found.time.waiting > 0 && best.choice.streamed > wishes_.least)  // for the link, which weights use as well
    if (const auto fewer = fewest_streamed({share, 0, offload, best.choice.states}, budget, found.time.seconds))
      found = *fewer;
  if (found.time.seconds >= before) return false;
  best = std::move(found);
  return true;
}

// States go to host memory where something has to, and that is faster. A prediction knows what copies take better than
// what it costs to make something again, so that little less is enough.
std::optional<PlannedMemory> MemoryPlanner::fastest(int64_t budget) {
  std::optional<PlannedMemory> best = best_with(wishes_.least_states, budget);
  const bool all_kept = best && best->choice.recompute <= wishes_.least_share &&
                        best->choice.streamed <= wishes_.least && best->choice.offload <= wishes_.least_offload;
  if (all_kept) return best;
  if (!wishes_.least_states && wishes_.most_states) {
    constexpr double certain = 0.98;
    const std::optional<PlannedMemory> other = best_with(true, budget);
    if (other && (!best || other->time.seconds < certain * best->time.seconds)) best = other;
  }
  if (best) return best;
  PlannedMemory least = this->least();  // which is found between the shares that were looked at
  return fits(least, budget) ? std::optional(std::move(least)) : std::nullopt;
}

std::optional<PlannedMemory> MemoryPlanner::best(int64_t budget) {
  std::optional<PlannedMemory> best = fastest(budget);
  if (best) decode_in(*best, budget);
  return best;
}

void MemoryPlanner::decode_in(PlannedMemory& planned, int64_t budget) const {
  if (!decoding_) return;
  MemoryReport& m = planned.memory;
  m.weights -= least_decoding_.weights;
  m.small -= least_decoding_.constants;
  const VaeMemory decoding = decoding_(
      {.limit = budget, .taken = m.weights + m.adapters + m.small, .arena = m.activations, .workspace = m.workspace});
  m.weights += decoding.weights;
  m.small += decoding.constants;
  m.activations = std::max(m.activations, decoding.arena);
  m.workspace = std::max(m.workspace, decoding.workspace);
}

// Offloading takes the place of what would be made again. More of it is better until the link is busy all the time.
std::optional<PlannedMemory> MemoryPlanner::best_with(bool states, int64_t budget) {
  const double from = wishes_.least_offload, to = wishes_.most_offload;
  std::optional<PlannedMemory> best;
  improve(best, from, states, budget);
  if (!best && to > from) improve(best, to, states, budget);
  if (!best || (best->choice.recompute <= wishes_.least_share && best->choice.streamed <= wishes_.least)) return best;
  const PlannedMemory without = *best;
  constexpr double coarse = 1.0 / 4, fine = 1.0 / 8;
  for (double offload = from + coarse; offload < to + coarse; offload += coarse)
    if (!improve_offloaded(*best, std::min(offload, to), budget)) break;
  const double middle = best->choice.offload;
  for (const double offload : {middle - fine, middle + fine})
    if (offload > from && offload < to) improve_offloaded(*best, offload, budget);
  // Host memory is taken where that is certain to pay: predictions are off by some percent.
  constexpr double certain = 0.95;
  if (best->time.seconds > certain * without.time.seconds) best = without;
  use_less_host_memory(*best, budget);
  return best;
}

// Less is offloaded where the device has room for it.
void MemoryPlanner::use_less_host_memory(PlannedMemory& planned, int64_t budget) {
  const MemoryChoice chosen = planned.choice;
  const auto with = [&](double offload) {
    return MemoryChoice{chosen.recompute, chosen.streamed, offload, chosen.states};
  };
  const auto good = [&](double offload) {
    const PlannedMemory& other = within(with(offload), budget);
    return fits(other, budget) && other.time.seconds <= planned.time.seconds;
  };
  constexpr int parts = 32;
  const double least = least_good(wishes_.least_offload, chosen.offload, parts, good);
  if (least < chosen.offload) planned = at(with(least));
}

// What is made again at a time takes memory as well, so that the least is not always with all of it made again.
PlannedMemory MemoryPlanner::least() {
  const MemoryWishes& w = wishes_;
  PlannedMemory least = at({w.most_share, w.least, w.least_offload, w.least_states});
  const auto look = [&](const MemoryChoice& other_choice) {
    const PlannedMemory& other = within(other_choice, least.memory.total());
    const int64_t less = least.memory.total() - other.memory.total();
    if (less > 0 || (less == 0 && other.time.seconds < least.time.seconds)) least = other;
  };
  look({w.most_share, w.least, w.least_offload, w.most_states});
  look({w.most_share, w.most, w.least_offload, w.most_states});
  const MemoryChoice& choice = least.choice;
  for (const double share : coarse_shares(w))
    for (const double offload : {w.most_offload, w.least_offload})
      look({share, choice.streamed, offload, choice.states});
  look_beside([&] { return choice.recompute; }, w,
              [&](double share) {
                look({share, choice.streamed, choice.offload, choice.states});
              });
  return least;
}

}  // namespace lh
