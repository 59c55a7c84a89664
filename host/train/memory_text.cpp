#include "train/memory_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "core/bytes.h"
#include "core/error.h"
#include "run/weights.h"

namespace lh {
namespace {

constexpr int64_t gib = int64_t{1} << 30;

// "products 1.2 GiB, norms 0.3 GiB", the largest first.
std::string by_kind(const std::map<std::string, int64_t>& kinds) {
  std::vector<std::pair<int64_t, std::string>> order;
  order.reserve(kinds.size());
  for (const auto& [kind, bytes] : kinds) order.emplace_back(-bytes, kind);
  std::ranges::sort(order);
  std::string text;
  for (const auto& [bytes, kind] : order)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", kind, size_text(-bytes));
  return text;
}

std::string row(const std::string& budget, const PlannedMemory& p, int64_t blocks) {
  const MemoryReport& m = p.memory;
  std::string text = fmt::format(
      "  {:>9}  {:>10}  {:>9}  {:>10}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}  {:>8.1f} ms", budget,
      size_text(total(p.activations.again)), size_text(m.offloaded), fmt::format("{} of {}", p.choice.streamed, blocks),
      size_text(m.states), size_text(m.total()), size_text(m.weights), size_text(m.adapters), size_text(m.activations),
      size_text(m.workspace + m.small), size_text(m.on_host()), 1e3 * p.time.seconds);
  if (p.time.waiting > 0) text += fmt::format(", {:.1f} of them waiting for copies", 1e3 * p.time.waiting);
  text += "\n";
  if (p.choice.recompute > 0) text += fmt::format("{:13}{}\n", "", recomputed_text(p.activations));
  return text;
}

struct Lever {
  std::string what;
  int64_t gives = 0;  // bytes
};

// Bytes that adapted weights would no longer take of the device with so many bits each, the window's share of those
// that are streamed included.
int64_t saved_by_bits(int64_t bits, const TrainGraph& step, const PlannedMemory& least, const Streaming& streaming) {
  int64_t resident = 0, streamed = 0, of_streamed = 0;
  for (const AdaptedModule& module : step.modules) {
    const auto found = step.graph.params.find(module.name + ".weight");
    if (found == step.graph.params.end()) continue;
    const Desc& desc = step.graph.desc(found->second);
    const int64_t saved = desc.bytes() - desc.shape.numel() * bits / 8;
    if (saved <= 0) continue;
    (streaming.weights.contains(found->first) ? of_streamed : resident) += saved;
    if (streaming.weights.contains(found->first)) streamed += desc.bytes();
  }
  if (streamed == 0 || least.memory.streamed == 0) return resident;
  const double share = static_cast<double>(of_streamed) / static_cast<double>(streamed);
  return resident + static_cast<int64_t>(share * static_cast<double>(streaming.window));
}

// Bytes of the device with one sample in every batch, after which steps of another size may be the largest.
int64_t one_by_one(const MemoryPlanner& planner, const MemoryChoice& choice) {
  std::set<StepShape> shapes;
  for (StepShape shape : planner.shapes()) {
    shape.batch = 1;
    shapes.insert(shape);
  }
  int64_t most = 0;
  for (const StepShape& shape : shapes) most = std::max(most, planner.otherwise(shape).at(choice).memory.total());
  return most;
}

}  // namespace

std::string recomputed_text(const KeptActivations& activations) {
  return fmt::format("made again: {}; kept: {}", by_kind(activations.again), by_kind(activations.kept));
}

std::string memory_table(MemoryPlanner& planner, const std::vector<int64_t>& budgets) {
  std::string text = fmt::format(
      "  {:>9}  {:>10}  {:>9}  {:>10}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}  {}\n", "budget", "made again",
      "offloaded", "streamed", "states", "device", "weights", "LoRA", "activat.", "other", "host", "step, predicted");
  for (const int64_t budget : budgets) {
    const std::string name = size_text(budget);
    if (const std::optional<PlannedMemory> best = planner.best(budget))
      text += row(name, *best, planner.blocks());
    else
      text += fmt::format("  {:>9}  does not fit: at least {}\n", name, room_text(planner.least().memory.total()));
  }
  return text;
}

std::vector<int64_t> budgets_around(int64_t budget) {
  constexpr int64_t cards[] = {4, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 80, 96, 141, 180};
  std::vector<int64_t> all;
  for (const int64_t card : cards)
    if (card * gib < budget) all = {card * gib};
  all.push_back(budget);
  for (const int64_t card : cards)
    if (card * gib > budget) {
      all.push_back(card * gib);
      break;
    }
  std::ranges::reverse(all);
  return all;
}

std::string does_not_fit(MemoryPlanner& planner, const Config& config, const Model& model, int64_t budget) {
  const PlannedMemory least = planner.least();
  const MemoryReport& m = least.memory;
  const TrainGraph& step = planner.step(least.choice.activations());
  std::string text = fmt::format(
      "the run does not fit: {} of memory may be used, and it takes {} at least: weights {}, LoRA and optimizer {}, "
      "activations {}, workspace and inputs {}, with {:.0f}% of what blocks can make again recomputed, {} of "
      "activations and {} of optimizer states in host memory and the weights of {} of {} blocks streamed from there",
      size_text(budget), room_text(m.total()), size_text(m.weights), size_text(m.adapters), size_text(m.activations),
      size_text(m.workspace + m.small), 100 * least.choice.recompute, size_text(m.offloaded), size_text(m.states),
      least.choice.streamed, planner.blocks());
  if (m.on_host() > planner.host_memory())
    text += fmt::format("; that takes {} of host memory, and {} are available", size_text(m.on_host()),
                        size_text(planner.host_memory()));

  std::vector<Lever> levers;
  const auto lower = [&](const std::string& what, int64_t other) {
    if (m.total() > other) levers.push_back({what, m.total() - other});
  };
  Config free = config;
  free.train.gradient_checkpointing = "auto";
  free.memory.recompute = "auto";
  free.memory.stream = free.memory.offload = free.memory.optimizer_states = "auto";
  const MemoryWishes all(free, planner.blocks());
  if (planner.wishes().most_share < all.most_share)
    lower(
        config.memory.recompute == "0" ? "memory.recompute: auto" : "train.gradient_checkpointing: auto",
        planner.at({all.most_share, least.choice.streamed, least.choice.offload, least.choice.states}).memory.total());
  if (config.memory.stream == "0")
    lower("memory.stream: auto",
          planner.at({least.choice.recompute, all.most, least.choice.offload, least.choice.states}).memory.total());
  if (config.memory.offload == "0")
    lower("memory.offload: auto",
          planner.at({least.choice.recompute, least.choice.streamed, all.most_offload, least.choice.states})
              .memory.total());
  if (config.memory.optimizer_states == "device")
    levers.push_back({"memory.optimizer_states: auto", planner.states_bytes()});
  const Streaming streaming = planner.streaming(least.choice.streamed);
  levers.push_back({"model.dtype: float8_e4m3", saved_by_bits(8, step, least, streaming)});
  levers.push_back({"model.dtype: nf4", saved_by_bits(4, step, least, streaming)});
  const bool of_datasets = std::ranges::any_of(config.datasets, [](const auto& d) { return !d.batch_size.empty(); });
  if (planner.shape().batch > 1)
    lower(of_datasets ? "datasets[].batch_size: 1" : "train.batch_size: 1", one_by_one(planner, least.choice));
  // Half the side, as far as the model's step goes.
  const LatentSpec& latents = model.recipe().latents;
  const int64_t unit = latents.pixel_step();
  StepShape half = planner.shape();
  half.bucket.width = std::max(unit, half.bucket.width / 2 / unit * unit);
  half.bucket.height = std::max(unit, half.bucket.height / 2 / unit * unit);
  if (half.bucket < planner.shape().bucket)
    lower(
        fmt::format("datasets.resolution, half of what it is ({} x {} pixels)", half.bucket.width, half.bucket.height),
        planner.otherwise(half).at(least.choice).memory.total());
  // Half the frames, as far as they fill the model's latents and are still a clip.
  StepShape brief = planner.shape();
  brief.bucket.frames = latents.frames(latents.times((brief.bucket.frames + 1) / 2));
  if (brief.bucket.frames > 1 && brief.bucket.frames < planner.shape().bucket.frames)
    lower(fmt::format("datasets.num_frames: {}", brief.bucket.frames),
          planner.otherwise(brief).at(least.choice).memory.total());
  if (config.network.linear > 1)
    levers.push_back({fmt::format("network.linear: {}", config.network.linear / 2), m.adapters / 2});
  if (config.train.train_text_encoder) {
    int64_t bytes = 0;
    for (const std::string& name : weight_names(step.graph, model.checkpoint()))
      if (name.find(':') != name.npos) bytes += weight_bytes(step.graph, {name});
    levers.push_back({"train.train_text_encoder: false", bytes});
  }
  std::erase_if(levers, [](const Lever& lever) { return lever.gives <= 0; });
  std::ranges::stable_sort(levers, std::greater{}, &Lever::gives);
  if (levers.empty()) return text;
  text += "\nWhat would give most:";
  for (const Lever& lever : levers) text += fmt::format("\n  {}: {}", lever.what, size_text(lever.gives));
  return text;
}

}  // namespace lh
