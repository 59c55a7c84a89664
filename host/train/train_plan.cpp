// Compiles a step for each shape and takes the largest of what they need.
#include "train/train_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "config/dtype.h"
#include "core/error.h"
#include "run/clip.h"
#include "run/feed.h"
#include "run/workspace.h"
#include "train/gradient_sum.h"

namespace lh {
namespace {

UpdateNeeds most_of(const UpdateNeeds& a, const UpdateNeeds& b) {
  return {.here = std::max(a.here, b.here),
          .on_host = std::max(a.on_host, b.on_host),
          .small = std::max(a.small, b.small),
          .arena = std::max(a.arena, b.arena),
          .workspace = std::max(a.workspace, b.workspace)};
}

}  // namespace

TrainPlan::TrainPlan(Device& device, const Model& model, const Registry& registry, const TrainSection& settings,
                     const AdapterSelection& selection, const std::set<StepShape>& shapes, const PlanOptions& options)
    : device_(device), registry_(registry), states_(options.states) {
  const Recipe& recipe = model.recipe();
  const auto add = [&](const PlannedGraph& planned) {
    also(planned.plan->bytes, workspace_bytes(device, {planned}), constant_bytes(*planned.graph));
  };
  for (const StepShape& shape : shapes) {
    Sizes sizes = shape.sizes(recipe.latents);
    sizes.insert(options.encoder_sizes.begin(), options.encoder_sizes.end());
    auto step = std::make_unique<TrainStep>(build_train_graph(model, sizes, selection, options.step));
    const TrainGraph& train = step->train_graph();
    also_adapted(step->arena_bytes(), workspace_bytes(device, train.graph, step->plan()), constant_bytes(train.graph));
    memory.offloaded = std::max(memory.offloaded, step->host_bytes());
    steps[shape] = std::move(step);
  }
  const TrainGraph& all = largest();
  if (all.modules.empty())
    fail(Code::config,
         "network: no module is left to train. Check network_kwargs.only_if_contains and ignore_if_contains; this "
         "model's targets are {}{}{}",
         fmt::join(recipe.lora_targets, " and "), all.left_out.empty() ? "" : ". ",
         fmt::join(left_out_lines(all.left_out, false), "; "));
  std::vector<std::string> names;
  for (const AdaptedModule& module : all.modules) names.push_back(module.name);
  const std::set<std::string> known(names.begin(), names.end());
  for (const auto& [shape, step] : steps)
    for (const AdaptedModule& module : step->train_graph().modules)
      if (!known.contains(module.name))
        fail(Code::internal, "a step of {} trains {}, which the one with the most modules does not",
             text_of(shape.bucket), module.name);
  selection.require_use(names);
  adapters = std::make_unique<Adapters>(all.graph, all.modules, options.accumulate);
  const Shape whole = adapters->whole().shape;
  if (options.norm_limit) {
    norm_limit = std::make_unique<NormLimit>(*adapters, *options.norm_limit);
    for (const PlannedGraph& planned : norm_limit->graphs()) add(planned);
  }
  if (settings.ema_config.use_ema) {
    adapters->add_section("ema");
    ema = std::make_unique<Ema>(settings.ema_config, whole.numel());
    add({&ema->plan().graph, &ema->plan().plan});
  }
  const int64_t clip = measured_workspace(device, [&] {
    const auto place = [](int64_t at, const Shape& shape) {  // only for the size: nothing is there
      return kernel_tensor({DType::f32, shape}, reinterpret_cast<void*>(at));
    };
    clip_gradients(device, place(1 << 20, whole), 1, place(256, {1}), place(512, {1}));
  });
  also_adapted(0, clip, 0);
  const std::vector<std::string> weights = weight_names(all.graph, model.checkpoint());
  memory.weights = weight_bytes(all.graph, weights);
  if (options.shares_base)
    memory.weights += kept_bytes(all.graph, weights, options.share());
  else
    memory.streamed = streamed_bytes(all.graph, weights);
  memory.adapters = adapters->bytes();
  memory.small += SCALARS + Feed::device_bytes(message_bytes()) +
                  GradientSum::staging_bytes(whole.numel(), options.processes, compute_dtype(settings.reduce_dtype));
  also(settings);
  optimizer = setup_for(settings);
}

void TrainPlan::also(int64_t arena, int64_t workspace, int64_t constants) {
  other_arena_ = std::max(other_arena_, arena);
  also_adapted(arena, workspace, constants);
}

void TrainPlan::also_adapted(int64_t arena, int64_t workspace, int64_t constants) {
  memory.activations = std::max(memory.activations, arena);
  memory.workspace = std::max(memory.workspace, workspace);
  workspace_beside_decoding_ = std::max(workspace_beside_decoding_, workspace);
  memory.small += constants;
}

void TrainPlan::also_decoding(const VaeMemory& decoding) {
  decoding_ = decoding;
  memory.weights += decoding.weights;
  memory.small += decoding.constants;
  memory.activations = std::max(memory.activations, decoding.arena);
  memory.workspace = std::max(memory.workspace, decoding.workspace);
}

MemoryReport TrainPlan::memory_beside_decoding() const {
  MemoryReport beside = memory;
  beside.weights -= decoding_.weights;
  beside.small -= decoding_.constants;
  beside.workspace = workspace_beside_decoding_;
  return beside;
}

void TrainPlan::accumulate() {
  const int64_t before = adapters->bytes();
  adapters->add_section("total");
  memory.adapters += adapters->bytes() - before;
}

std::shared_ptr<const OptimizerSetup> TrainPlan::setup_for(const TrainSection& settings) {
  for (const auto& setup : setups_)
    if (setup->serves(settings)) return setup;
  return setups_.emplace_back(std::make_shared<OptimizerSetup>(registry_, settings, adapters->trained(), states_));
}

UpdateNeeds TrainPlan::needs_of(const UpdatePlan& update) const {
  const bool on_host = update.place() == StatePlace::host;
  UpdateNeeds needs{.here = update.group_state_bytes() + (on_host ? 0 : update.state_bytes()),
                    .on_host = on_host ? update.state_bytes() : 0,
                    .small = update.number_bytes(),
                    .arena = update.arena_bytes()};
  for (const std::vector<PlannedGraph>& graphs : update.graphs()) {
    needs.workspace = std::max(needs.workspace, workspace_bytes(device_, graphs));
    for (const PlannedGraph& planned : graphs) needs.small += constant_bytes(*planned.graph);
  }
  return needs;
}

UpdateNeeds TrainPlan::update_needs(StatePlace place) const {
  if (place == states_) return update_;
  UpdateNeeds needs;
  for (const auto& setup : setups_) needs = most_of(needs, needs_of(setup->plan_at(place)));
  return needs;
}

void TrainPlan::also(const TrainSection& settings) { make_room(*setup_for(settings)); }

void TrainPlan::make_room(const OptimizerSetup& setup) {
  const UpdatePlan& update = setup.plan();
  if (update.evaluates() && norm_limit)
    fail(Code::config,
         "network.scale_weight_norms: optimizer '{}' saves other weights than it trains, which it would not reach. "
         "Remove it, or use another optimizer",
         setup.rules().base().id());
  const int64_t before = adapters->bytes();
  if (update.evaluates()) adapters->add_section("evaluation");
  const UpdateNeeds needs = most_of(update_, needs_of(update));
  memory.adapters += adapters->bytes() - before + needs.here - update_.here;
  memory.states = needs.on_host;
  memory.small += needs.small - update_.small - Feed::device_bytes(message_bytes());
  update_ = needs;
  also_adapted(needs.arena, needs.workspace, 0);
  // Weight decays and rates of roles may come later.
  rate_slots_ = std::max(rate_slots_, 4 * static_cast<int64_t>(update.groups().size()));
  memory.small += Feed::device_bytes(message_bytes());
}

std::string TrainPlan::obstacle(const OptimizerSetup& setup, int64_t limit) const {
  const UpdatePlan& update = setup.plan();
  const std::string fix = fmt::format(
      "With '{}' in train.phases, or as train.optimizer of a resumed run, it is planned "
      "for",
      setup.rules().base().id());
  const UpdateNeeds needs = needs_of(update);
  if (update.evaluates() && norm_limit)
    return "it saves other weights than it trains, which scale_weight_norms cannot reach";
  if (needs.arena > memory.activations || needs.workspace > memory.workspace)
    return fmt::format("its update takes more working memory than the run has set aside. {}", fix);
  if (static_cast<int64_t>(update.groups().size()) > rate_slots_)
    return fmt::format("it has {} groups of tensors, the run has room for {}. {}", update.groups().size(), rate_slots_,
                       fix);
  const int64_t evaluation =
      update.evaluates() && !adapters->has("evaluation") ? adapters->whole().shape.numel() * 4 : 0;
  const int64_t more = std::max<int64_t>(0, needs.here - update_.here) + evaluation;
  if (memory.total() + more > limit)
    return fmt::format("it takes {} MiB more than the run has, {} MiB are left. {}", more >> 20,
                       std::max<int64_t>(0, limit - memory.total()) >> 20, fix);
  return "";
}

int64_t TrainPlan::message_bytes() const {
  int64_t most = 0;
  for (const auto& [bucket, step] : steps) most = std::max(most, step->input_bytes());
  return rates_bytes() + most;
}

const StepShape& TrainPlan::largest_shape() const {
  const auto size = [](const auto& s) {
    return std::pair(s.second->train_graph().modules.size(), s.second->arena_bytes());
  };
  return std::ranges::max_element(steps, {}, size)->first;
}

}  // namespace lh
